"""Bounds the memory of waiting requests, and the time that one may take.

Owns the total of what waits: incomplete requests, requests that wait for the broker, and bytes for
a slow reader together with the kernel buffers that are full because of it. Owns one timer, for the
oldest incomplete request. No timer runs while every request is complete, because each wait of the
event loop would pay for it.

At the bound, the source that holds most loses the connection that has held memory for the longest.
The requests of well-behaved clients are complete within moments, so a flood evicts its own
connections. No source may hold more than its share of the total.

Bounds are those of all relays together, which see each other's totals. While one is
exceeded, the relays that hold more than an equal part of it close connections. So an attack on one
relay closes no connection of another.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Protocol

from receiver.event_loop import running_loop
from receiver.settings.limits import SCARCE_BUFFER_BYTES, SOURCE_SHARE_DIVISOR, LimitsSettings
from receiver.supervisor.shared_counts import ProcessCounts
from receiver.telemetry.identity import ClientIdentity

#: The event loop may call a timer this early, in seconds: the resolution of its clock.
_TIMER_RESOLUTION_S: Final = 1e-3

#: Buffers of the system that a source's share has room for, if no memory is scarce.
_BUFFERS_IN_A_SHARE: Final = 8

#: The key of what all sources hold. No address is empty.
_ALL: Final = ""

#: Seconds between two looks at what the other relays hold, while this one holds more than its part.
_LOOK_S: Final = 0.1


class Holder(Protocol):
    """A connection that holds memory, and that a bound may close."""

    @property
    def identity(self) -> ClientIdentity:
        """Who the client is."""

    def close_for_held_bytes(self) -> None:
        """Close because all connections together hold too many bytes."""

    def close_for_request_timeout(self) -> None:
        """Close because a request took too long to arrive."""


@dataclass(frozen=True, slots=True)
class _Incomplete:
    """An incomplete request's number on its connection, and its deadline."""

    number: int
    deadline: float


class _Source:
    """The memory of one source, and its connections that hold it, oldest first."""

    __slots__ = ("connections", "held_bytes", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.held_bytes = 0
        self.connections: OrderedDict[Holder, None] = OrderedDict()


class RequestMemory:
    """Memory held by all connections, and the deadlines of their incomplete requests.

    Args:
        settings: The limits of the whole receiver.
        shared: What each relay holds, in all and by source.
        relays: The number of relays.

    Attributes:
        total: Bytes that all connections of this process hold.
    """

    def __init__(self, settings: LimitsSettings, shared: ProcessCounts, relays: int = 1) -> None:
        self._shared = shared
        self._bytes: dict[Holder, int] = {}
        self._sources: dict[str, _Source] = {}
        # Ordered by start, and so by deadline.
        self._incomplete: dict[Holder, _Incomplete] = {}
        self._timer: TimerHandle | None = None
        self._look: TimerHandle | None = None
        self.total = 0
        self.replace_settings(settings, relays)

    def replace_settings(self, settings: LimitsSettings, relays: int = 1) -> None:
        """Use other bounds from now on; a request that has begun keeps its deadline."""
        self._relays = relays
        self._max_bytes = settings.max_held_bytes
        self._max_source_bytes = self._max_bytes // SOURCE_SHARE_DIVISOR
        self._timeout_s = settings.request_timeout_ms / 1000

    def is_scarce(self, source: str) -> bool:
        """Return whether more than half of the bound, or of a source's share, is in use.

        Args:
            source: The address block.
        """
        return (
            self._shared.total(_ALL) > self._max_bytes // 2
            or self._shared.total(source) > self._max_source_bytes // 2
        )

    def most_buffered(self, source: str) -> int:
        """Return what a buffer of the system may take for a source's slow reader."""
        if self.is_scarce(source):
            return 2 * SCARCE_BUFFER_BYTES  # as much as Linux makes of it
        return max(self._max_source_bytes // _BUFFERS_IN_A_SHARE, 2 * SCARCE_BUFFER_BYTES)

    def update(self, connection: Holder, held_bytes: int, incomplete: int | None) -> None:
        """Record the memory of a connection; close connections while a bound is exceeded.

        Args:
            connection: The connection. It must call :meth:`release` when it closes.
            held_bytes: Memory that it holds.
            incomplete: The number of its incomplete request, None if it has none. Each request on a
                connection has another number.
        """
        if not held_bytes:
            self.release(connection)
            return
        name = connection.identity.peers.block
        source = self._sources.get(name)
        if source is None:
            source = self._sources[name] = _Source(name)
        self._add(source, held_bytes - self._bytes.get(connection, 0))
        self._bytes[connection] = held_bytes
        source.connections.setdefault(connection)
        if incomplete is not None:
            self._begin(connection, incomplete, source)
        elif connection in self._incomplete:
            self._complete(connection)
        self._close_surplus(source)

    def release(self, connection: Holder) -> None:
        """Stop counting a connection that is closed or holds nothing."""
        held_bytes = self._bytes.pop(connection, None)
        if held_bytes is None:
            return
        source = self._sources[connection.identity.peers.block]
        self._add(source, -held_bytes)
        del source.connections[connection]
        if connection in self._incomplete:
            self._complete(connection)
        if not source.held_bytes:
            del self._sources[source.name]

    def _add(self, source: _Source, more: int) -> None:
        self.total += more
        source.held_bytes += more
        self._shared.add(_ALL, more)
        self._shared.add(source.name, more)

    def _close_surplus(self, *sources: _Source) -> None:
        """Close connections over a source's share, or over the bound."""
        # This relay closes connections only if it holds more than an equal part of a bound.
        relays, most, most_of_source = self._relays, self._max_bytes, self._max_source_bytes
        for source in sources:
            while (
                source.held_bytes * relays > most_of_source
                and self._shared.total(source.name) > most_of_source
            ):
                next(iter(source.connections)).close_for_held_bytes()
        while self.total * relays > most and self._shared.total(_ALL) > most:
            largest = max(self._sources.values(), key=lambda source: source.held_bytes)
            next(iter(largest.connections)).close_for_held_bytes()
        if relays == 1 or self._look is not None:
            return
        if self.total * relays > most or any(
            source.held_bytes * relays > most_of_source for source in sources
        ):
            # What the other relays hold may grow while nothing happens here.
            self._look = running_loop().call_later(_LOOK_S, self._look_again)

    def _look_again(self) -> None:
        self._look = None
        self._close_surplus(*self._sources.values())

    def _begin(self, connection: Holder, number: int, source: _Source) -> None:
        known = self._incomplete.get(connection)
        if known is not None:
            if known.number == number:
                return
            del self._incomplete[connection]  # so that the new request comes last
            source.connections.move_to_end(connection)
        deadline = running_loop().time() + self._timeout_s
        self._incomplete[connection] = _Incomplete(number, deadline)
        if self._timer is None:
            self._timer = running_loop().call_at(deadline, self._close_expired)

    def _complete(self, connection: Holder) -> None:
        del self._incomplete[connection]
        if self._timer is not None and not self._incomplete:
            self._timer.cancel()
            self._timer = None

    def _close_expired(self) -> None:
        loop, self._timer = running_loop(), None
        for connection, request in list(self._incomplete.items()):
            if request.deadline > loop.time() + _TIMER_RESOLUTION_S:
                self._timer = loop.call_at(request.deadline, self._close_expired)
                return
            connection.close_for_request_timeout()
