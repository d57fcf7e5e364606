"""Limits of each peer: connections, requests, CPU time and bytes.

Owns the counters and the decision; the caller answers, closes or waits.

Open connections are counted exactly. A limit over time is a bucket that drains at the limit's rate,
stored as the time at which it will be empty, which needs no update while it drains. A bucket holds
``burst`` seconds of its rate. A full bucket admits nothing. Costs that are known only afterwards
may overfill it by up to ``debt`` seconds:

====================  ==========  ======  ======  ==================================================
limit                 unit of     burst   debt    filled by
                      setting
====================  ==========  ======  ======  ==================================================
new_connections       per second  10 s    10 s    a connection; one closed for a flood counts as 20
new_instances         per minute  60 s            a client instance that was unknown
telemetry_requests    per second  10 s            a telemetry request
core_time             per second  4 s     60 s    CPU time of the peer's requests and pushes
rejected_bytes        per minute  60 s    60 s    a push that was refused for its content
accepted_bytes        per minute  60 s    60 s    an accepted push, in bytes that plugins get
new_series            per hour    1 h             a series that is new to its client instance
====================  ==========  ======  ======  ==================================================

Connections and requests have a burst of ten seconds because all clients of a host return at once
when a broker restarts, and a throttled client waits for its whole push interval. A refused request
does not count, because clients retry, and many of them behind one address would lock each other
out.

An IPv6 source is counted twice: as its network of 64 bits, and as its block, the network of 48
bits. A block may use ``ipv6_block_factor`` times as much. Otherwise a block could act as 65,536
sources.

**Processes.** Each relay process and the core have limits of their own. A relay's are the first
line, and work without the core. It reports what it counted (:meth:`Limits.take_usage`): every tenth
of a second, and at once when a peer has used a part of a bucket (:attr:`Limits.urgent`). The core
adds the reports of all relays to its own buckets, which are those of the whole receiver. It answers
a report with the levels of the buckets in it (:meth:`Limits.add_usage`), and tells all relays the
levels that matter (:meth:`Limits.take_levels`). All processes read the same monotonic clock, so a
level is a time. A report has the time of each bucket's first use. The bucket drains from then on,
so a peer within its limits is not refused when a report comes late.

**Accuracy.** Let B be a bucket's size and K the level that a relay knows.

- *New connections* are counted before they are admitted. A relay counts a connection 2n times, n
  being the number of relays, until the core has counted it. So it admits at most (B - K) / 2n
  before the core answers, and all relays together half of what was left. The other half is for
  levels that are still on their way. Because a relay admits whole connections, the relays together
  can admit one each too much, which the bucket pays back. If a bucket holds 20 connections for each
  relay, the total is at most 10 % too high over ten seconds, however the load is spread. It can be
  too low only if one of many relays gets all connections of a peer and the core answers slowly.
- Without an answer of the core (:attr:`Limits.alone`), each relay grants the whole limit, because a
  fault of the core must not have clients refused.
- *CPU time* is known only afterwards. What relays use too much is what they work while a report
  and its answer are under way. The bucket pays that back, up to its debt.
- *Open connections* are counted by the core (:meth:`Limits.admitted`), which has those over the
  limit closed.
- All other limits are counted in the core only.

Buckets are kept for a bounded number of peers of each kind; the least recently seen is forgotten
first. A forgotten bucket is empty. The number of open connections is never forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from receiver.peers.peers import Scope, peers_of
from receiver.settings.limits import LimitsSettings, PeerLimitsSettings
from receiver.telemetry.identity import SHARED_PRINCIPALS, ClientIdentity

#: What a peer used: scope, peer, limit, units, monotonic seconds of the first use.
Usage: TypeAlias = tuple[str, str, str, float, float]

#: A bucket's level: scope, peer, limit, monotonic seconds at which it will be empty.
Level: TypeAlias = tuple[str, str, str, float]


class LimitName(StrEnum):
    """The limits of a peer."""

    CONNECTIONS = "connections"
    NEW_CONNECTIONS = "new_connections"
    NEW_INSTANCES = "new_instances"
    TELEMETRY_REQUESTS = "telemetry_requests"
    CORE_TIME = "core_time"
    REJECTED_BYTES = "rejected_bytes"
    ACCEPTED_BYTES = "accepted_bytes"
    NEW_SERIES = "new_series"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceeded:
    """A limit that a peer is over.

    ``retry_after_s`` is the time until one more is admitted; 0 for open connections, because only
    the end of another connection makes room.
    """

    limit: LimitName
    scope: Scope
    peer: str  # the IPv4 address, the IPv6 network of 64 or of 48 bits, the principal, or the instance
    allowed: int  # the configured limit; for an address block, times ``limits.ipv6_block_factor``
    retry_after_s: float

    @property
    def setting(self) -> str:
        """The key in the settings, such as ``limits.principal.core_ms_per_second``."""
        if self.scope == "client_instance":
            return "telemetry.series.new_per_client_per_hour"
        scope = "source_address" if self.scope == "address_block" else self.scope
        return f"limits.{scope}.{_SETTINGS[self.limit]}"

    def __str__(self) -> str:
        times = " times limits.ipv6_block_factor" if self.scope == "address_block" else ""
        return f"{self.peer} is over {self.setting}{times} ({self.allowed})"


class Limits:
    """Counts what each peer uses, and decides whether it is over a limit.

    Not thread-safe.

    Every call takes a few microseconds, however many peers there are. The principals
    ``User:ANONYMOUS`` and ``User:unknown`` have no limits, because many clients share them.

    In all methods, ``now`` is monotonic seconds.

    Args:
        relays: The number of relays if these are the limits of one, which reports what it
            counts. 0 for the limits of the whole receiver.

    Attributes:
        urgent: Whether what a peer used since the last report should be reported at once.
    """

    def __init__(self, settings: LimitsSettings, *, relays: int = 0) -> None:
        self._relays = relays
        self._usage: dict[_Key, tuple[float, float]] = {}  # units, and the time of the first use
        self._reported: dict[_Key, None] = {}
        self._changed: dict[_Key, None] = {}
        self.urgent = False
        self._alone = False
        note = self._used if relays else self._filled  # a core notes what relays must know
        self._sources = _Peers("source_address", note, notes_all=relays > 0)
        self._blocks = _Peers("address_block", note, notes_all=relays > 0)
        self._principals = _Peers("principal", note, notes_all=relays > 0)
        self._by_scope: dict[str, _Peers] = {
            peers.scope: peers for peers in (self._sources, self._blocks, self._principals)
        }
        self._principal_of: dict[str, str] = {}
        self.replace_settings(settings)

    @property
    def peers(self) -> Mapping[Scope, int]:
        """How many peers of each kind have buckets."""
        return {peers.scope: len(peers) for peers in (self._sources, self._blocks, self._principals)}

    def replace_settings(self, settings: LimitsSettings, *, relays: int | None = None) -> None:
        """Replace the limits, and the number of relays if it is given; the counters stay."""
        if relays is not None:
            self._relays = relays
        self._sources.replace(settings.source_address, settings.max_peers)
        self._blocks.replace(settings.source_address, settings.max_peers, settings.ipv6_block_factor)
        self._principals.replace(settings.principal, settings.max_peers)

    def connection_opened(self, source_address: str, now: float) -> Exceeded | None:
        """Count a new connection for its source, unless that is over a limit.

        When it is counted, :meth:`connection_closed` must be called once.
        """
        opened: list[tuple[Scope, str]] = []
        for scope, peer in peers_of(source_address, None).addresses:
            exceeded = self._by_scope[scope].open(peer, now)
            if exceeded is not None:
                for other, counted in opened:
                    self._by_scope[other].close(counted)
                return exceeded
            opened.append((scope, peer))
        return None

    def authenticated(self, identity: ClientIdentity, now: float) -> Exceeded | None:
        """Count a connection for its latest principal, unless that is over a limit."""
        principal = self._new_principal(identity)
        if principal is None:
            return None
        exceeded = self._principals.open(principal, now)
        if exceeded is None:
            self._principal_of[identity.id] = principal
        return exceeded

    def _new_principal(self, identity: ClientIdentity) -> str | None:
        """Return the principal to count a connection for, and uncount an earlier one."""
        principal = _principal(identity)
        counted = self._principal_of.get(identity.id)
        if principal == counted:
            return None
        if counted is not None:
            self._principals.close(counted)
            del self._principal_of[identity.id]
        return principal

    def connection_closed(self, identity: ClientIdentity) -> None:
        """Remove a counted connection from its source address and its principal."""
        for scope, peer in identity.peers.addresses:
            self._by_scope[scope].close(peer)
        principal = self._principal_of.pop(identity.id, None)
        if principal is not None:
            self._principals.close(principal)

    def telemetry_request(self, identity: ClientIdentity, now: float) -> Exceeded | None:
        """Count a telemetry request, unless the peer is over its requests or its CPU time.

        When it may be handled, :meth:`spent` should be called afterwards.
        """
        exceeded = self.over(LimitName.TELEMETRY_REQUESTS, identity, now)
        if exceeded is not None:
            return exceeded
        self.use(LimitName.TELEMETRY_REQUESTS, identity, 1, now)
        return self.over(LimitName.CORE_TIME, identity, now)

    def flooded(self, identity: ClientIdentity, now: float) -> None:
        """Count a connection closed for a flood as many, because its client reconnects."""
        for scope, peer in identity.peers.addresses:
            self._by_scope[scope].fill(LimitName.NEW_CONNECTIONS, peer, _FLOOD_UNITS, now)

    def spent(self, identity: ClientIdentity, seconds: float, now: float) -> None:
        """Count CPU seconds of a peer's requests, or of its pushes in plugins.

        CPU time, because elapsed time would charge a peer for the work of other processes.
        """
        by_scope, units = self._by_scope, seconds * 1000
        for scope, peer in identity.peers.limited:
            by_scope[scope].fill(LimitName.CORE_TIME, peer, units, now)

    def take(self, limit: LimitName, identity: ClientIdentity, now: float) -> Exceeded | None:
        """Count one unit for all peers, or for none if one of them is over."""
        exceeded = self.over(limit, identity, now)
        if exceeded is None:
            self.use(limit, identity, 1, now)
        return exceeded

    def over(self, limit: LimitName, identity: ClientIdentity, now: float) -> Exceeded | None:
        """Return the limit over time if a peer of the connection is over it."""
        by_scope = self._by_scope
        for scope, peer in identity.peers.limited:
            exceeded = by_scope[scope].full(limit, peer, now)
            if exceeded is not None:
                return exceeded
        return None

    def room(
        self, limit: LimitName, identity: ClientIdentity, wanted: int, now: float
    ) -> tuple[int, Exceeded | None]:
        """Return how many of the wanted units fit, and the limit over time if not all do."""
        found: Exceeded | None = None
        for scope, peer in identity.peers.limited:
            room, exceeded = self._by_scope[scope].room(limit, peer, wanted, now)
            if exceeded is not None:
                wanted, found = room, exceeded
        return wanted, found

    def use(self, limit: LimitName, identity: ClientIdentity, units: float, now: float) -> None:
        """Count what all peers of the connection used, even beyond their limit over time."""
        by_scope = self._by_scope
        for scope, peer in identity.peers.limited:
            by_scope[scope].fill(limit, peer, units, now)

    # -- several processes ---------------------------------------------------------------------

    def take_usage(self) -> list[Usage]:
        """Return what peers used on this relay since the last call.

        Once the core has counted it, :meth:`usage_counted` must be called.
        """
        if not self._usage:
            return []
        usage: list[Usage] = [(*key, *used) for key, used in self._usage.items()]
        self._reported.update(dict.fromkeys(self._usage))
        self._usage.clear()
        self.urgent = False
        return usage

    @property
    def alone(self) -> bool:
        """Whether the core does not answer this relay; the relay sets it."""
        return self._alone

    @alone.setter
    def alone(self, alone: bool) -> None:
        self._alone = alone
        if alone:
            for peers in self._by_scope.values():
                peers.presume_nothing()

    def usage_counted(self) -> None:
        """Count once what :meth:`take_usage` returned, because the core has counted it.

        The levels with which the core answered must have been given to :meth:`raise_levels` before.
        """
        for key in self._reported:
            scope, peer, limit = key
            used = self._usage.get(key)
            self._by_scope[scope].presume(limit, peer, 0.0 if used is None else self._unseen(used[0]))
        self._reported.clear()

    def add_usage(self, usage: Iterable[Usage], now: float) -> list[Level]:
        """Count what peers used on a relay, and return the levels of the same buckets.

        Raises:
            ValueError: There is no such scope or limit.
        """
        levels: list[Level] = []
        for scope, peer, limit, units, since in usage:
            peers, name = self._peers(scope), LimitName(limit)
            peers.fill(name, peer, units, now, since=min(since, now))
            empty_at = peers.level(name, peer, now, share=0.0)
            if empty_at is not None:
                levels.append((scope, peer, limit, empty_at))
        return levels

    def take_levels(self, now: float) -> list[Level]:
        """Return the buckets that relays need, that changed and are not low."""
        if not self._changed:
            return []
        levels: list[Level] = []
        for scope, peer, limit in self._changed:
            empty_at = self._by_scope[scope].level(limit, peer, now, share=_TOLD_SHARE)
            if empty_at is not None:
                levels.append((scope, peer, limit, empty_at))
        self._changed.clear()
        return levels

    def raise_levels(self, levels: Iterable[Level]) -> None:
        """Fill the buckets of this relay up to those of the whole receiver.

        Raises:
            ValueError: There is no such scope or limit.
        """
        for scope, peer, limit, empty_at in levels:
            self._peers(scope).rise(LimitName(limit), peer, empty_at)

    def admitted(self, identity: ClientIdentity) -> Exceeded | None:
        """Count an open connection that a relay has admitted; call it once for each.

        Returns:
            The limit if the source has more connections than it may on all relays together. The
            connection is counted until :meth:`connection_closed` all the same.
        """
        over = [self._by_scope[scope].admit(peer) for scope, peer in identity.peers.addresses]
        return next(filter(None, over), None)

    def identified(self, identity: ClientIdentity) -> Exceeded | None:
        """Count a connection for its principal, as :meth:`admitted` for its source."""
        principal = self._new_principal(identity)
        if principal is None:
            return None
        self._principal_of[identity.id] = principal
        return self._principals.admit(principal)

    def _peers(self, scope: str) -> _Peers:
        peers = self._by_scope.get(scope)
        if peers is None:
            raise ValueError(f"no scope of limits: {scope!r}")
        return peers

    def _used(self, peers: _Peers, peer: str, rate: _Rate, units: float, now: float) -> None:
        limit = rate.bucket.limit
        key = (peers.scope, peer, limit)
        used = self._usage.get(key)
        if used is None:
            if len(self._usage) >= _MAX_UNREPORTED:
                return
            used = (0.0, now)
        total, since = used[0] + units, used[1]
        self._usage[key] = (total, since)
        if rate.bucket.known_before and not self._alone:
            peers.presume_more(rate, peer, units, self._unseen(units), now)
        if total * rate.unit_s > rate.bucket.burst_s * _URGENT_SHARE / self._relays:
            self.urgent = True

    def _unseen(self, units: float) -> float:
        """Return what to add to units that the core has not counted yet."""
        return 0.0 if self._relays == 1 else (_FACTOR_PER_RELAY * self._relays - 1) * units

    def _filled(self, peers: _Peers, peer: str, rate: _Rate, units: float, now: float) -> None:
        self._changed[peers.scope, peer, rate.bucket.limit] = None


#: A bucket.
_Key: TypeAlias = tuple[Scope, str, LimitName]


class _Bucket(NamedTuple):
    """A limit over time; its setting is a number per ``period_s``."""

    limit: LimitName
    setting: str
    period_s: float
    burst_s: float
    debt_s: float = 0.0
    in_relays: bool = False  # whether relays fill it, too
    known_before: bool = False  # whether a relay counts what fills it before it admits it


_BUCKETS: Final = (
    _Bucket(
        LimitName.NEW_CONNECTIONS,
        "new_connections_per_second",
        1.0,
        10.0,
        10.0,
        in_relays=True,
        known_before=True,
    ),
    _Bucket(LimitName.NEW_INSTANCES, "new_instances_per_minute", 60.0, 60.0),
    _Bucket(LimitName.TELEMETRY_REQUESTS, "telemetry_requests_per_second", 1.0, 10.0),
    _Bucket(LimitName.CORE_TIME, "core_ms_per_second", 1.0, 4.0, 60.0, in_relays=True),
    _Bucket(LimitName.REJECTED_BYTES, "rejected_bytes_per_minute", 60.0, 60.0, 60.0),
    _Bucket(LimitName.ACCEPTED_BYTES, "accepted_bytes_per_minute", 60.0, 60.0, 60.0),
    _Bucket(LimitName.NEW_SERIES, "new_series_per_hour", 3600.0, 3600.0),
)
_SETTINGS: Final = {bucket.limit: bucket.setting for bucket in _BUCKETS} | {
    LimitName.CONNECTIONS: "connections"
}

# A connection that is closed for a flood counts as so many new connections.
_FLOOD_UNITS: Final = 20

# The share of a bucket that all relays together may use before one of them reports.
_URGENT_SHARE: Final = 0.05

# How often a relay counts what the core has not counted yet, for each relay.
_FACTOR_PER_RELAY: Final = 2

# The share of a bucket from which on all relays are told its level.
_TOLD_SHARE: Final = 0.1

# Buckets whose use a relay keeps while the core is away.
_MAX_UNREPORTED: Final = 65_536

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

    def __init__(
        self, scope: Scope, note: Callable[[_Peers, str, _Rate, float, float], None], *, notes_all: bool
    ) -> None:
        self.scope: Final = scope
        self._note = note
        self._notes_all = notes_all
        self._connections: dict[str, int] = {}
        self._empty_at: OrderedDict[str, dict[LimitName, float]] = OrderedDict()
        self._presumed: dict[tuple[str, LimitName], float] = {}

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
        exceeded = self.admit(peer)
        if exceeded is not None:
            self.close(peer)
        return exceeded

    def admit(self, peer: str) -> Exceeded | None:
        """Count an open connection, also one that is over the limit."""
        count = self._connections.get(peer, 0)
        self._connections[peer] = count + 1
        if self._max_connections is None or count < self._max_connections:
            return None
        return Exceeded(
            limit=LimitName.CONNECTIONS,
            scope=self.scope,
            peer=peer,
            allowed=self._max_connections,
            retry_after_s=0.0,
        )

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
        level = empty_at.get(limit, _NEVER)
        if self._presumed and (presumed := self._presumed.get((peer, limit), _NEVER)) > level:
            level = presumed
        room_at = level + rate.unit_s - rate.bucket.burst_s
        if room_at - now <= _TOLERANCE_S:
            return None
        return self._exceeded(rate, peer, room_at - now)

    def room(self, limit: LimitName, peer: str, wanted: int, now: float) -> tuple[int, Exceeded | None]:
        """Return how many units fit into a bucket, and the limit if not all do."""
        rate = self._rates.get(limit)
        if rate is None:
            return wanted, None
        level = max(self._empty_at.get(peer, {}).get(limit, _NEVER), now)
        free_s = rate.bucket.burst_s - (level - now)
        room = max(0, int(free_s / rate.unit_s + _TOLERANCE_S))
        if room >= wanted:
            return wanted, None
        return room, self._exceeded(rate, peer, (room + 1) * rate.unit_s - free_s)

    def _exceeded(self, rate: _Rate, peer: str, retry_after_s: float) -> Exceeded:
        return Exceeded(
            limit=rate.bucket.limit,
            scope=self.scope,
            peer=peer,
            allowed=rate.allowed,
            retry_after_s=retry_after_s,
        )

    def fill(
        self, limit: LimitName, peer: str, units: float, now: float, *, since: float | None = None
    ) -> None:
        """Fill a bucket with what a peer used now, or since an earlier time."""
        rate = self._rates.get(limit)
        if rate is None:
            return
        empty_at = self._empty_at.get(peer)
        if empty_at is None:
            empty_at = self._buckets(peer)
        else:
            self._empty_at.move_to_end(peer)
        filled = max(empty_at.get(limit, _NEVER), now if since is None else since) + units * rate.unit_s
        empty_at[limit] = min(filled, now + rate.bucket.burst_s + rate.bucket.debt_s)
        if self._notes_all or rate.bucket.in_relays:
            self._note(self, peer, rate, units, now)

    def rise(self, limit: LimitName, peer: str, empty_at: float) -> None:
        """Have a bucket empty no earlier than at a time."""
        if limit in self._rates:
            buckets = self._buckets(peer)
            buckets[limit] = max(buckets.get(limit, _NEVER), empty_at)

    def level(self, limit: LimitName, peer: str, now: float, *, share: float) -> float | None:
        """Return when a bucket will be empty, if more than a share of it is full."""
        rate = self._rates.get(limit)
        empty_at = self._empty_at.get(peer, {}).get(limit, _NEVER)
        return empty_at if rate is not None and empty_at - now > rate.bucket.burst_s * share else None

    def presume_more(self, rate: _Rate, peer: str, units: float, unseen: float, now: float) -> None:
        """Presume that units which have just been filled in stand for more."""
        if unseen:
            key = (peer, rate.bucket.limit)
            level = max(
                self._presumed.get(key, _NEVER) + units * rate.unit_s, self._empty_at[peer][rate.bucket.limit]
            )
            most = now + rate.bucket.burst_s + rate.bucket.debt_s
            self._presumed[key] = min(level + unseen * rate.unit_s, most)

    def presume_nothing(self) -> None:
        """Take all buckets to be as full as is known."""
        self._presumed.clear()

    def presume(self, limit: LimitName, peer: str, unseen: float) -> None:
        """Presume that a bucket holds so many units more than are known, and no others."""
        rate = self._rates.get(limit)
        empty_at = self._empty_at.get(peer, {}).get(limit)
        if unseen and rate is not None and rate.bucket.known_before and empty_at is not None:
            self._presumed[peer, limit] = empty_at + unseen * rate.unit_s
        else:
            self._presumed.pop((peer, limit), None)

    def _buckets(self, peer: str) -> dict[LimitName, float]:
        empty_at = self._empty_at.get(peer)
        if empty_at is None:
            empty_at = self._empty_at[peer] = {}
            if len(self._empty_at) > self._max_peers:
                self._empty_at.popitem(last=False)
        else:
            self._empty_at.move_to_end(peer)
        return empty_at


def _principal(identity: ClientIdentity) -> str | None:
    principal = identity.principal
    return None if principal in SHARED_PRINCIPALS else principal
