"""Limits on what one peer may take: how much each source address and each principal has used.

Owns the counts and the decision. It must not know what is done about it: whoever asks answers, closes or
waits.

Open connections are counted exactly. What is allowed for a time is a bucket that drains at the limit's rate,
kept as the one number that never has to be recalculated: the time at which it will be empty. A bucket has
room for ``burst`` seconds of its rate, and nobody is let in without room; what is known afterwards only makes
it overflow, by ``debt`` seconds at most:

====================  ===========  ======  ======  ===================================================
limit                 setting      burst   debt    what fills it
====================  ===========  ======  ======  ===================================================
new_connections       by second    10 s            a connection; one closed for a flood, as twenty
new_instances         by minute    60 s            a client instance that was not known
telemetry_requests    by second    10 s            a telemetry request
core_time             by second    4 s     60 s    the CPU time that a peer's requests and pushes took
rejected_bytes        by minute    60 s    60 s    a push that was refused for what it held
accepted_bytes        by minute    60 s    60 s    a push that was taken, in bytes as plugins get it
====================  ===========  ======  ======  ===================================================

Ten seconds of connections and requests, because all clients of a host come back at once when a broker was
restarted, and who is told to wait then waits for its whole push interval. What was refused does not count:
clients try again, and many of them behind one address would keep each other out for ever.

An IPv6 source is counted twice: as its network of 64 bits, and as its site, the network of 48 bits around
it, which may take ``ipv6_site_factor`` times as much. A site could pass for 65,536 sources otherwise.

Buckets are kept for so many peers of each kind, and the least recently seen goes first; a bucket that is
forgotten is empty. A peer that has open connections keeps its number of them whatever else is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from receiver.plugin.sources import site_of, source_of
from receiver.settings.limits import LimitsSettings, PeerLimitsSettings
from receiver.telemetry.connection import NOBODY, Connection

__all__ = ["Exceeded", "LimitName", "Limits", "Scope", "source_of"]

#: By what peers are told apart.
Scope = Literal["source_address", "source_site", "principal"]


class LimitName(StrEnum):
    """What is limited."""

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

    Attributes:
        limit: Which one.
        scope: Whether it is the source address', the IPv6 site's or the principal's.
        peer: The IPv4 address, the IPv6 network of 64 or of 48 bits, or the principal.
        allowed: The limit as configured, of a site times ``limits.ipv6_site_factor``.
        retry_after_s: In how many seconds there is room for one more; 0 for connections, where only another's
            end makes room.
    """

    limit: LimitName
    scope: Scope
    peer: str
    allowed: int
    retry_after_s: float

    @property
    def setting(self) -> str:
        """The key of the limit in the settings, such as ``limits.principal.core_ms_per_second``."""
        scope = "source_address" if self.scope == "source_site" else self.scope
        return f"limits.{scope}.{_SETTINGS[self.limit]}"

    def __str__(self) -> str:
        times = " times limits.ipv6_site_factor" if self.scope == "source_site" else ""
        return f"{self.peer} is over {self.setting}{times} ({self.allowed})"


