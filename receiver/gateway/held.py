"""Requests that the receiver keeps in memory: how much they may take together, and for how long.

Owns the sum over all connections, and one timer for the request that has been coming for the longest. There
is no timer while every request is whole: each of the event loop's waits would pay for it. Closing a
connection is the relay's.

Where the sum is over its bound, the request goes that has been coming for the longest: those of clients of
good will are whole within moments, so it is not theirs that a flood of unfinished ones pushes out.
"""

from __future__ import annotations

from asyncio import TimerHandle
from dataclasses import dataclass
from typing import Final, Protocol

from receiver.gateway.event_loop import running_loop
from receiver.settings.limits import LimitsSettings

__all__ = ["HeldRequests", "Holder"]

#: The event loop may call a timer so much before its time, in seconds: the resolution of its clock.
_EARLY_S: Final = 1e-3


class Holder(Protocol):
    """A connection that keeps requests. It must call :meth:`HeldRequests.forget` when it is closed."""

    def close_for_held_bytes(self) -> None:
        """Close: all connections together keep too much."""

    def close_for_request_timeout(self) -> None:
        """Close: a request takes too long."""


@dataclass(frozen=True, slots=True)
class _Incomplete:
    """A request that is not whole: its number on its connection, and the loop's time when it has to be."""

    number: int
    deadline: float


class HeldRequests:
    """The memory and the deadlines of the requests at hand, of all connections of the receiver.

    Args:
        settings: The bounds, until :meth:`replace_settings`.

    Attributes:
        total: Bytes that all requests keep.
    """

    def __init__(self, settings: LimitsSettings) -> None:
        self._bytes: dict[Holder, int] = {}
        # In the order in which they have begun, which is that of their deadlines.
        self._incomplete: dict[Holder, _Incomplete] = {}
        self._timer: TimerHandle | None = None
        self.total = 0
        self.replace_settings(settings)

    def replace_settings(self, settings: LimitsSettings) -> None:
        """Work with other bounds from now on; a request that has begun keeps its deadline."""
        self._max_bytes = settings.max_held_bytes
        self._timeout_s = settings.request_timeout_ms / 1000

    def note(self, holder: Holder, held_bytes: int, incomplete: int | None) -> None:
        """Take note of what a connection keeps now; it, or another one, may be closed for it.

        Args:
            holder: The connection.
            held_bytes: Memory that its requests keep.
            incomplete: The number of its request that is not whole, None where there is none. Another
                request has another number.
        """
        self.total += held_bytes - self._bytes.get(holder, 0)
        if held_bytes:
            self._bytes[holder] = held_bytes
        else:
            self._bytes.pop(holder, None)
        if incomplete is None:
            self._complete(holder)
        else:
            self._begin(holder, incomplete)
        while self.total > self._max_bytes and holder in self._bytes:
            next(iter(self._incomplete), holder).close_for_held_bytes()

    def forget(self, holder: Holder) -> None:
        """Count a connection that is closed no longer."""
        self.total -= self._bytes.pop(holder, 0)
        self._complete(holder)

    def _begin(self, holder: Holder, number: int) -> None:
        known = self._incomplete.get(holder)
        if known is not None:
            if known.number == number:
                return
            del self._incomplete[holder]  # so that the new one comes last
        deadline = running_loop().time() + self._timeout_s
        self._incomplete[holder] = _Incomplete(number, deadline)
        if self._timer is None:
            self._timer = running_loop().call_at(deadline, self._close_expired)

    def _complete(self, holder: Holder) -> None:
        self._incomplete.pop(holder, None)
        if self._timer is not None and not self._incomplete:
            self._timer.cancel()
            self._timer = None

    def _close_expired(self) -> None:
        loop, self._timer = running_loop(), None
        for holder, request in list(self._incomplete.items()):
            if request.deadline > loop.time() + _EARLY_S:
                self._timer = loop.call_at(request.deadline, self._close_expired)
                return
            holder.close_for_request_timeout()
