"""Limits of each peer: connections, requests, CPU time and bytes by source address and principal.

Owns the counters and the decision; the caller answers, closes or waits.

Open connections are counted exactly. A limit over time is a bucket that drains at the limit's rate,
stored as the time at which it will be empty, which needs no update while it drains. A bucket holds
``burst`` seconds of its rate. A full bucket admits nothing. Costs that are known only afterwards
may overfill it by up to ``debt`` seconds:

====================  ==========  ======  ======  ==================================================
limit                 unit of     burst   debt    filled by
                      setting
====================  ==========  ======  ======  ==================================================
new_connections       per second  10 s            a connection; one closed for a flood counts as 20
new_instances         per minute  60 s            a client instance that was unknown
telemetry_requests    per second  10 s            a telemetry request
core_time             per second  4 s     60 s    CPU time of the peer's requests and pushes
rejected_bytes        per minute  60 s    60 s    a push that was refused for its content
accepted_bytes        per minute  60 s    60 s    an accepted push, in bytes that plugins get
====================  ==========  ======  ======  ==================================================

Connections and requests have a burst of ten seconds because all clients of a host return at once
when a broker restarts, and a throttled client waits for its whole push interval. A refused request
does not count, because clients retry, and many of them behind one address would lock each other
out.

An IPv6 source is counted twice: as its network of 64 bits, and as its site, the network of 48 bits.
A site may use ``ipv6_site_factor`` times as much. Otherwise a site could act as 65,536 sources.

Buckets are kept for a bounded number of peers of each kind; the least recently seen is forgotten
first. A forgotten bucket is empty. The number of open connections is never forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from receiver.plugin.sources import site_of, source_of
from receiver.settings.limits import LimitsSettings, PeerLimitsSettings
from receiver.telemetry.identity import SHARED_PRINCIPALS, ClientIdentity

__all__ = ["Exceeded", "LimitName", "Limits", "Scope"]

#: The kinds of peers.
Scope = Literal["source_address", "source_site", "principal"]


class LimitName(StrEnum):
    """The limits of a peer."""

    CONNECTIONS = "connections"
    NEW_CONNECTIONS = "new_connections"
    NEW_INSTANCES = "new_instances"
    TELEMETRY_REQUESTS = "telemetry_requests"
    CORE_TIME = "core_time"
    REJECTED_BYTES = "rejected_bytes"
    ACCEPTED_BYTES = "accepted_bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceeded:
    """A limit that a peer is over.

    ``retry_after_s`` is the time until one more is admitted; 0 for open connections, because only
    the end of another connection makes room.
    """

    limit: LimitName
    scope: Scope
    peer: str  # the IPv4 address, the IPv6 network of 64 or of 48 bits, or the principal
    allowed: int  # the configured limit; for a site, times ``limits.ipv6_site_factor``
    retry_after_s: float

    @property
    def setting(self) -> str:
        """The key in the settings, such as ``limits.principal.core_ms_per_second``."""
        scope = "source_address" if self.scope == "source_site" else self.scope
        return f"limits.{scope}.{_SETTINGS[self.limit]}"

    def __str__(self) -> str:
        times = " times limits.ipv6_site_factor" if self.scope == "source_site" else ""
        return f"{self.peer} is over {self.setting}{times} ({self.allowed})"


class Limits:
    """Counts what each peer uses, and decides whether it is over a limit. Not thread-safe.

    Every call takes a few microseconds, however many peers there are. The principals
    ``User:ANONYMOUS`` and ``User:unknown`` have no limits, because many clients share them.

    In all methods, ``now`` is monotonic seconds.
    """

    def __init__(self, settings: LimitsSettings) -> None:
        self._sources = _Peers("source_address")
        self._sites = _Peers("source_site")
        self._principals = _Peers("principal")
        self._principal_of: dict[str, str] = {}
        self.replace_settings(settings)

    @property
    def peers(self) -> Mapping[Scope, int]:
        """How many peers of each kind have buckets."""
        return {peers.scope: len(peers) for peers in (self._sources, self._sites, self._principals)}

    def replace_settings(self, settings: LimitsSettings) -> None:
        """Replace the limits; the counters stay."""
        self._sources.replace(settings.source_address, settings.max_peers)
        self._sites.replace(settings.source_address, settings.max_peers, settings.ipv6_site_factor)
        self._principals.replace(settings.principal, settings.max_peers)

    def connection_opened(self, source_address: str, now: float) -> Exceeded | None:
        """Count a new connection for its source address, unless the source is over a limit.

        When it is counted, :meth:`connection_closed` must be called once.
        """
        source = source_of(source_address)
        exceeded = self._sources.open(source, now)
        if exceeded is None and ":" in source:
            exceeded = self._sites.open(site_of(source_address), now)
            if exceeded is not None:
                self._sources.close(source)
        return exceeded

    def authenticated(self, connection: ClientIdentity, now: float) -> Exceeded | None:
        """Count a connection for its latest principal, unless the principal is over a limit."""
        principal = _principal(connection)
        counted = self._principal_of.get(connection.id)
        if principal == counted:
            return None
        if counted is not None:
            self._principals.close(counted)
            del self._principal_of[connection.id]
        if principal is None:
            return None
        exceeded = self._principals.open(principal, now)
        if exceeded is None:
            self._principal_of[connection.id] = principal
        return exceeded

    def connection_closed(self, connection: ClientIdentity) -> None:
        """Remove a counted connection from its source address and its principal."""
        for peers, peer in self._addresses(connection):
            peers.close(peer)
        principal = self._principal_of.pop(connection.id, None)
        if principal is not None:
            self._principals.close(principal)

    def telemetry_request(self, connection: ClientIdentity, now: float) -> Exceeded | None:
        """Count a telemetry request, unless the peer is over its requests or its CPU time.

        When it may be handled, :meth:`spent` should be called afterwards.
        """
        exceeded = self.take(LimitName.TELEMETRY_REQUESTS, connection, now)
        return exceeded or self.overspent(connection, now)

    def flooded(self, connection: ClientIdentity, now: float) -> None:
        """Count a connection that is closed for a flood as many, because its client reconnects."""
        for peers, peer in self._addresses(connection):
            peers.fill(LimitName.NEW_CONNECTIONS, peer, _FLOOD_UNITS, now)

    def spent(self, connection: ClientIdentity, seconds: float, now: float) -> None:
        """Count CPU seconds of a peer's requests, or of its pushes in plugins.

        CPU time, because elapsed time would charge a peer for the work of other processes.
        """
        self.use(LimitName.CORE_TIME, connection, seconds * 1000, now)

    def overspent(self, connection: ClientIdentity, now: float) -> Exceeded | None:
        """Return the limit if the peer is over its CPU time."""
        return self.over(LimitName.CORE_TIME, connection, now)

    def take(self, limit: LimitName, connection: ClientIdentity, now: float) -> Exceeded | None:
        """Count one unit for all peers of a connection, or for none if one of them is over."""
        exceeded = self.over(limit, connection, now)
        if exceeded is None:
            self.use(limit, connection, 1, now)
        return exceeded

    def over(self, limit: LimitName, connection: ClientIdentity, now: float) -> Exceeded | None:
        """Return the limit over time if a peer of the connection is over it."""
        for peers, peer in self._peers_of(connection):
            exceeded = peers.full(limit, peer, now)
            if exceeded is not None:
                return exceeded
        return None

    def use(self, limit: LimitName, connection: ClientIdentity, units: float, now: float) -> None:
        """Count what all peers of the connection used, even beyond their limit over time."""
        for peers, peer in self._peers_of(connection):
            peers.fill(limit, peer, units, now)

    def _peers_of(self, connection: ClientIdentity) -> Iterator[tuple[_Peers, str]]:
        yield from self._addresses(connection)
        principal = _principal(connection)
        if principal is not None:
            yield self._principals, principal

    def _addresses(self, connection: ClientIdentity) -> Iterator[tuple[_Peers, str]]:
        source = source_of(connection.source_address)
        yield self._sources, source
        if ":" in source:
            yield self._sites, site_of(connection.source_address)


class _Bucket(NamedTuple):
    """A limit over time; its setting is a number per ``period_s``."""

    limit: LimitName
    setting: str
    period_s: float
    burst_s: float
    debt_s: float = 0.0


_BUCKETS: Final = (
    _Bucket(LimitName.NEW_CONNECTIONS, "new_connections_per_second", 1.0, 10.0),
    _Bucket(LimitName.NEW_INSTANCES, "new_instances_per_minute", 60.0, 60.0),
    _Bucket(LimitName.TELEMETRY_REQUESTS, "telemetry_requests_per_second", 1.0, 10.0),
    _Bucket(LimitName.CORE_TIME, "core_ms_per_second", 1.0, 4.0, 60.0),
    _Bucket(LimitName.REJECTED_BYTES, "rejected_bytes_per_minute", 60.0, 60.0, 60.0),
    _Bucket(LimitName.ACCEPTED_BYTES, "accepted_bytes_per_minute", 60.0, 60.0, 60.0),
)
_SETTINGS: Final = {bucket.limit: bucket.setting for bucket in _BUCKETS} | {
    LimitName.CONNECTIONS: "connections"
}

# A connection that is closed for a flood counts as so many new connections.
_FLOOD_UNITS: Final = 20

# Times are floats: a bucket may be full this much early.
_TOLERANCE_S: Final = 1e-9
_NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class _Rate:
    """A configured limit over time."""

    bucket: _Bucket
    allowed: int
    unit_s: float  # for which one unit fills the bucket


class _Peers:
    """Counters of all peers of one kind."""

    _max_connections: int | None
    _max_peers: int
    _rates: dict[LimitName, _Rate]

    def __init__(self, scope: Scope) -> None:
        self.scope: Final = scope
        self._connections: dict[str, int] = {}
        self._empty_at: OrderedDict[str, dict[LimitName, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._empty_at)

    def replace(self, settings: PeerLimitsSettings, max_peers: int, factor: int = 1) -> None:
        self._max_connections = None if settings.connections is None else settings.connections * factor
        self._max_peers = max_peers
        self._rates = {}
        for bucket in _BUCKETS:
            setting = getattr(settings, bucket.setting)
            if setting is not None:
                allowed = setting * factor
                self._rates[bucket.limit] = _Rate(bucket, allowed, bucket.period_s / allowed)
        while len(self._empty_at) > max_peers:
            self._empty_at.popitem(last=False)

    def open(self, peer: str, now: float) -> Exceeded | None:
        exceeded = self.full(LimitName.NEW_CONNECTIONS, peer, now)
        if exceeded is not None:
            return exceeded
        self.fill(LimitName.NEW_CONNECTIONS, peer, 1, now)
        count = self._connections.get(peer, 0)
        if self._max_connections is not None and count >= self._max_connections:
            return Exceeded(
                limit=LimitName.CONNECTIONS,
                scope=self.scope,
                peer=peer,
                allowed=self._max_connections,
                retry_after_s=0.0,
            )
        self._connections[peer] = count + 1
        return None

    def close(self, peer: str) -> None:
        self._connections[peer] -= 1
        if not self._connections[peer]:
            del self._connections[peer]

    def full(self, limit: LimitName, peer: str, now: float) -> Exceeded | None:
        rate = self._rates.get(limit)
        empty_at = self._empty_at.get(peer)
        if rate is None or empty_at is None:
            return None
        self._empty_at.move_to_end(peer)
        room_at = empty_at.get(limit, _NEVER) + rate.unit_s - rate.bucket.burst_s
        if room_at - now <= _TOLERANCE_S:
            return None
        return Exceeded(
            limit=limit, scope=self.scope, peer=peer, allowed=rate.allowed, retry_after_s=room_at - now
        )

    def fill(self, limit: LimitName, peer: str, units: float, now: float) -> None:
        rate = self._rates.get(limit)
        if rate is None:
            return
        empty_at = self._empty_at.get(peer)
        if empty_at is None:
            empty_at = self._empty_at[peer] = {}
            if len(self._empty_at) > self._max_peers:
                self._empty_at.popitem(last=False)
        else:
            self._empty_at.move_to_end(peer)
        filled = max(empty_at.get(limit, _NEVER), now) + units * rate.unit_s
        empty_at[limit] = min(filled, now + rate.bucket.burst_s + rate.bucket.debt_s)


def _principal(connection: ClientIdentity) -> str | None:
    principal = connection.principal
    return None if principal in SHARED_PRINCIPALS else principal
