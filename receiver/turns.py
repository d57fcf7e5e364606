"""Fair turns: which direct callback is called when.

Owns the poll of the kernel, the peers' shares of a turn, and the queue of sockets that have more to
do. The event loop (:mod:`receiver.event_loop`) owns the registration of sockets, and asyncio.

One poll and the callbacks that follow it are a turn. A callback does a bounded amount of work and
returns whether it has more. The rest waits for the next turn, behind everything else that is ready.
Each peer has a :class:`Share` of a turn. When the share is used up, the peer's other sockets wait
too. So a peer slows down only itself, however many connections it opens and whatever it sends.

The turns in ``receiver/native/_speedups.c`` do the same. They call up for a socket that waits, for
a peer whose sockets wait, for a socket of asyncio and for an exception. Without them,
:meth:`Turns.serve_in_python` does it all.
"""

from __future__ import annotations

import math
import select
from collections import OrderedDict
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Final

from receiver.wire.walk import compiled

#: Does a bounded amount of the work at hand; returns whether there may be more now.
DirectCallback = Callable[[], bool]

#: Events taken from the kernel at a time.
_MAX_EVENTS: Final = 256

#: Events after which a socket gives no further event, though one read may not see everything that
#: is there.
_ENDING: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR

#: Seconds that one peer's callbacks may take in a turn while others wait. A callback is not cut
#: short, so a turn can be longer by one callback. The share is long enough for sixteen chunks of
#: bulk data, and short enough that ten busy peers delay a request by at most a hundredth of a
#: second.
SHARE_S: Final = 1e-3


class PythonShareTime:
    """What the compiled turns and this module share of a share."""

    __slots__ = ("left_s", "turn", "waiting")

    left_s: float
    turn: int
    waiting: OrderedDict[int, bool]


class PythonTurnState:
    """What the compiled turns and this module share of the turns."""

    callbacks: dict[int, tuple[DirectCallback, Share]]
    deferred: int
    due: dict[int, int]
    interrupted: bool
    longest_turn_s: float
    _clock: Callable[[], float] | None
    _epoll_fd: int
    _polled: float
    _turn: int
    _waiting: dict[Share, None]

    def __init__(self) -> None:
        self.callbacks = {}
        self.deferred = 0
        self.due = {}
        self.interrupted = False
        self.longest_turn_s = 0.0
        self._clock = None
        self._turn = 0
        self._waiting = {}


if TYPE_CHECKING or compiled is None:
    ShareTime = PythonShareTime
    TurnState = PythonTurnState
else:
    ShareTime = compiled.ShareTime
    TurnState = compiled.TurnState


class Share(ShareTime):
    """One peer's time left in the current turn, and its waiting sockets.

    Attributes:
        turn: The number of the turn that ``left_s`` refers to.
        left_s: Seconds left in that turn; negative if the last callback took longer.
        waiting: The waiting sockets' descriptors, in the order of their next call. The value tells
            whether the kernel has reported the socket's end. Such a socket is called once more
            after its callback found nothing, so that the callback sees the end.
    """

    __slots__ = ("__weakref__",)

    def __init__(self) -> None:
        self.turn = -1
        self.left_s = 0.0
        self.waiting = OrderedDict()


class Turns(TurnState):
    """Gives turns to direct callbacks.

    Args:
        epoll: Knows the sockets.
        on_error: Called with an exception that a direct callback raised.

    Attributes:
        callbacks: By descriptor, the direct callback of a socket and its peer's share.
        due: asyncio's sockets that are ready, in the order in which it gets them, and their events.
        interrupted: Set when asyncio has something to do, so that :meth:`serve` returns to it.
        deferred: Times that a socket waited for another turn because its peer's share was used up.
        longest_turn_s: The longest turn since it was reset, in seconds.
        on_error: As given.
    """

    def __init__(self, epoll: select.epoll, on_error: Callable[[Exception], None]) -> None:
        super().__init__()
        self._epoll = epoll
        self._epoll_fd = epoll.fileno()
        self._polled = perf_counter()
        self.on_error = on_error

    def close(self) -> None:
        """Close the epoll object."""
        self._epoll.close()
        self._epoll_fd = -1  # another file will have the number

    def serve_in_python(self, timeout: float | None) -> None:
        """Call direct callbacks of ready sockets until asyncio has something due.

        Args:
            timeout: Seconds after which it returns in any case; None: it does not.
        """
        clock = self._clock or perf_counter
        self.interrupted = False
        # Rounded up to a millisecond, as epoll does. Rounded down, the loop would spin before a
        # timer.
        wait_s = -1.0 if timeout is None else math.ceil(max(timeout, 0.0) * 1e3) * 1e-3
        deadline = math.inf if timeout is None else clock() + timeout
        while True:
            self._take_turn(wait_s)
            if self.due or self.interrupted:
                return
            if timeout is not None:
                if (left_s := deadline - clock()) <= 0.0:
                    return
                wait_s = math.ceil(left_s * 1e3) * 1e-3

    if TYPE_CHECKING or compiled is None:
        serve = serve_in_python

    def _take_turn(self, seconds: float) -> None:
        clock, callback_of, waiting = self._clock or perf_counter, self.callbacks.get, self._waiting
        self._turn = turn = self._turn + 1
        # With what asyncio did since the last poll.
        self.longest_turn_s = max(self.longest_turn_s, clock() - self._polled)
        ready = self._epoll.poll(0.0 if waiting or self.due else seconds, _MAX_EVENTS)
        self._polled = started = clock()
        for fd, events in ready:
            entry = callback_of(fd)
            if entry is None:
                self._note_due(fd, events)
                continue
            callback, share = entry
            ending = bool(events & _ENDING)
            if share.waiting:  # behind the peer's sockets that wait already
                self.wait(fd, share, ending)
                continue
            if share.turn != turn:
                share.turn, share.left_s = turn, SHARE_S
            elif share.left_s <= 0.0:
                self.deferred += 1
                self.wait(fd, share, ending)
                continue
            started = self._call(callback, fd, share, ending, started)
        if waiting:
            self._serve_waiting(started)

    def _note_due(self, fd: int, events: int) -> None:
        self.due[fd] = self.due.get(fd, 0) | events

    def wait(self, fd: int, share: Share, ending: bool) -> None:  # noqa: FBT001 -- C calls it too
        """Queue the socket for the next turn, if it still has a callback.

        Args:
            fd: The socket's descriptor.
            share: Its peer's share.
            ending: Whether the kernel has reported its end.
        """
        if fd in self.callbacks:
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
                entry = self.callbacks.get(fd)
                if entry is None or entry[1] is not share:
                    continue
                started = self._call(entry[0], fd, share, ending, started)
            if not share.waiting:
                del self._waiting[share]

    def _call(self, callback: DirectCallback, fd: int, share: Share, ending: bool, started: float) -> float:  # noqa: FBT001 -- once for each event
        """Call a callback, charge its share and queue the rest; return the time after."""
        try:
            again = callback()
        except Exception as error:
            self.on_error(error)
            again = False
        now = (self._clock or perf_counter)()
        share.left_s -= now - started
        if again or ending:
            self.wait(fd, share, again and ending)
        return now