class Limits:
    """What every peer has used of what it may.

    To be used by one thread at a time. Every call takes a few microseconds, however many peers there are.
    A principal that stands for nobody in particular (``User:ANONYMOUS``, ``User:unknown``) has no limits:
    those are many people.

    Args:
        settings: The limits, until :meth:`replace_settings`.
    """

    def __init__(self, settings: LimitsSettings) -> None:
        self._sources = _Peers("source_address")
        self._sites = _Peers("source_site")
        self._principals = _Peers("principal")
        self._principal_of: dict[Connection, str] = {}
        self.replace_settings(settings)

    @property
    def peers(self) -> Mapping[Scope, int]:
        """How many peers of each kind are remembered."""
        return {peers.scope: len(peers) for peers in (self._sources, self._sites, self._principals)}

    def replace_settings(self, settings: LimitsSettings) -> None:
        """Work with other limits from now on; what was counted stays counted."""
        self._sources.replace(settings.source_address, settings.max_peers)
        self._sites.replace(settings.source_address, settings.max_peers, settings.ipv6_site_factor)
        self._principals.replace(settings.principal, settings.max_peers)

    def connection_opened(self, source_address: str, now: float) -> Exceeded | None:
        """Count a connection for its source address, unless that has too many or opens them too fast.

        Args:
            source_address: The client's address as text.
            now: The time in seconds of a monotonic clock.

        Returns:
            None when it is counted as open; then :meth:`connection_closed` must be called once for it.
        """
        source = source_of(source_address)
        exceeded = self._sources.open(source, now)
        if exceeded is None and ":" in source:
            exceeded = self._sites.open(site_of(source_address), now)
            if exceeded is not None:
                self._sources.close(source)
        return exceeded

    def authenticated(self, connection: Connection, now: float) -> Exceeded | None:
        """Count a connection for its principal, unless that has too many or opens them too fast.

        A connection is counted for one principal only, the latest.

        Args:
            connection: A counted connection whose principal is known now.
            now: The time in seconds of a monotonic clock.

        Returns:
            None when it is counted, or has no principal that is limited.
        """
        principal = _principal(connection)
        counted = self._principal_of.get(connection)
        if principal == counted:
            return None
        if counted is not None:
            self._principals.close(counted)
            del self._principal_of[connection]
        if principal is None:
            return None
        exceeded = self._principals.open(principal, now)
        if exceeded is None:
            self._principal_of[connection] = principal
        return exceeded

    def connection_closed(self, connection: Connection) -> None:
        """Count a connection no longer, neither for its source address nor for its principal.

        Args:
            connection: One that :meth:`connection_opened` has counted.
        """
        source = source_of(connection.source_address)
        self._sources.close(source)
        if ":" in source:
            self._sites.close(site_of(connection.source_address))
        principal = self._principal_of.pop(connection, None)
        if principal is not None:
            self._principals.close(principal)

    def telemetry_request(self, connection: Connection, now: float) -> Exceeded | None:
        """Count a telemetry request, and say whether it is one too many or those before took too long.

        Args:
            connection: The connection that it came over.
            now: The time in seconds of a monotonic clock.

        Returns:
            None when it may be decided; :meth:`spent` should be called then.
        """
        exceeded = self._count(_TELEMETRY_REQUESTS, connection, now)
        return exceeded or self._full(_CORE_TIME, connection, now)

    def flooded(self, connection: Connection, now: float) -> None:
        """Count a connection that is closed for a flood as many: its client would just open another.

        Args:
            connection: The connection.
            now: The time in seconds of a monotonic clock.
        """
        source = source_of(connection.source_address)
        self._sources.fill(_NEW_CONNECTIONS, source, _FLOODING, now)
        if ":" in source:
            self._sites.fill(_NEW_CONNECTIONS, site_of(connection.source_address), _FLOODING, now)

    def spent(self, connection: Connection, seconds: float, now: float) -> None:
        """Count CPU time that was used for a peer: by its requests, or by its pushes in plugins.

        Args:
            connection: The connection that they came over.
            seconds: The CPU time in seconds. The time on the clock would charge a peer for what other
                processes did.
            now: The time in seconds of a monotonic clock.
        """
        self._fill(_CORE_TIME, connection, seconds * 1000, now)

    def overspent(self, connection: Connection, now: float) -> Exceeded | None:
        """Say whether a peer has used more CPU time than it may.

        Args:
            connection: One of its connections.
            now: The time in seconds of a monotonic clock.
        """
        return self._full(_CORE_TIME, connection, now)

    def new_instance(self, connection: Connection, now: float) -> Exceeded | None:
        """Count a client instance that was not known, unless it is one too many.

        Args:
            connection: The connection that named it.
            now: The time in seconds of a monotonic clock.

        Returns:
            None when it is counted; otherwise nothing is, for neither peer.
        """
        return self._count(_NEW_INSTANCES, connection, now)

    def rejected(self, connection: Connection, size: int, now: float) -> None:
        """Count a push that was refused for what it held.

        Args:
            connection: The connection that it came over.
            size: Its bytes, as they came or as far as they were inflated, whatever is more.
            now: The time in seconds of a monotonic clock.
        """
        self._fill(_REJECTED_BYTES, connection, size, now)

    def rejecting(self, connection: Connection, now: float) -> Exceeded | None:
        """Say whether so much of a peer's pushes was refused that no more are to be looked into.

        Args:
            connection: The connection that a push came over.
            now: The time in seconds of a monotonic clock.
        """
        return self._full(_REJECTED_BYTES, connection, now)

    def accepted(self, connection: Connection, size: int, now: float) -> None:
        """Count a push that was taken.

        Args:
            connection: The connection that it came over.
            size: Its bytes as plugins get it: inflated and labelled.
            now: The time in seconds of a monotonic clock.
        """
        self._fill(_ACCEPTED_BYTES, connection, size, now)

    def accepting(self, connection: Connection, now: float) -> Exceeded | None:
        """Say whether so much of a peer's pushes was taken that no more are to be taken now.

        Args:
            connection: The connection that a push came over.
            now: The time in seconds of a monotonic clock.
        """
        return self._full(_ACCEPTED_BYTES, connection, now)

    def _count(self, bucket: int, connection: Connection, now: float) -> Exceeded | None:
        exceeded = self._full(bucket, connection, now)
        if exceeded is None:
            self._fill(bucket, connection, 1, now)
        return exceeded

    def _full(self, bucket: int, connection: Connection, now: float) -> Exceeded | None:
        source = source_of(connection.source_address)
        exceeded = self._sources.full(bucket, source, now)
        if exceeded is None and ":" in source:
            exceeded = self._sites.full(bucket, site_of(connection.source_address), now)
        if exceeded is None and (principal := _principal(connection)) is not None:
            exceeded = self._principals.full(bucket, principal, now)
        return exceeded

    def _fill(self, bucket: int, connection: Connection, units: float, now: float) -> None:
        source = source_of(connection.source_address)
        self._sources.fill(bucket, source, units, now)
        if ":" in source:
            self._sites.fill(bucket, site_of(connection.source_address), units, now)
        if (principal := _principal(connection)) is not None:
            self._principals.fill(bucket, principal, units, now)


