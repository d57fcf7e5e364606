"""What connections keep in memory: how much they may keep together, and for how long a request may come.

Owns the sum over all connections of what waits: requests that are not whole, requests that wait for the
broker, and bytes that a slow reader does not take, with the system's buffers that are full because of it.
Owns one timer, for the request that has been coming for the longest. There is no timer while every request
is whole, because each of the event loop's waits would pay for it. Closing a connection is the relay's.

At a bound, the source that keeps most loses the connection that has been keeping something for the longest.
The requests of other clients are whole within moments, so a flood pushes out its own. No source may have more
than its share of the sum.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Protocol

from receiver.gateway.event_loop import running_loop
from receiver.plugin.sources import site_of
from receiver.settings.limits import LimitsSettings
from receiver.telemetry.connection import Connection

__all__ = ["Holder", "RequestMemory"]

#: The event loop may call a timer so much before its time, in seconds: the resolution of its clock.
_EARLY_S: Final = 1e-3

#: One source may keep this part of what all may keep: a quarter.
_SHARE: Final = 4


class Holder(Protocol):
    """A connection that keeps something. It must call :meth:`RequestMemory.forget` when it is closed."""

    @property
    def connection(self) -> Connection:
        """Its entry in the registry."""

    def close_for_held_bytes(self) -> None:
        """Close: all connections together keep too much."""

    def close_for_request_timeout(self) -> None:
        """Close: a request takes too long."""


@dataclass(frozen=True, slots=True)
class _Incomplete:
    """A request that is not whole: its number on its connection, and the loop's time when it has to be."""

    number: int
    deadline: float


class _Source:
    """What the connections of one source keep, and which, in the order in which they began to."""

    __slots__ = ("held_bytes", "holders")

    def __init__(self) -> None:
        self.held_bytes = 0
        self.holders: OrderedDict[Holder, None] = OrderedDict()


class RequestMemory:
    """The memory of all connections of the receiver, and the deadlines of the requests at hand.

    Args:
        settings: The bounds, until :meth:`replace_settings`.

    Attributes:
        total: Bytes that all connections keep.
    """

    def __init__(self, settings: LimitsSettings) -> None:
        self._bytes: dict[Holder, int] = {}
        self._sources: dict[str, _Source] = {}
        # In the order in which they have begun, which is that of their deadlines.
        self._incomplete: dict[Holder, _Incomplete] = {}
        self._timer: TimerHandle | None = None
        self.total = 0
        self.replace_settings(settings)

    def replace_settings(self, settings: LimitsSettings) -> None:
        """Work with other bounds from now on; a request that has begun keeps its deadline."""
        self._max_bytes = settings.max_held_bytes
        self._max_source_bytes = settings.max_held_bytes // _SHARE
        self._timeout_s = settings.request_timeout_ms / 1000

    def note(self, holder: Holder, held_bytes: int, incomplete: int | None) -> None:
        """Take note of what a connection keeps now; it, or another one, may be closed for it.

        Args:
            holder: The connection.
            held_bytes: Memory that it keeps.
            incomplete: The number of its request that is not whole, None where there is none. Another
                request has another number.
        """
        if not held_bytes:
            self.forget(holder)
            return
        source = self._sources.setdefault(site_of(holder.connection.source_address), _Source())
        more = held_bytes - self._bytes.get(holder, 0)
        self.total += more
        source.held_bytes += more
        self._bytes[holder] = held_bytes
        source.holders.setdefault(holder)
        if incomplete is None:
            self._complete(holder)
        else:
            self._begin(holder, incomplete, source)
        while source.held_bytes > self._max_source_bytes and holder in self._bytes:
            next(iter(source.holders)).close_for_held_bytes()
        while self.total > self._max_bytes and holder in self._bytes:
            largest = max(self._sources.values(), key=lambda one: one.held_bytes)
            next(iter(largest.holders)).close_for_held_bytes()

    def forget(self, holder: Holder) -> None:
        """Count a connection no longer that is closed, or keeps nothing."""
        held_bytes = self._bytes.pop(holder, None)
        if held_bytes is None:
            return
        name = site_of(holder.connection.source_address)
        source = self._sources[name]
        self.total -= held_bytes
        source.held_bytes -= held_bytes
        del source.holders[holder]
        self._complete(holder)
        if not source.held_bytes:
            del self._sources[name]

    def _begin(self, holder: Holder, number: int, source: _Source) -> None:
        known = self._incomplete.get(holder)
        if known is not None:
            if known.number == number:
                return
            del self._incomplete[holder]  # so that the new one comes last
            source.holders.move_to_end(holder)
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
