"""Client instances, a bounded store (KIP-714, "Client instance metadata").

Owns every change of an instance's state, in these rules:

=======  ===============================================  =========================  ==============
request  condition: the first that holds                  answer                     state changes
=======  ===============================================  =========================  ==============
get      the last error makes clients get at once: an     NONE                       last; first
         unknown subscription id, an unsupported codec                               push is due
get      ``last`` is less than ``interval`` ago           THROTTLING_QUOTA_EXCEEDED
get      else                                             NONE                       last; first
                                                                                     push is due
push     the last accepted push was terminating           INVALID_REQUEST
push     the first push is due: a get was answered since  continue                   last; no
         the last push that was let through                                          longer due
push     the last such push is ``interval`` ago           continue                   last
push     it is terminating                                continue
push     else                                             THROTTLING_QUOTA_EXCEEDED
then     its subscription id is not the current one       UNKNOWN_SUBSCRIPTION_ID
then     its content is refused                           the error of the check
then     else                                             NONE                       terminating,
                                                                                     if the push is
=======  ===============================================  =========================  ==============

``last`` is the time of the last get or push that the interval let through. A new instance, and one
whose subscriptions or demand changed, has no ``last``, so that a change takes effect with the next
request. The first push may be early because clients jitter it between half and one and a half
intervals (KIP-714, "Client behavior"). An error stays the last error until an answer of NONE. A
terminating client never becomes active again.

An instance is forgotten max(60 s, 3 x interval) after its last request (KIP-714, "Client metric
subscriptions"), when the connection of its last request ends, or at a bound:

* Of all instances: the address block with the most instances loses its least recently used one.
* Of one connection: it loses its least recently used one. A client has one instance.

A client that returns later gets a new instance and is never refused. One that returns within that
time gets its pace back: times, last error, and whether it has terminated. So it can't push more
often by connecting anew. It gets its subscriptions at once if it has not pushed since the last get,
because the answer may have been lost with the connection.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from receiver.peers.shares import Holdings
from receiver.telemetry.control.offenders import Demand
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.labels import Labels, label_bytes
from receiver.telemetry.quirks import Treatment
from receiver.telemetry.selectors import NOTHING_REVEALED, Revealed, reveal
from receiver.telemetry.subscription import Assignment, SubscriptionSet, subscription_id
from receiver.telemetry.subscription_checks import MAX_INTERVAL_MS, Temporality
from receiver.wire.error_codes import ErrorCode
from receiver.wire.uuid import Uuid, uuid_to_text

#: The shortest lifetime of an instance after its last request, in seconds.
MIN_LIFETIME_S: Final = 60.0
_LIFETIME_INTERVALS = 3

#: The maximum number of instances of a connection. Clients have one; more is for proxies that share
#: connections.
MAX_PER_CONNECTION: Final = 64

#: The minutes for which an instance remembers whether it has pushed.
PUSH_MINUTES: Final = 60
_ALL_MINUTES: Final = (1 << PUSH_MINUTES) - 1

# Times are floats: an interval may end this much early.
_TOLERANCE_S = 1e-6
_NEVER = float("-inf")

_Key = TypeVar("_Key")

# Errors after which a client gets its subscriptions at once.
_GETS_AT_ONCE = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})

# Each request forgets at most so many expired instances.
_MAX_FORGOTTEN_PER_REQUEST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a client is asked for where no matching subscription says it."""

    interval_ms: int
    delta: bool  # whether counters are pushed as deltas


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client is asked for (KIP-714, "GetTelemetrySubscriptionsResponse")."""

    metrics: tuple[str, ...]
    interval_ms: int
    delta: bool
    subscription_id: int

    @classmethod
    def derive(
        cls,
        client_instance_id: Uuid,
        assignment: Assignment,
        treatment: Treatment,
        defaults: Defaults,
        *,
        demand: Demand = Demand.EVERYTHING,
        interval_factor: int = 1,
    ) -> Request:
        """Apply quirks, back-pressure and defaults to an assignment."""
        wanted_ms = min(assignment.interval_ms * interval_factor, MAX_INTERVAL_MS)
        metrics = treatment.requested(demand.prefixes(assignment.prefixes))
        interval_ms = treatment.interval_ms(wanted_ms)
        delta = defaults.delta
        if assignment.temporality is not None:
            delta = assignment.temporality is Temporality.DELTA
        return cls(
            metrics=metrics,
            interval_ms=interval_ms,
            delta=delta,
            subscription_id=subscription_id(client_instance_id, metrics, interval_ms, delta=delta),
        )


@dataclass(slots=True, eq=False)
class ClientInstance:
    """One client instance.

    Only its methods change the attributes, by the module's rules.

    Times are monotonic seconds unless the name says otherwise.
    """

    id: Uuid
    identity: ClientIdentity  # of its last request
    created_at: float
    text_id: str = field(init=False)  # the id in Kafka's text form
    subscriptions: SubscriptionSet = field(init=False)  # the set that it was matched against
    matched: tuple[ClientIdentity, Revealed] = field(init=False)  # when it was last matched
    assignment: Assignment = field(init=False)  # the union of the matching subscriptions
    treatment: Treatment = field(init=False)  # the quirks of its software
    defaults: Defaults = field(init=False)  # when it was last matched
    request: Request = field(init=False)  # what it is asked for
    revealed: Revealed = NOTHING_REVEALED  # by its latest push with metrics
    demand: Demand = Demand.EVERYTHING  # the part of its assignment that is requested
    interval_factor: int = 1  # on its push interval (back-pressure)
    terminating: bool = False  # whether its last accepted push was terminating
    last_error: ErrorCode = ErrorCode.NONE  # of its last answer
    pushes_accepted: int = 0
    last_request_at: float = field(init=False)
    last_push_at: float | None = None  # of its last accepted push
    push_interval_ms: int = field(init=False)
    lifetime_s: float = field(init=False)  # how long it is kept after its last request
    reported_interval_ms: int | None = None  # its push interval, as the broker of a bridge says it
    queued_for_s: float = 0.0  # the lifetime under which ClientInstances keeps it
    block: str = ""  # the address block that it counts for in ClientInstances
    _counted_at: float = _NEVER
    _push_counted_at: float = _NEVER
    _push_minutes: int = 0  # as pushed_minutes, at the time of its last accepted push
    _first_push_due: bool = False
    _labels: Labels | None = None
    _label_bytes: bytes = b""
    _wanted: tuple[bytes, ...] | None = None
    #: The labels of its latest push, and what they were made of.
    labelled: tuple[tuple[object, ...], Labels] | None = None
    _resource: int | None = None  # a hash of the Resource that revealed what is known

    def __post_init__(self) -> None:
        self.text_id = uuid_to_text(self.id)
        self.last_request_at = self.created_at

    @property
    def requested_metrics(self) -> tuple[str, ...]:
        """The metric name prefixes that it is asked for."""
        return self.request.metrics

    @property
    def subscription_id(self) -> int:
        """The subscription id that its pushes must have."""
        return self.request.subscription_id

    def is_expired(self, now: float) -> bool:
        """Return whether its lifetime is over."""
        return now - self.last_request_at >= self.lifetime_s - _TOLERANCE_S

    def assign(
        self,
        identity: ClientIdentity,
        subscriptions: SubscriptionSet,
        treatment: Treatment,
        defaults: Defaults,
    ) -> None:
        """Match the instance: it is new, or what it is matched against has changed."""
        if subscriptions is not getattr(self, "subscriptions", None):
            self._reset_interval()
        self.matched = identity, self.revealed
        self.subscriptions = subscriptions
        self.treatment = treatment
        self.defaults = defaults
        self.assignment = subscriptions.assignment(
            identity, self.revealed, default_interval_ms=defaults.interval_ms
        )
        self._derive()

    def adjust(self, demand: Demand, interval_factor: int) -> None:
        """Request a part of its assignment, or at a longer interval.

        It was assigned before.
        """
        if demand is self.demand and interval_factor == self.interval_factor:
            return
        self._reset_interval()
        self.demand = demand
        self.interval_factor = interval_factor
        self._derive()

    def report_interval(self, interval_ms: int | None) -> None:
        """Take its push interval from another party that decides it; None: there is none."""
        self.reported_interval_ms = interval_ms
        self._follow_interval()

    def check_get(self, now: float) -> ErrorCode:
        """Return the answer to a get: NONE, or THROTTLING_QUOTA_EXCEEDED."""
        if self.last_error not in _GETS_AT_ONCE and not self._interval_is_over(self._counted_at, now):
            return self.refuse(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self.last_error = ErrorCode.NONE
        self._counted_at = now
        self._first_push_due = True
        return ErrorCode.NONE

    def check_push(self, subscription: int, now: float, *, terminating: bool) -> ErrorCode:
        """Check a push by the instance's state.

        NONE when only its content is left to check.
        """
        if self.terminating:
            return self.refuse(ErrorCode.INVALID_REQUEST)
        if self._first_push_due or self._interval_is_over(self._push_counted_at, now):
            self._counted_at = self._push_counted_at = now
            self._first_push_due = False
        elif not terminating:
            return self.refuse(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if subscription != self.request.subscription_id:
            return self.refuse(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        return ErrorCode.NONE

    def refuse(self, error: ErrorCode) -> ErrorCode:
        """Store the error of an answer, and return it."""
        self.last_error = error
        return error

    def accept_push(self, now: float, *, terminating: bool) -> None:
        """Count a push that is answered NONE."""
        self.last_error = ErrorCode.NONE
        self.terminating = terminating
        self.pushes_accepted += 1
        if self.last_push_at is None or self.last_push_at // 60 != now // 60:
            self._push_minutes = self.pushed_minutes(now) | 1
        self.last_push_at = now

    def pushed_minutes(self, now: float) -> int:
        """Return a bit for each of the last 60 minutes with an accepted push.

        The lowest bit is the current minute of the clock.
        """
        if self.last_push_at is None:
            return 0
        passed = int(now // 60) - int(self.last_push_at // 60)
        return (self._push_minutes << min(passed, PUSH_MINUTES)) & _ALL_MINUTES

    def read_resource(self, resource: bytes) -> None:
        """Read what an accepted push's Resource reveals, unless the last one did."""
        known = hash(resource)
        if known != self._resource:
            self._resource = known
            self.revealed = reveal(resource)

    @property
    def pace(self) -> Pace:
        """What is kept of it when it is forgotten."""
        return Pace(
            subscriptions=self.subscriptions,
            counted_at=_NEVER if self._first_push_due else self._counted_at,
            push_counted_at=self._push_counted_at,
            first_push_due=self._first_push_due,
            last_error=self.last_error,
            terminating=self.terminating,
            until=self.last_request_at + self.lifetime_s,
        )

    def resume(self, pace: Pace) -> None:
        """Go on at an earlier pace, unless the subscriptions have changed since."""
        if pace.subscriptions is self.subscriptions:
            self._counted_at, self._push_counted_at = pace.counted_at, pace.push_counted_at
            self._first_push_due = pace.first_push_due
            self.last_error = pace.last_error
        self.terminating = pace.terminating

    @property
    def wanted(self) -> tuple[bytes, ...] | None:
        """The requested prefixes in UTF-8; None if all metrics are requested."""
        return self._wanted

    def label_bytes(self, labels: Labels) -> bytes:
        """Encode the labels, or return the cached bytes when they equal the last push's."""
        if labels != self._labels:
            self._labels = labels
            self._label_bytes = label_bytes(labels)
        return self._label_bytes

    def _reset_interval(self) -> None:
        self._counted_at = self._push_counted_at = _NEVER
        self._first_push_due = False

    def _derive(self) -> None:
        self.request = Request.derive(
            self.id,
            self.assignment,
            self.treatment,
            self.defaults,
            demand=self.demand,
            interval_factor=self.interval_factor,
        )
        prefixes = self.request.metrics
        self._wanted = None if "" in prefixes else tuple(prefix.encode() for prefix in prefixes)
        self._follow_interval()

    def _follow_interval(self) -> None:
        self.push_interval_ms = self.reported_interval_ms or self.request.interval_ms
        self.lifetime_s = max(MIN_LIFETIME_S, _LIFETIME_INTERVALS * self.push_interval_ms / 1000)

    def _interval_is_over(self, since: float, now: float) -> bool:
        return now - since >= self.push_interval_ms / 1000 - _TOLERANCE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What is kept of an instance that is forgotten before its lifetime is over."""

    subscriptions: SubscriptionSet
    counted_at: float
    push_counted_at: float
    first_push_due: bool
    last_error: ErrorCode
    terminating: bool
    until: float


@dataclass(slots=True)
class InstanceStatistics:
    """Counts of client instances since the start."""

    created: int = 0
    expired: int = 0  # forgotten because their lifetime was over
    evicted: int = 0  # forgotten at a bound: of all instances, or of one connection
    disconnected: int = 0  # forgotten because their connection ended


class _Groups(OrderedDict[_Key, OrderedDict[Uuid, ClientInstance]], Generic[_Key]):
    """Instances by key, each group in order of use.

    A group that becomes empty is removed.
    """

    def use(self, key: _Key, instance: ClientInstance) -> OrderedDict[Uuid, ClientInstance]:
        """Put an instance at the end of a group, and return the group."""
        group = self.setdefault(key, OrderedDict())
        group[instance.id] = instance
        group.move_to_end(instance.id)
        return group

    def discard(self, key: _Key, instance: ClientInstance) -> bool:
        """Remove an instance from a group; return whether it was there."""
        group = self.get(key)
        if group is None or group.pop(instance.id, None) is None:
            return False
        if not group:
            del self[key]
        return True


class ClientInstances:
    """A bounded store of client instances.

    At the bound, the address block with the most loses one.

    Ordered dicts by last request give the least recently used instance of all, of a block and of a
    connection, and the next to expire of each lifetime. So no request iterates over all instances.
    ``on_forget`` is called with the id of each instance that is forgotten.
    """

    def __init__(self, max_instances: int, on_forget: Callable[[Uuid], None]) -> None:
        self._max = max_instances
        self._on_forget = on_forget
        self._by_use: OrderedDict[Uuid, ClientInstance] = OrderedDict()
        self._by_lifetime: _Groups[float] = _Groups()
        self._by_connection: _Groups[str] = _Groups()
        self._by_block: _Groups[str] = _Groups()
        self._blocks: Holdings[str] = Holdings()
        self._paces: OrderedDict[Uuid, Pace] = OrderedDict()  # of forgotten instances
        self.statistics = InstanceStatistics()

    def __len__(self) -> int:
        return len(self._by_use)

    def __iter__(self) -> Iterator[ClientInstance]:
        """Iterate over a copy, least recently used first."""
        return iter(list(self._by_use.values()))

    def find(self, client_instance_id: Uuid) -> ClientInstance | None:
        """Return an instance without using it."""
        return self._by_use.get(client_instance_id)

    def look_up(self, client_instance_id: Uuid, now: float) -> ClientInstance | None:
        """Return the instance of a request; None when it is unknown or expired."""
        self.forget_expired(now, _MAX_FORGOTTEN_PER_REQUEST)
        instance = self._by_use.get(client_instance_id)
        if instance is not None and instance.is_expired(now):
            self._remove(instance)
            self.statistics.expired += 1
            return None
        return instance

    def take_pace(self, client_instance_id: Uuid, now: float) -> Pace | None:
        """Return the pace of an instance that was forgotten within its lifetime."""
        pace = self._paces.pop(client_instance_id, None)
        return pace if pace is not None and now < pace.until else None

    def keep(self, instance: ClientInstance, identity: ClientIdentity, now: float) -> None:
        """Store a new or known instance as used by a request of this client."""
        if instance.identity.id != identity.id:
            self._by_connection.discard(instance.identity.id, instance)
        instance.identity = identity
        instance.last_request_at = now
        self.statistics.created += instance.id not in self._by_use
        self._by_use[instance.id] = instance
        self._by_use.move_to_end(instance.id)
        block = identity.peers.block
        if instance.block != block:
            self._leave_block(instance)
            instance.block = block
            self._blocks.add(block, 1)
        self._by_block.use(block, instance)
        lifetime = instance.lifetime_s
        if instance.queued_for_s != lifetime:
            self._by_lifetime.discard(instance.queued_for_s, instance)
            instance.queued_for_s = lifetime
        self._by_lifetime.use(lifetime, instance)
        owned = self._by_connection.use(identity.id, instance)
        if len(owned) > MAX_PER_CONNECTION:
            self._evict(owned)
        if len(self._by_use) > self._max and (largest := self._blocks.largest()) is not None:
            self._evict(self._by_block[largest])

    def resize(self, max_instances: int) -> None:
        """Remember at most so many instances from now on, and evict the others."""
        self._max = max_instances
        while len(self._by_use) > self._max and (largest := self._blocks.largest()) is not None:
            self._evict(self._by_block[largest])

    def identity_changed(self, identity: ClientIdentity) -> None:
        """Replace the identity of the instances whose last request used a connection."""
        for instance in self._by_connection.get(identity.id, {}).values():
            instance.identity = replace(identity, client_instance_id=instance.id)

    def of_connection(self, connection_id: str) -> list[ClientInstance]:
        """Return the instances whose last request came over a connection."""
        return list(self._by_connection.get(connection_id, {}).values())

    def disconnected(self, connection_id: str) -> None:
        """Forget the instances whose last request came over this connection."""
        for instance in self.of_connection(connection_id):
            self._remove(instance)
            self._keep_pace(instance)
            self.statistics.disconnected += 1

    def forget_expired(self, now: float, most: int) -> int:
        """Forget at most ``most`` expired instances; return how many."""
        forgotten = 0
        # Each call starts with another lifetime, so that each lifetime gets its turn.
        for _ in range(min(len(self._by_lifetime), most)):
            lifetime, queue = next(iter(self._by_lifetime.items()))
            self._by_lifetime.move_to_end(lifetime)
            while forgotten < most and queue:
                instance = next(iter(queue.values()))
                if not instance.is_expired(now):
                    break
                self._remove(instance)
                forgotten += 1
        self.statistics.expired += forgotten
        return forgotten

    def _leave_block(self, instance: ClientInstance) -> None:
        if self._by_block.discard(instance.block, instance):
            self._blocks.add(instance.block, -1)

    def _evict(self, group: OrderedDict[Uuid, ClientInstance]) -> None:
        instance = next(iter(group.values()))
        self._remove(instance)
        self._keep_pace(instance)
        self.statistics.evicted += 1

    def _keep_pace(self, instance: ClientInstance) -> None:
        paces = self._paces
        paces[instance.id] = instance.pace
        while len(paces) > self._max or next(iter(paces.values())).until <= instance.last_request_at:
            paces.popitem(last=False)

    def _remove(self, instance: ClientInstance) -> None:
        del self._by_use[instance.id]
        self._by_lifetime.discard(instance.queued_for_s, instance)
        self._by_connection.discard(instance.identity.id, instance)
        self._leave_block(instance)
        self._on_forget(instance.id)