class _Bucket(NamedTuple):
    """What is limited over time; ``period_s`` is what its setting says it for."""

    limit: LimitName
    setting: str
    period_s: float
    burst_s: float
    debt_s: float = 0.0


# A peer's buckets, by index.
_BUCKETS: Final = (
    _Bucket(LimitName.NEW_CONNECTIONS, "new_connections_per_second", 1.0, 10.0),
    _Bucket(LimitName.NEW_INSTANCES, "new_instances_per_minute", 60.0, 60.0),
    _Bucket(LimitName.TELEMETRY_REQUESTS, "telemetry_requests_per_second", 1.0, 10.0),
    _Bucket(LimitName.CORE_TIME, "core_ms_per_second", 1.0, 4.0, 60.0),
    _Bucket(LimitName.REJECTED_BYTES, "rejected_bytes_per_minute", 60.0, 60.0, 60.0),
    _Bucket(LimitName.ACCEPTED_BYTES, "accepted_bytes_per_minute", 60.0, 60.0, 60.0),
)
(
    _NEW_CONNECTIONS,
    _NEW_INSTANCES,
    _TELEMETRY_REQUESTS,
    _CORE_TIME,
    _REJECTED_BYTES,
    _ACCEPTED_BYTES,
) = range(len(_BUCKETS))
_EMPTY: Final = (float("-inf"),) * len(_BUCKETS)
_SETTINGS: Final = {bucket.limit: bucket.setting for bucket in _BUCKETS} | {
    LimitName.CONNECTIONS: "connections"
}

#: As how many new connections one counts that is closed for a flood.
_FLOODING: Final = 20

# Times are floats: what has room in less than this has room.
_TOLERANCE_S: Final = 1e-9


@dataclass(frozen=True, slots=True)
class _Rate:
    """A limit over time, as configured, and for how many seconds one unit fills its bucket."""

    bucket: _Bucket
    allowed: int
    unit_s: float


class _Peers:
    """The peers of one kind."""

    __slots__ = ("_connections", "_empty_at", "_max_connections", "_max_peers", "_rates", "scope")

    _max_connections: int | None
    _max_peers: int
    _rates: tuple[_Rate | None, ...]

    def __init__(self, scope: Scope) -> None:
        self.scope: Final = scope
        self._connections: dict[str, int] = {}
        self._empty_at: OrderedDict[str, list[float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._empty_at)

    def replace(self, settings: PeerLimitsSettings, max_peers: int, factor: int = 1) -> None:
        self._max_connections = None if settings.connections is None else settings.connections * factor
        self._max_peers = max_peers
        self._rates = tuple(_rate(bucket, getattr(settings, bucket.setting), factor) for bucket in _BUCKETS)
        while len(self._empty_at) > max_peers:
            self._empty_at.popitem(last=False)

    def open(self, peer: str, now: float) -> Exceeded | None:
        exceeded = self.full(_NEW_CONNECTIONS, peer, now)
        if exceeded is not None:
            return exceeded
        self.fill(_NEW_CONNECTIONS, peer, 1, now)
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

    def full(self, bucket: int, peer: str, now: float) -> Exceeded | None:
        rate = self._rates[bucket]
        empty_at = self._empty_at.get(peer)
        if rate is None or empty_at is None:
            return None
        self._empty_at.move_to_end(peer)
        room_at = empty_at[bucket] + rate.unit_s - rate.bucket.burst_s
        if room_at - now <= _TOLERANCE_S:
            return None
        return Exceeded(
            limit=rate.bucket.limit,
            scope=self.scope,
            peer=peer,
            allowed=rate.allowed,
            retry_after_s=room_at - now,
        )

    def fill(self, bucket: int, peer: str, units: float, now: float) -> None:
        rate = self._rates[bucket]
        if rate is None:
            return
        empty_at = self._empty_at.get(peer)
        if empty_at is None:
            empty_at = self._empty_at[peer] = list(_EMPTY)
            if len(self._empty_at) > self._max_peers:
                self._empty_at.popitem(last=False)
        else:
            self._empty_at.move_to_end(peer)
        filled = max(empty_at[bucket], now) + units * rate.unit_s
        empty_at[bucket] = min(filled, now + rate.bucket.burst_s + rate.bucket.debt_s)


def _rate(bucket: _Bucket, setting: int | None, factor: int) -> _Rate | None:
    if setting is None:
        return None
    allowed = setting * factor
    return _Rate(bucket, allowed, bucket.period_s / allowed)


def _principal(connection: Connection) -> str | None:
    principal = connection.principal
    return None if principal in NOBODY else principal
