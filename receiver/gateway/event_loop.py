"""The event loop: asyncio's own, with a short way from the kernel to whoever moves a connection's bytes.

Owns the choice of loop and what is polled. A *direct* callback is called from within the poll itself, without
a handle, a queue or another turn of the loop between; everything else (the REST API, timers, tasks, signals)
is asyncio's as usual. The poll returns to asyncio when something of asyncio's is due, and only then.

Direct sockets are polled edge-triggered, which spares the kernel a second look at each socket after its
event. So a callback that leaves something behind says so, and is called again.

Why not uvloop: libuv stops watching a socket at its first error event. Data and a reset that arrive together
are then one event; the data is read, the reset is never seen, and its peer waits for ever.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import os
import select
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, TypeVarTuple

__all__ = ["DirectCallback", "DirectEventLoop", "run", "running_loop"]

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

#: Does what can be done now; returns whether there may be more to do at once.
DirectCallback = Callable[[], bool]

#: Events taken from the kernel at a time.
_MAX_EVENTS: Final = 256

_READABLE: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_WRITABLE: Final = select.EPOLLOUT | select.EPOLLET

#: Whatever comes with one of these is the socket's last, and not all of it is seen at the first look.
_ENDING: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class _DirectSelector(selectors.EpollSelector):
    """epoll, with direct callbacks beside the file objects that asyncio registers.

    Attributes:
        interrupted: Set when asyncio has got something to do meanwhile: the poll then returns to it.
        on_error: Told of an exception of a direct callback.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        super().__init__()
        # Another descriptor of the same epoll instance: it is closed on its own.
        self._epoll = select.epoll.fromfd(os.dup(self.fileno()))
        self._readers: dict[int, DirectCallback] = {}
        self._writers: dict[int, DirectCallback] = {}
        self._direct: dict[int, DirectCallback] = {}
        self.interrupted = False
        self.on_error = on_error

    def close(self) -> None:
        """Close both descriptors."""
        self._epoll.close()
        super().close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Call direct callbacks as their sockets become ready, until something of asyncio's is due."""
        # Rounded up to a millisecond, as epoll does it: rounded down, the loop would spin before a timer.
        seconds = -1.0 if timeout is None else math.ceil(max(timeout, 0.0) * 1e3) * 1e-3
        poll, direct = self._epoll.poll, self._direct.get
        self.interrupted = False
        due: list[tuple[selectors.SelectorKey, int]] = []
        while True:
            for fd, events in poll(seconds, _MAX_EVENTS):
                callback = direct(fd)
                if callback is None:
                    self._add_due(fd, events, due)
                    continue
                try:
                    if callback() or events & _ENDING:
                        self._poll_again(fd)
                except Exception as error:
                    self.on_error(error)
            if due or self.interrupted or timeout is not None:
                return due

    def _poll_again(self, fd: int) -> None:
        """Have the kernel look at the socket anew, unless nobody wants it any more."""
        if fd in self._direct:
            self._epoll.modify(fd, self._mask(fd))

    def _add_due(self, fd: int, events: int, due: list[tuple[selectors.SelectorKey, int]]) -> None:
        try:
            key = self.get_key(fd)
        except KeyError:  # a direct callback of this very turn has closed it
            return
        ready = (selectors.EVENT_READ if events & ~select.EPOLLOUT else 0) | (
            selectors.EVENT_WRITE if events & ~select.EPOLLIN else 0
        )
        if ready & key.events:
            due.append((key, ready & key.events))

    def set_direct(
        self, callbacks: dict[int, DirectCallback], fd: int, callback: DirectCallback | None
    ) -> None:
        """Set or remove one of the callbacks of a socket, and poll it for what is left."""
        before = self._mask(fd)
        if callback is None:
            callbacks.pop(fd, None)
        else:
            callbacks[fd] = callback
        after = self._mask(fd)
        if not after:
            self._direct.pop(fd, None)
            if before:
                self._epoll.unregister(fd)
            return
        reader, writer = self._readers.get(fd), self._writers.get(fd)
        if reader is None or writer is None:
            self._direct[fd] = reader or writer  # type: ignore[assignment]  # the mask says that one is there
        else:
            self._direct[fd] = _both(writer, reader)
        if not before:
            self._epoll.register(fd, after)
        elif before != after:
            self._epoll.modify(fd, after)

    def _mask(self, fd: int) -> int:
        return (_READABLE if fd in self._readers else 0) | (_WRITABLE if fd in self._writers else 0)

    def set_reader(self, fd: int, callback: DirectCallback | None) -> None:
        """Call back when the socket can be read from; None: no longer."""
        self.set_direct(self._readers, fd, callback)

    def set_writer(self, fd: int, callback: DirectCallback | None) -> None:
        """Call back when the socket can be written to; None: no longer."""
        self.set_direct(self._writers, fd, callback)


def _both(first: DirectCallback, second: DirectCallback) -> DirectCallback:
    """Both callbacks for either event: each finds out by itself whether there is something to do."""

    def both() -> bool:
        again = first()
        return second() or again

    return both


class DirectEventLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop, with direct callbacks for sockets.

    A direct callback must neither block nor raise, and must bear being called where there is nothing to do,
    or after it was removed. A socket that has one must not be given to any other method of the loop.
    """

    def __init__(self) -> None:
        self._direct = _DirectSelector(self._direct_callback_failed)
        super().__init__(self._direct)

    def set_direct_reader(self, fd: int, callback: DirectCallback | None) -> None:
        """Call ``callback`` whenever ``fd`` can be read from, has ended or failed; None: no longer."""
        self._direct.set_reader(fd, callback)

    def set_direct_writer(self, fd: int, callback: DirectCallback | None) -> None:
        """Call ``callback`` whenever ``fd`` can be written to or has failed; None: no longer."""
        self._direct.set_writer(fd, callback)

    def call_soon(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """As asyncio's; a poll that is under way returns for it."""
        self._direct.interrupted = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """As asyncio's; a poll that is under way returns for it."""
        self._direct.interrupted = True
        return super().call_at(when, callback, *args, context=context)

    def _direct_callback_failed(self, error: Exception) -> None:
        self.call_exception_handler({"message": "a direct callback failed", "exception": error})


def running_loop() -> DirectEventLoop:
    """Return the running event loop.

    Raises:
        RuntimeError: None runs, or one of another kind.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, DirectEventLoop):
        raise RuntimeError(f"the gateway needs a DirectEventLoop; what runs is a {type(loop).__name__}")
    return loop


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on a :class:`DirectEventLoop` of its own, as ``asyncio.run`` does."""
    with asyncio.Runner(loop_factory=DirectEventLoop) as runner:
        return runner.run(main)
