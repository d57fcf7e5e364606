"""asyncio's event loop with direct socket callbacks.

Owns the choice of loop, and which sockets are polled for what. The poll calls a *direct* callback
itself, without a handle, a queue or another turn of the loop in between; each peer has its share of
a turn (:mod:`receiver.turns`). Everything else (the REST API, timers, tasks, signals) is asyncio's.
The poll returns to asyncio when asyncio has something due.

Direct sockets are polled edge-triggered, which spares the kernel a second look at each socket after
its event. So the turns keep a queue of the sockets that have more to do.

Why not uvloop: libuv stops watching a socket at its first error event. If data and a reset arrive
together, they are one event; the data is read, the reset is never seen, and the other peer waits
for ever.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import select
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, TypeVarTuple, cast
from weakref import WeakValueDictionary

from receiver.turns import DirectCallback, Share, Turns

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

#: Sockets that asyncio gets in a turn. Each may wake a task, for some 50 microseconds.
MAX_DUE: Final = 16

_READABLE: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_WRITABLE: Final = select.EPOLLOUT | select.EPOLLET


class _DirectSelector(selectors.EpollSelector):
    """An epoll selector with direct callbacks beside asyncio's file objects.

    Args:
        on_error: Called with an exception that a direct callback raised.

    Attributes:
        turns: Calls the direct callbacks.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        super().__init__()
        # A second descriptor of the same epoll instance, because the base class closes its own.
        self._epoll = select.epoll.fromfd(os.dup(self.fileno()))
        self._readers: dict[int, DirectCallback] = {}
        self._writers: dict[int, DirectCallback] = {}
        self.turns = Turns(self._epoll, on_error)

    def close(self) -> None:
        """Close both descriptors."""
        self.turns.close()
        super().close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Give turns to the direct callbacks until asyncio has something due."""
        self.turns.serve(timeout)
        return self._take_due()

    def call_again(self, fd: int) -> None:
        """Call the callback of a socket in the next turn, without an event of the kernel."""
        entry = self.turns.callbacks.get(fd)
        if entry is not None:
            self.turns.wait(fd, entry[1], ending=False)

    def _take_due(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Take asyncio's next ready sockets; the rest waits for the next turn."""
        ready, due = self.turns.due, list[tuple[selectors.SelectorKey, int]]()
        while ready and len(due) < MAX_DUE:
            fd = next(iter(ready))
            events = ready.pop(fd)
            try:
                key = self.get_key(fd)
            except KeyError:  # a direct callback in this turn has closed it
                continue
            wanted = (selectors.EVENT_READ if events & ~select.EPOLLOUT else 0) | (
                selectors.EVENT_WRITE if events & ~select.EPOLLIN else 0
            )
            if wanted & key.events:
                due.append((key, wanted & key.events))
        return due

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Stop watching one of asyncio's sockets, also if it is ready and waits."""
        key = super().unregister(fileobj)
        self.turns.due.pop(key.fd, None)
        return key

    def set_direct(
        self, callbacks: dict[int, DirectCallback], fd: int, callback: DirectCallback | None, share: Share
    ) -> None:
        """Set or remove one callback of a socket, and update its polling."""
        before, direct = self._mask(fd), self.turns.callbacks
        if before:
            share = direct[fd][1]
        if callback is None:
            callbacks.pop(fd, None)
        else:
            callbacks[fd] = callback
        after = self._mask(fd)
        if not after:
            direct.pop(fd, None)
            if before:
                self._epoll.unregister(fd)
            return
        reader, writer = self._readers.get(fd), self._writers.get(fd)
        if reader is None or writer is None:
            direct[fd] = cast("DirectCallback", reader or writer), share  # the mask is not 0
        else:
            direct[fd] = _both(writer, reader), share
        if not before:
            self._epoll.register(fd, after)
        elif before != after:
            self._epoll.modify(fd, after)

    def _mask(self, fd: int) -> int:
        return (_READABLE if fd in self._readers else 0) | (_WRITABLE if fd in self._writers else 0)

    def set_reader(self, fd: int, callback: DirectCallback | None, share: Share) -> None:
        """Set the callback for a readable socket; None removes it."""
        self.set_direct(self._readers, fd, callback, share)

    def set_writer(self, fd: int, callback: DirectCallback | None, share: Share) -> None:
        """Set the callback for a writable socket; None removes it."""
        self.set_direct(self._writers, fd, callback, share)


def _both(first: DirectCallback, second: DirectCallback) -> DirectCallback:
    """Return a callback that calls both, since either may have work."""

    def both() -> bool:
        again = first()
        return second() or again

    return both


class DirectEventLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop with direct callbacks for sockets.

    A direct callback must neither block nor raise, and must do a bounded amount of work. It may be
    called when there is nothing to do, or after it was removed. A socket with a direct callback
    must not be passed to any other method of the loop.
    """

    def __init__(self) -> None:
        self._direct = _DirectSelector(self._direct_callback_failed)
        self._common_share = Share()
        self._shares: WeakValueDictionary[str, Share] = WeakValueDictionary()
        super().__init__(self._direct)

    @property
    def deferred(self) -> int:
        """Times that a socket waited because its peer's share was used up."""
        return self._direct.turns.deferred

    def take_lag(self) -> float:
        """Return the seconds of the longest turn since the last call."""
        turns = self._direct.turns
        longest_s, turns.longest_turn_s = turns.longest_turn_s, 0.0
        return longest_s

    def share_of(self, peer: str) -> Share:
        """Return the share of a peer; it lives as long as the peer's connections."""
        share = self._shares.get(peer)
        if share is None:
            share = self._shares[peer] = Share()
        return share

    def set_direct_reader(self, fd: int, callback: DirectCallback | None, share: Share | None = None) -> None:
        """Set the callback for when ``fd`` is readable, has ended or failed.

        Args:
            fd: The socket's descriptor.
            callback: The callback.
            share: The share of the socket's peer; None for a share common to all sockets without a
                peer. A socket keeps the share of its first callback.
        """
        self._direct.set_reader(fd, callback, share or self._common_share)

    def set_direct_writer(self, fd: int, callback: DirectCallback | None, share: Share | None = None) -> None:
        """Set the callback for when ``fd`` is writable or has failed."""
        self._direct.set_writer(fd, callback, share or self._common_share)

    def call_direct_again(self, fd: int) -> None:
        """Call the callback of ``fd`` in the next turn, without a kernel event."""
        self._direct.call_again(fd)

    def call_soon(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """As asyncio's; a poll that is under way returns for it."""
        self._direct.turns.interrupted = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """As asyncio's; a poll that is under way returns for it."""
        self._direct.turns.interrupted = True
        return super().call_at(when, callback, *args, context=context)

    def _direct_callback_failed(self, error: Exception) -> None:
        self.call_exception_handler({"message": "a direct callback failed", "exception": error})


def running_loop() -> DirectEventLoop:
    """Return the running event loop.

    Raises:
        RuntimeError: No :class:`DirectEventLoop` is running.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, DirectEventLoop):
        raise RuntimeError(f"the gateway needs a DirectEventLoop, but a {type(loop).__name__} is running")
    return loop


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine like ``asyncio.run``, on a :class:`DirectEventLoop`."""
    with asyncio.Runner(loop_factory=DirectEventLoop) as runner:
        return runner.run(main)
