"""Client instances against a model that keeps all events and computes each answer from them.

The model knows no flags: it keeps the history of an instance and reads KIP-714's sentences off it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from receiver.settings.limits import LimitsSettings
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.current_subscriptions import CurrentSubscriptions
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.subscription import SubscriptionSet, subscription_id
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire.error_codes import ErrorCode as E
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import Uuid
from tests.exploration import examples
from tests.unit.telemetry.parts import connection, payload, subscription

_NOW = datetime(2026, 11, 23, tzinfo=UTC)

VALID = payload("franz-producer-okprefix-02")
MAX_INSTANCES = 4
SETS = [
    (SubscriptionSet([subscription(metrics=("a.",), interval_ms=10_000)]), ("a.",), 10),
    (SubscriptionSet([subscription(metrics=("a.",), interval_ms=30_000)]), ("a.",), 30),
    (SubscriptionSet([subscription(interval_ms=1000)]), ("",), 1),
    (SubscriptionSet(), (), 60),
]
IDS = [Uuid(bytes(15) + bytes([number])) for number in range(2, 8)]


@dataclass(slots=True)
class Event:
    kind: str  # "get" or "push"
    at: int
    error: E
    terminating: bool = False
    #: Let through by the interval: a get is then answered; later checks may still refuse a push.
    counted: bool = False


@dataclass(slots=True)
class Remembered:
    events: list[Event] = field(default_factory=list)
    since_change: list[Event] = field(default_factory=list)
    #: Events of the instance before it was forgotten within its lifetime.
    earlier: list[Event] = field(default_factory=list)
    #: The answer to its last get may have been lost with the connection.
    may_get: bool = False
    at: int = 0
    connection: str = ""
    set_index: int = 0

    @property
    def until(self) -> int:
        return self.at + max(60, 3 * SETS[self.set_index][2])

    @property
    def gets_since_push(self) -> list[Event]:
        pushes = [index for index, e in enumerate(self.since_change) if e.kind == "push" and e.counted]
        since = self.since_change[pushes[-1] + 1 if pushes else 0 :]
        return [event for event in since if event.kind == "get" and event.counted]


class Rules(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000
        self.set_index = 0
        self.model: dict[Uuid, Remembered] = {}
        self.paces: dict[Uuid, Remembered] = {}  # oldest first
        self.connections: dict[str, ClientIdentity] = {}
        self.opened = 0

    @initialize(set_index=st.integers(0, 3))
    def start(self, set_index: int) -> None:
        self.set_index = set_index
        self.telemetry = ClientTelemetry(
            settings=TelemetrySettings(max_instances=MAX_INSTANCES, unsubscribed_metrics="keep"),
            subscriptions=CurrentSubscriptions(SETS[set_index][0]),
            limits=Limits(LimitsSettings()),
            random_bytes=os.urandom,
        )
        self.connect()

    @rule()
    def connect(self) -> None:
        name = f"c{self.opened}"
        self.opened += 1
        self.connections[name] = connection(id=name)

    @rule(seconds=st.sampled_from([1, 1, 5, 9, 10, 11, 29, 30, 60, 300, 900]))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule(set_index=st.integers(0, 3))
    def subscribe(self, set_index: int) -> None:
        self.set_index = set_index
        subscriptions = SubscriptionSet(SETS[set_index][0].subscriptions)
        self.telemetry.subscriptions.replace(subscriptions, _NOW)
        for remembered in (*self.model.values(), *self.paces.values()):
            remembered.since_change = []

    @precondition(lambda self: len(self.connections) > 1)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.connections)))
        self.telemetry.instances.disconnected(self.connections.pop(name).id)
        for instance_id, remembered in list(self.model.items()):
            if remembered.connection == name:
                self._leave(instance_id)

    def _leave(self, instance_id: Uuid) -> None:
        left = self.paces[instance_id] = self.model.pop(instance_id)
        while len(self.paces) > MAX_INSTANCES or next(iter(self.paces.values())).until <= left.at:
            del self.paces[next(iter(self.paces))]

    def _return(self, instance_id: Uuid) -> Remembered:
        left = self.paces.pop(instance_id, None)
        if left is None or self.now >= left.until:
            return Remembered()
        return Remembered(
            since_change=left.since_change,
            earlier=left.earlier + left.events,
            may_get=bool(left.gets_since_push),
        )

    def _interval(self) -> int:
        return SETS[self.set_index][2]

    def _use(self, instance_id: Uuid, data: st.DataObject) -> tuple[Remembered, ClientIdentity, bool]:
        name = data.draw(st.sampled_from(sorted(self.connections)))
        remembered = self.model.get(instance_id)
        if remembered is not None and self.now >= remembered.until:
            remembered = None
        created = remembered is None
        if remembered is None:
            remembered = self._return(instance_id)
        self.model.pop(instance_id, None)
        self.model[instance_id] = remembered  # the last is the most recently used
        remembered.at, remembered.connection, remembered.set_index = self.now, name, self.set_index
        for other, state in list(self.model.items()):
            if self.now >= state.until:
                del self.model[other]
        if len(self.model) > MAX_INSTANCES:
            self._leave(next(iter(self.model)))
        return remembered, self.connections[name], created

    @rule(instance_id=st.sampled_from(IDS), data=st.data())
    def get(self, instance_id: Uuid, data: st.DataObject) -> None:
        remembered, connected, created = self._use(instance_id, data)
        counted = [event for event in remembered.since_change if event.counted]
        events = remembered.earlier + remembered.events
        asks_at_once = bool(events) and events[-1].error in (
            E.UNKNOWN_SUBSCRIPTION_ID,
            E.UNSUPPORTED_COMPRESSION_TYPE,
        )
        early = bool(counted) and self.now - counted[-1].at < self._interval() and not remembered.may_get
        expected = E.THROTTLING_QUOTA_EXCEEDED if early and not asks_at_once else E.NONE
        outcome = self.telemetry.get_telemetry_subscriptions(
            connected, GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), now=float(self.now)
        )
        assert outcome.response.error_code == expected
        assert outcome.created == created
        assert outcome.response.throttle_time_ms == 0
        assert outcome.identity == replace(connected, client_instance_id=instance_id)
        if expected == E.NONE:
            _, prefixes, interval = SETS[self.set_index]
            assert outcome.response.subscription_id == subscription_id(instance_id, prefixes, interval * 1000)
            assert outcome.response.push_interval_ms == interval * 1000
        self._remember(remembered, Event("get", self.now, expected, counted=expected == E.NONE))

    @rule(
        instance_id=st.sampled_from(IDS),
        terminating=st.sampled_from([False, False, False, True]),
        what=st.sampled_from(["valid", "valid", "valid", "empty", "old id", "codec", "too large", "garbage"]),
        data=st.data(),
    )
    def push(self, instance_id: Uuid, terminating: bool, what: str, data: st.DataObject) -> None:
        remembered, connected, _ = self._use(instance_id, data)
        _, prefixes, interval = SETS[self.set_index]
        expected, counted = E.NONE, False
        if any(
            e.kind == "push" and e.error == E.NONE and e.terminating
            for e in remembered.earlier + remembered.events
        ):
            expected = E.INVALID_REQUEST
        else:
            history = remembered.since_change
            pushes = [index for index, e in enumerate(history) if e.kind == "push" and e.counted]
            counted = (
                not pushes
                or bool(remembered.gets_since_push)
                or self.now - history[pushes[-1]].at >= self._interval()
            )
            if not counted and not terminating:
                expected = E.THROTTLING_QUOTA_EXCEEDED
            else:
                expected = {
                    "old id": E.UNKNOWN_SUBSCRIPTION_ID,
                    "codec": E.UNSUPPORTED_COMPRESSION_TYPE,
                    "too large": E.TELEMETRY_TOO_LARGE,
                    "garbage": E.INVALID_RECORD,
                }.get(what, E.NONE)
        identifier = subscription_id(instance_id, prefixes, interval * 1000)
        request = PushTelemetryRequest(
            client_instance_id=instance_id,
            subscription_id=identifier + (1 if what == "old id" else 0),
            terminating=terminating,
            compression_type=7 if what == "codec" else 0,
            metrics={"empty": None, "too large": bytes(1_048_577), "garbage": b"\xff"}.get(what, VALID),
        )
        outcome = self.telemetry.push_telemetry(connected, request, now=float(self.now), received_at_ns=0)
        assert outcome.response.error_code == expected
        assert outcome.response.throttle_time_ms == 0
        assert (outcome.push is not None) == (expected == E.NONE)
        if outcome.push is not None:
            assert (outcome.push.payload.data == b"") == (what == "empty")
        assert (outcome.problem is not None) == (expected != E.NONE)
        assert outcome.identity == replace(connected, client_instance_id=instance_id)
        self._remember(remembered, Event("push", self.now, expected, terminating, counted))

    def _remember(self, remembered: Remembered, event: Event) -> None:
        remembered.events.append(event)
        remembered.since_change.append(event)
        remembered.may_get &= not event.counted

    @invariant()
    def remembers_what_the_model_does(self) -> None:
        if not hasattr(self, "telemetry"):
            return
        instances = self.telemetry.instances
        alive = [instance for instance in instances if not instance.is_expired(float(self.now))]
        expected = [
            (instance_id, state) for instance_id, state in self.model.items() if self.now < state.until
        ]
        assert [instance.id for instance in alive] == [instance_id for instance_id, _ in expected]
        for instance, (_, state) in zip(alive, expected, strict=True):
            assert instance.identity.id == state.connection
            assert instance.last_error == state.events[-1].error
            accepted = [e for e in state.events if e.kind == "push" and e.error == E.NONE]
            assert instance.pushes_accepted == len(accepted)
            terminated = [
                e.terminating for e in state.earlier + accepted if (e.kind, e.error) == ("push", E.NONE)
            ]
            assert instance.terminating == bool(terminated and terminated[-1])
        assert len(instances) <= MAX_INSTANCES
        statistics = instances.statistics
        gone = statistics.expired + statistics.evicted + statistics.disconnected
        assert statistics.created - gone == len(instances)
        kept = {instance.id for queue in instances._by_lifetime.values() for instance in queue.values()}
        assert kept == {instance.id for instance in instances}


TestRules = Rules.TestCase
TestRules.settings = settings(max_examples=examples(60), stateful_step_count=60, deadline=None)
