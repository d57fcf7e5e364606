"""asyncio's event loop with direct socket callbacks and fair turns for peers.

Owns the choice of loop, the polling, and the order of turns. The poll calls a *direct* callback
itself, without a handle, a queue or another turn of the loop in between. Everything else (the REST
API, timers, tasks, signals) is asyncio's. The poll returns to asyncio when asyncio has something
due.

**Turns.** One poll and the callbacks that follow it are a turn. A callback does a bounded amount of
work and returns whether it has more. The rest waits for the next turn, behind everything else that
is ready. Each peer has a :class:`Share` of a turn. When the share is used up, the peer's other
sockets wait too. So a peer slows down only itself, however many connections it opens and whatever
it sends.

Direct sockets are polled edge-triggered, which spares the kernel a second look at each socket after
its event. The loop therefore keeps its own queue of sockets that have more to do.

Why not uvloop: libuv stops watching a socket at its first error event. If data and a reset arrive
together, they are one event; the data is read, the reset is never seen, and the other peer waits
for ever.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import os
import select
import selectors
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any, Final, TypeVar, TypeVarTuple, cast
from weakref import WeakValueDictionary

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

#: Does a bounded amount of the work at hand; returns whether there may be more now.
DirectCallback = Callable[[], bool]

#: Events taken from the kernel at a time.
_MAX_EVENTS: Final = 256

#: Sockets that asyncio gets in a turn. Each may wake a task, for some 50 microseconds.
MAX_DUE: Final = 16

_READABLE: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_WRITABLE: Final = select.EPOLLOUT | select.EPOLLET

#: Events after which a socket gives no further event, though one read may not see everything that
#: is there.
_ENDING: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


#: Seconds that one peer's callbacks may take in a turn while others wait. A callback is not cut
#: short, so a turn can be longer by one callback. The share is long enough for sixteen chunks of
#: bulk data, and short enough that ten busy peers delay a request by at most a hundredth of a
#: second.
SHARE_S: Final = 1e-3


class Share:
    """One peer's time left in the current turn, and its waiting sockets.

    Attributes:
        turn: The number of the turn that ``left_s`` refers to.
        left_s: Seconds left in that turn; negative if the last callback took longer.
        waiting: The waiting sockets' descriptors, in the order of their next call. The value tells
            whether the kernel has reported the socket's end. Such a socket is called once more
            after its callback found nothing, so that the callback sees the end.
    """

    __slots__ = ("__weakref__", "left_s", "turn", "waiting")

    def __init__(self) -> None:
        self.turn = -1
        self.left_s = 0.0
        self.waiting: OrderedDict[int, bool] = OrderedDict()


class _DirectSelector(selectors.EpollSelector):
    """An epoll selector with direct callbacks beside asyncio's file objects.

    Attributes:
        interrupted: Set when asyncio has something to do, so that the poll returns to it.
        deferred: Times that a socket waited for another turn because its peer's share was used up.
        longest_turn_s: The longest turn since it was reset, in seconds.
        on_error: Called with an exception that a direct callback raised.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        super().__init__()
        # A second descriptor of the same epoll instance, because the base class closes its own.
        self._epoll = select.epoll.fromfd(os.dup(self.fileno()))
        self._readers: dict[int, DirectCallback] = {}
        self._writers: dict[int, DirectCallback] = {}
        self._direct: dict[int, tuple[DirectCallback, Share]] = {}
        self._waiting: dict[Share, None] = {}
        # asyncio's sockets that are ready, in the order in which it gets them, and their events.
        self._due: dict[int, int] = {}
        self._turn = 0
        self.deferred = 0
        self.longest_turn_s = 0.0
        self._polled = perf_counter()
        self.interrupted = False
        self.on_error = on_error

    def close(self) -> None:
        """Close both descriptors."""
        self._epoll.close()
        super().close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Call direct callbacks of ready sockets until asyncio has something due."""
        # Rounded up to a millisecond, as epoll does. Rounded down, the loop would spin before a
        # timer.
        seconds = -1.0 if timeout is None else math.ceil(max(timeout, 0.0) * 1e3) * 1e-3
        poll, direct, waiting, clock = self._epoll.poll, self._direct.get, self._waiting, perf_counter
        deadline = math.inf if timeout is None else clock() + timeout
        self.interrupted = False
        while True:
            self._turn = turn = self._turn + 1
            # With what asyncio did since the last poll.
            self.longest_turn_s = max(self.longest_turn_s, clock() - self._polled)
            ready = poll(0.0 if waiting or self._due else seconds, _MAX_EVENTS)
            self._polled = started = clock()
            for fd, events in ready:
                entry = direct(fd)
                if entry is None:
                    self._due[fd] = self._due.get(fd, 0) | events
                    continue
                callback, share = entry
                if share.waiting:  # behind the peer's sockets that wait already
                    share.waiting[fd] = bool(events & _ENDING) or share.waiting.get(fd, False)
                    continue
                if share.turn != turn:
                    share.turn, share.left_s = turn, SHARE_S
                elif share.left_s <= 0.0:
                    self.deferred += 1
                    self._wait(fd, share, ending=bool(events & _ENDING))
                    continue
                try:
                    again = callback()
                except Exception as error:
                    self.on_error(error)
                    again = False
                now = clock()
                share.left_s -= now - started
                started = now
                if again or events & _ENDING:
                    self._wait(fd, share, ending=again and bool(events & _ENDING))
            if waiting:
                self._serve_waiting(started)
            due = self._take_due()
            if due or self.interrupted:
                return due
            if timeout is not None:
                if (left_s := deadline - clock()) <= 0.0:
                    return due
                seconds = math.ceil(left_s * 1e3) * 1e-3

    def _wait(self, fd: int, share: Share, *, ending: bool) -> None:
        """Queue the socket for the next turn, if it still has a callback."""
        if fd in self._direct:
            share.waiting[fd] = ending or share.waiting.get(fd, False)
            self._waiting[share] = None

    def _serve_waiting(self, started: float) -> None:
        """Call the callback of each waiting socket once, while its peer's share lasts."""
        for share in tuple(self._waiting):
            if share.turn != self._turn:
                share.turn, share.left_s = self._turn, SHARE_S
            for _ in range(len(share.waiting)):
                if share.left_s <= 0.0:
                    self.deferred += len(share.waiting)
                    break
                fd, ending = share.waiting.popitem(last=False)
                entry = self._direct.get(fd)
                if entry is None or entry[1] is not share:
                    continue
                try:
                    again = entry[0]()
                except Exception as error:
                    self.on_error(error)
                    again = False
                now = perf_counter()
                share.left_s -= now - started
                started = now
                if again or ending:
                    self._wait(fd, share, ending=again and ending)
            if not share.waiting:
                del self._waiting[share]

    def call_again(self, fd: int) -> None:
        """Call the callback of a socket in the next turn, without an event of the kernel."""
        entry = self._direct.get(fd)
        if entry is not None:
            self._wait(fd, entry[1], ending=False)

    def _take_due(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Take asyncio's next ready sockets; the rest waits for the next turn."""
        due: list[tuple[selectors.SelectorKey, int]] = []
        while self._due and len(due) < MAX_DUE:
            fd = next(iter(self._due))
            events = self._due.pop(fd)
            try:
                key = self.get_key(fd)
            except KeyError:  # a direct callback in this turn has closed it
                continue
            ready = (selectors.EVENT_READ if events & ~select.EPOLLOUT else 0) | (
                selectors.EVENT_WRITE if events & ~select.EPOLLIN else 0
            )
            if ready & key.events:
                due.append((key, ready & key.events))
        return due

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Stop watching one of asyncio's sockets, also if it is ready and waits."""
        key = super().unregister(fileobj)
        self._due.pop(key.fd, None)
        return key

    def set_direct(
        self, callbacks: dict[int, DirectCallback], fd: int, callback: DirectCallback | None, share: Share
    ) -> None:
        """Set or remove one callback of a socket, and update its polling."""
        before = self._mask(fd)
        if before:
            share = self._direct[fd][1]
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
            self._direct[fd] = cast("DirectCallback", reader or writer), share  # the mask is not 0
        else:
            self._direct[fd] = _both(writer, reader), share
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
        return self._direct.deferred

    def take_lag(self) -> float:
        """Return the seconds of the longest turn since the last call."""
        longest_s, self._direct.longest_turn_s = self._direct.longest_turn_s, 0.0
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
