"""Client instances (KIP-714, "Client instance metadata"): all that is remembered of one, and of all of them.

Owns every change of an instance's state. It must not know what a push holds, nor answer anybody.

The rules. ``last`` is the time of the last get or push that the interval let through; ``interval`` is what
the instance is asked now. An instance that was just created, whose subscriptions changed, or that is asked
for less or more of them, has no ``last``, so that a change takes effect with the next request and nobody
waits out an interval that is no longer asked.

=======  ==============================================  =========================  ======================
request  condition: the first that holds                 answer                     what changes
=======  ==============================================  =========================  ======================
get      the last error given sent it here: an unknown   NONE                       last; first push is due
         subscription id, an unsupported codec
get      ``last`` is less than ``interval`` ago          THROTTLING_QUOTA_EXCEEDED
get      else                                            NONE                       last; first push is due
push     the last accepted push was terminating          INVALID_REQUEST
push     the first push is due: a get was answered       goes on                    last; no longer due
         since the last push that was let through
push     that push is ``interval`` ago                   goes on                    last
push     it says that it is terminating                  goes on
push     else                                            THROTTLING_QUOTA_EXCEEDED
goes on  its subscription id is another                  UNKNOWN_SUBSCRIPTION_ID
goes on  what it holds is refused                        as the core's front says
goes on  else                                            NONE                       terminating, if it says
=======  ==============================================  =========================  ======================

The first push is let through early because clients jitter it between half and one and a half intervals
(KIP-714, "Client behavior"). Every error given is remembered as the last error until a request is answered
NONE. Terminating is never taken back: the client said that it ends. An instance is forgotten max(60 s, 3 x
interval) after its last request of any kind, when the connection that it used last ends, or at a bound:

* Of all instances: the site that has most of them loses the one that it did not use for longest.
* Of one connection: it loses the one that it did not use for longest. A client has one instance.

A client that comes back then is created anew, never refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from receiver.plugin.shares import Holdings
from receiver.plugin.sources import site_of
from receiver.telemetry.connection import Connection
from receiver.telemetry.control.offenders import Demand
from receiver.telemetry.labels import LabelFacts, label_bytes
from receiver.telemetry.quirks import Treatment
from receiver.telemetry.subscription import (
    MAX_INTERVAL_MS,
    Assignment,
    ClientFacts,
    SubscriptionSet,
    subscription_id,
)
from receiver.wire.error_codes import ErrorCode
from receiver.wire.uuid import Uuid, uuid_to_text

__all__ = ["MAX_PER_CONNECTION", "MIN_LIFETIME_S", "ClientInstance", "ClientInstances", "InstanceStatistics"]

#: An instance is remembered at least so long after its last request, in seconds.
MIN_LIFETIME_S: Final = 60.0
_LIFETIME_INTERVALS = 3

#: One connection has at most so many instances. Clients have one; the rest is for a proxy that shares
#: connections among them.
MAX_PER_CONNECTION: Final = 64

# Times are floats: an interval that is over to a microsecond is over.
_TOLERANCE_S = 1e-6
_NEVER = float("-inf")

# Errors after which a client asks for its subscriptions at once.
_ASKS_AT_ONCE = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})

# So many instances whose time is over are forgotten with each request, at most.
_FORGOTTEN_AT_A_TIME = 4


class ClientInstance:
    """One client instance. Attributes are for reading; only the methods change them, by the module's rules.

    Attributes:
        id: The client instance id.
        text_id: The same in Kafka's text form.
        connection: The connection of its last request; its facts are the client's as last seen.
        subscriptions: The set of subscriptions that its assignment comes from.
        facts: What it was when it was last matched.
        assignment: What the matching subscriptions ask.
        treatment: What the quirks of its software make of that.
        demand: How much of it the instance is asked for, as far as it pushes too much.
        interval_factor: How many times as long as its subscriptions want its interval is.
        requested_metrics: Prefixes that it is asked for.
        push_interval_ms: Its push interval in milliseconds.
        subscription_id: The id of both.
        terminating: Whether its last accepted push said that it ends.
        last_error: The error that it was answered last, NONE after a good answer.
        pushes_accepted: Pushes answered NONE.
        created_at: When it was created; like the other times in seconds of the caller's monotonic clock.
        last_request_at: When its last request came.
        last_get_at: When the last get came that was answered, None before.
        last_push_at: When the last push came that was answered NONE, None before.
        last_push_received_at_ns: The same in nanoseconds since the epoch, 0 before.
        queued_for_s: The lifetime under which :class:`ClientInstances` keeps it, which alone sets it.
        site: The site that it counts for, set likewise; empty before.
    """

    __slots__ = (
        "_counted_at",
        "_first_push_due",
        "_label_facts",
        "_labels",
        "_push_counted_at",
        "assignment",
        "connection",
        "created_at",
        "demand",
        "facts",
        "id",
        "interval_factor",
        "last_error",
        "last_get_at",
        "last_push_at",
        "last_push_received_at_ns",
        "last_request_at",
        "push_interval_ms",
        "pushes_accepted",
        "queued_for_s",
        "requested_metrics",
        "site",
        "subscription_id",
        "subscriptions",
        "terminating",
        "text_id",
        "treatment",
    )

    id: Uuid
    subscriptions: SubscriptionSet
    facts: ClientFacts
    assignment: Assignment
    treatment: Treatment

    def __init__(self, client_instance_id: Uuid, connection: Connection, now: float) -> None:
        self.id = client_instance_id
        self.text_id: Final = uuid_to_text(client_instance_id)
        self.connection = connection
        self.demand = Demand.EVERYTHING
        self.interval_factor = 1
        self.requested_metrics: tuple[str, ...] = ()
        self.push_interval_ms = 0
        self.subscription_id = 0
        self.terminating = False
        self.last_error = ErrorCode.NONE
        self.pushes_accepted = 0
        self.created_at: Final = now
        self.last_request_at = now
        self.last_get_at: float | None = None
        self.last_push_at: float | None = None
        self.last_push_received_at_ns = 0
        self.queued_for_s = 0.0
        self.site = ""
        self._counted_at = _NEVER
        self._push_counted_at = _NEVER
        self._first_push_due = False
        self._label_facts: LabelFacts | None = None
        self._labels = b""

    @property
    def lifetime_s(self) -> float:
        """How long it is remembered after its last request, in seconds."""
        return max(MIN_LIFETIME_S, _LIFETIME_INTERVALS * self.push_interval_ms / 1000)

    def is_over(self, now: float) -> bool:
        """Say whether its time is over."""
        return now - self.last_request_at >= self.lifetime_s - _TOLERANCE_S

    def assign(
        self,
        facts: ClientFacts,
        subscriptions: SubscriptionSet,
        treatment: Treatment,
        *,
        default_interval_ms: int,
    ) -> None:
        """Match it anew: it is created, the subscriptions changed, or it is another software than before."""
        if subscriptions is not getattr(self, "subscriptions", None):
            self._begin_anew()
        self.facts = facts
        self.subscriptions = subscriptions
        self.treatment = treatment
        self.assignment = subscriptions.assignment(facts, default_interval_ms=default_interval_ms)
        self._derive()

    def ask(self, demand: Demand, interval_factor: int) -> None:
        """Ask it for less than its subscriptions want, or for as much again; it was assigned before."""
        if demand is self.demand and interval_factor == self.interval_factor:
            return
        self._begin_anew()
        self.demand = demand
        self.interval_factor = interval_factor
        self._derive()

    def get(self, now: float) -> ErrorCode:
        """Answer a get: NONE, or THROTTLING_QUOTA_EXCEEDED."""
        if self.last_error not in _ASKS_AT_ONCE and not self._interval_is_over(self._counted_at, now):
            return self.refuse(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self.last_error = ErrorCode.NONE
        self._counted_at = self.last_get_at = now
        self._first_push_due = True
        return ErrorCode.NONE

    def let_push_through(self, subscription: int, now: float, *, terminating: bool) -> ErrorCode:
        """Answer a push as far as it depends on what came before: NONE where what it holds decides."""
        if self.terminating:
            return self.refuse(ErrorCode.INVALID_REQUEST)
        if self._first_push_due or self._interval_is_over(self._push_counted_at, now):
            self._counted_at = self._push_counted_at = now
            self._first_push_due = False
        elif not terminating:
            return self.refuse(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if subscription != self.subscription_id:
            return self.refuse(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        return ErrorCode.NONE

    def refuse(self, error: ErrorCode) -> ErrorCode:
        """Remember an error that is given, and return it."""
        self.last_error = error
        return error

    def accept_push(self, now: float, received_at_ns: int, *, terminating: bool) -> None:
        """Remember a push that is answered NONE."""
        self.last_error = ErrorCode.NONE
        self.terminating = terminating
        self.pushes_accepted += 1
        self.last_push_at = now
        self.last_push_received_at_ns = received_at_ns

    def labels(self, facts: LabelFacts) -> bytes:
        """Encode its labels; only when they changed since the last push."""
        if facts != self._label_facts:
            self._label_facts = facts
            self._labels = label_bytes(facts)
        return self._labels

    def _begin_anew(self) -> None:
        self._counted_at = self._push_counted_at = _NEVER
        self._first_push_due = False

    def _derive(self) -> None:
        wanted_ms = min(self.assignment.interval_ms * self.interval_factor, MAX_INTERVAL_MS)
        self.requested_metrics = self.treatment.requested(self.demand.prefixes(self.assignment.prefixes))
        self.push_interval_ms = self.treatment.interval_ms(wanted_ms)
        self.subscription_id = subscription_id(self.id, self.requested_metrics, self.push_interval_ms)

    def _interval_is_over(self, since: float, now: float) -> bool:
        return now - since >= self.push_interval_ms / 1000 - _TOLERANCE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatistics:
    """What became of client instances since the start.

    Attributes:
        created: Instances created.
        expired: Instances forgotten because their time was over.
        evicted: Instances forgotten because there were too many, in all or of one connection.
        disconnected: Instances forgotten because their connection ended.
    """

    created: int
    expired: int
    evicted: int
    disconnected: int


class ClientInstances:
    """All client instances remembered: bounded, and at the bound the site with most of them loses one.

    Instances are kept in order of their last request: all of them, those of one site, those of one
    connection, and those of one lifetime, where the first also expires first. So no request has to look at
    all of them.

    Args:
        max_instances: How many are remembered.
        forgotten: Called with the id of each that is forgotten.
    """

    __slots__ = (
        "_by_connection",
        "_by_lifetime",
        "_by_site",
        "_by_use",
        "_created",
        "_disconnected",
        "_evicted",
        "_expired",
        "_forgotten",
        "_max",
        "_sites",
    )

    def __init__(self, max_instances: int, forgotten: Callable[[Uuid], None]) -> None:
        self._max = max_instances
        self._forgotten = forgotten
        self._by_use: OrderedDict[Uuid, ClientInstance] = OrderedDict()
        self._by_lifetime: OrderedDict[float, OrderedDict[Uuid, ClientInstance]] = OrderedDict()
        self._by_connection: dict[Connection, OrderedDict[Uuid, ClientInstance]] = {}
        self._by_site: dict[str, OrderedDict[Uuid, ClientInstance]] = {}
        self._sites: Holdings[str] = Holdings()
        self._created = self._expired = self._evicted = self._disconnected = 0

    def __len__(self) -> int:
        return len(self._by_use)

    def __iter__(self) -> Iterator[ClientInstance]:
        """Iterate over those remembered now, least recently used first; changes meanwhile do no harm."""
        return iter(list(self._by_use.values()))

    @property
    def statistics(self) -> InstanceStatistics:
        """What became of instances so far."""
        return InstanceStatistics(
            created=self._created,
            expired=self._expired,
            evicted=self._evicted,
            disconnected=self._disconnected,
        )

    def find(self, client_instance_id: Uuid) -> ClientInstance | None:
        """Look at an instance without using it."""
        return self._by_use.get(client_instance_id)

    def look_up(self, client_instance_id: Uuid, now: float) -> ClientInstance | None:
        """Take an instance for a request; None when none is remembered, or its time is over."""
        self.forget_expired(now, _FORGOTTEN_AT_A_TIME)
        instance = self._by_use.get(client_instance_id)
        if instance is not None and instance.is_over(now):
            self._remove(instance)
            self._expired += 1
            return None
        return instance

    def keep(self, instance: ClientInstance, connection: Connection, now: float) -> None:
        """Remember that an instance, new or known, was used for a request that came over a connection."""
        if instance.connection is not connection:
            self._disown(instance)
        instance.connection = connection
        instance.last_request_at = now
        known = instance.id in self._by_use
        self._by_use[instance.id] = instance
        self._by_use.move_to_end(instance.id)
        self._count_for_site(instance, site_of(connection.source_address))
        self._queue(instance)
        owned = self._by_connection.setdefault(connection, OrderedDict())
        owned[instance.id] = instance
        owned.move_to_end(instance.id)
        self._created += not known
        if len(owned) > MAX_PER_CONNECTION:
            self._evict(owned)
        if len(self._by_use) > self._max and (largest := self._sites.largest()) is not None:
            self._evict(self._by_site[largest])

    def disconnected(self, connection: Connection) -> None:
        """Forget every instance of a connection, except those that another connection took over."""
        for instance in list(self._by_connection.get(connection, {}).values()):
            self._remove(instance)
            self._disconnected += 1

    def forget_expired(self, now: float, most: int) -> int:
        """Forget instances whose time is over.

        Args:
            now: The time in seconds of the monotonic clock.
            most: How many may be forgotten, so that no request pays for many.

        Returns:
            How many were forgotten.
        """
        forgotten = 0
        # Each call begins with another lifetime, so that none is left waiting behind a long one.
        for _ in range(min(len(self._by_lifetime), most)):
            lifetime, queue = next(iter(self._by_lifetime.items()))
            self._by_lifetime.move_to_end(lifetime)
            while forgotten < most and queue:
                instance = next(iter(queue.values()))
                if not instance.is_over(now):
                    break
                self._remove(instance)
                forgotten += 1
        self._expired += forgotten
        return forgotten

    def _queue(self, instance: ClientInstance) -> None:
        lifetime = instance.lifetime_s
        if instance.queued_for_s != lifetime:
            self._unqueue(instance)
            instance.queued_for_s = lifetime
        queue = self._by_lifetime.setdefault(lifetime, OrderedDict())
        queue[instance.id] = instance
        queue.move_to_end(instance.id)

    def _unqueue(self, instance: ClientInstance) -> None:
        queue = self._by_lifetime.get(instance.queued_for_s)
        if queue is not None:
            queue.pop(instance.id, None)
            if not queue:
                del self._by_lifetime[instance.queued_for_s]

    def _count_for_site(self, instance: ClientInstance, site: str) -> None:
        if instance.site != site:
            self._uncount(instance)
            instance.site = site
            self._sites.add(site, 1)
        used = self._by_site.setdefault(site, OrderedDict())
        used[instance.id] = instance
        used.move_to_end(instance.id)

    def _uncount(self, instance: ClientInstance) -> None:
        used = self._by_site.get(instance.site)
        if used is not None and used.pop(instance.id, None) is not None:
            self._sites.add(instance.site, -1)
            if not used:
                del self._by_site[instance.site]

    def _disown(self, instance: ClientInstance) -> None:
        owned = self._by_connection.get(instance.connection)
        if owned is not None:
            owned.pop(instance.id, None)
            if not owned:
                del self._by_connection[instance.connection]

    def _evict(self, among: OrderedDict[Uuid, ClientInstance]) -> None:
        self._remove(next(iter(among.values())))
        self._evicted += 1

    def _remove(self, instance: ClientInstance) -> None:
        del self._by_use[instance.id]
        self._unqueue(instance)
        self._uncount(instance)
        self._disown(instance)
        self._forgotten(instance.id)
