"""Client instances: each rule of the state table, lifetimes and bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from receiver.telemetry.control.offenders import Demand
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.instance import ClientInstance, ClientInstances, Defaults
from receiver.telemetry.quirks import Treatment
from receiver.telemetry.subscription import SubscriptionSet
from receiver.wire.error_codes import ErrorCode
from receiver.wire.uuid import Uuid
from tests.unit.telemetry.parts import INSTANCE, connection, subscription

NONE = ErrorCode.NONE
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
UNKNOWN_ID = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
INVALID = ErrorCode.INVALID_REQUEST
BAD_CODEC = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
BAD_RECORD = ErrorCode.INVALID_RECORD

INTERVAL_S = 10.0
TEN_SECONDS = SubscriptionSet([subscription(interval_ms=10_000)])


def assigned(instance: ClientInstance, subscriptions: SubscriptionSet = TEN_SECONDS) -> ClientInstance:
    defaults = Defaults(interval_ms=300_000, delta=True)
    instance.assign(instance.identity, subscriptions, Treatment(compression=(4,)), defaults)
    return instance


def new(now: float = 0.0) -> ClientInstance:
    return assigned(ClientInstance(INSTANCE, connection(), now))


def push(
    instance: ClientInstance, now: float, *, terminating: bool = False, wrong_id: bool = False
) -> ErrorCode:
    """Make a valid push."""
    identifier = instance.subscription_id + (1 if wrong_id else 0)
    error = instance.check_push(identifier, now, terminating=terminating)
    if error is NONE:
        instance.accept_push(now, terminating=terminating)
    return error


def test_a_new_instance_may_get_or_push_first() -> None:
    assert new().check_get(0) is NONE
    assert push(new(), 0) is NONE
    assert push(new(), 0, terminating=True) is NONE
    assert push(new(), 0, wrong_id=True) is UNKNOWN_ID


@pytest.mark.parametrize(
    ("after_s", "answer"), [(0.0, THROTTLED), (9.999, THROTTLED), (10.0, NONE), (11.0, NONE)]
)
@pytest.mark.parametrize("start", [0.0, 1000.1, 123456.789])
def test_a_get_waits_for_the_interval_since_the_last_get(
    start: float, after_s: float, answer: ErrorCode
) -> None:
    instance = new()
    assert instance.check_get(start) is NONE
    assert instance.check_get(start + after_s) is answer


@pytest.mark.parametrize(("after_s", "answer"), [(0.0, THROTTLED), (9.999, THROTTLED), (10.0, NONE)])
def test_a_get_waits_for_the_interval_since_the_last_push(after_s: float, answer: ErrorCode) -> None:
    instance = new()
    assert instance.check_get(0) is NONE
    assert push(instance, 15) is NONE
    assert instance.check_get(15 + after_s) is answer


def test_a_throttled_get_changes_nothing() -> None:
    instance = new()
    instance.check_get(0)
    assert instance.check_get(9) is THROTTLED
    assert instance.check_get(10) is NONE


@pytest.mark.parametrize("after_s", [0.0, 5.0, 15.0])
def test_the_first_push_after_a_get_may_come_at_any_time(after_s: float) -> None:
    instance = new()
    instance.check_get(100)
    assert push(instance, 100 + after_s) is NONE


def test_a_get_between_two_pushes_makes_the_next_push_due() -> None:
    instance = new()
    instance.check_get(0)
    assert push(instance, 5) is NONE
    assert instance.check_get(15) is NONE
    assert push(instance, 15) is NONE
    assert push(instance, 15) is THROTTLED


@pytest.mark.parametrize(
    ("after_s", "answer"), [(0.0, THROTTLED), (9.999, THROTTLED), (10.0, NONE), (25.0, NONE)]
)
def test_later_pushes_wait_for_the_interval_since_the_last_push(after_s: float, answer: ErrorCode) -> None:
    instance = new()
    instance.check_get(0)
    push(instance, 5)
    assert push(instance, 5 + after_s) is answer


def test_a_rounding_error_does_not_throttle() -> None:
    instance = assigned(new(), SubscriptionSet([subscription(interval_ms=100)]))
    now = 0.2
    assert 0.3 - now < 0.1
    assert instance.check_get(now) is NONE
    assert push(instance, now) is NONE
    assert push(instance, 0.3) is NONE
    assert instance.check_get(0.3 + 0.099) is THROTTLED


def test_a_throttled_get_does_not_make_a_push_due() -> None:
    instance = new()
    instance.check_get(0)
    push(instance, 5)
    assert instance.check_get(6) is THROTTLED
    assert push(instance, 7) is THROTTLED


def test_a_throttled_push_changes_nothing() -> None:
    instance = new()
    instance.check_get(0)
    push(instance, 5)
    for now in (6, 9, 14.9):
        assert push(instance, now) is THROTTLED
    assert push(instance, 15) is NONE


def test_one_terminating_push_may_come_at_any_time() -> None:
    instance = new()
    instance.check_get(0)
    push(instance, 1)
    assert push(instance, 2, terminating=True) is NONE
    assert instance.terminating
    assert push(instance, 3) is INVALID
    assert push(instance, 100) is INVALID
    assert push(instance, 100, terminating=True) is INVALID


def test_a_refused_terminating_push_does_not_terminate() -> None:
    instance = new()
    instance.check_get(0)
    assert push(instance, 1, terminating=True, wrong_id=True) is UNKNOWN_ID
    assert not instance.terminating
    assert instance.check_get(1) is NONE
    assert push(instance, 1, terminating=True) is NONE


def test_a_refused_push_after_terminating_changes_nothing() -> None:
    instance = new()
    assert push(instance, 0, terminating=True) is NONE
    assert push(instance, 100) is INVALID
    assert push(instance, 200) is INVALID
    assert instance.check_get(200) is NONE
    assert push(instance, 201) is INVALID


def test_an_early_terminating_push_continues_to_the_other_checks() -> None:
    instance = new()
    instance.check_get(0)
    push(instance, 5)
    assert push(instance, 6, terminating=True, wrong_id=True) is UNKNOWN_ID
    # The interval did not let it through, so it still runs from the previous push.
    assert push(instance, 15) is NONE


@pytest.mark.parametrize("error", [UNKNOWN_ID, BAD_CODEC])
def test_after_some_errors_a_client_may_get_at_once(error: ErrorCode) -> None:
    instance = new()
    instance.check_get(0)
    assert instance.check_push(instance.subscription_id, 5, terminating=False) is NONE
    instance.refuse(error)
    assert instance.check_get(5) is NONE
    assert instance.check_get(5) is THROTTLED
    assert push(instance, 5) is NONE


@pytest.mark.parametrize("error", [BAD_RECORD, ErrorCode.TELEMETRY_TOO_LARGE, THROTTLED, INVALID])
def test_after_other_errors_a_client_waits(error: ErrorCode) -> None:
    instance = new()
    instance.check_get(0)
    assert instance.check_push(instance.subscription_id, 5, terminating=False) is NONE
    instance.refuse(error)
    assert instance.check_get(6) is THROTTLED
    assert instance.check_get(15) is NONE


def test_only_the_last_error_counts() -> None:
    instance = new()
    instance.check_get(0)
    assert push(instance, 5, wrong_id=True) is UNKNOWN_ID
    assert push(instance, 6) is THROTTLED
    assert instance.check_get(6) is THROTTLED


def test_a_refused_push_counts_for_the_interval() -> None:
    instance = new()
    instance.check_get(0)
    assert push(instance, 5, wrong_id=True) is UNKNOWN_ID
    assert push(instance, 6, wrong_id=True) is THROTTLED


def test_changed_subscriptions_are_answered_at_once() -> None:
    instance = new()
    instance.check_get(0)
    push(instance, 5)
    before = instance.subscription_id
    assigned(instance, SubscriptionSet([subscription(interval_ms=60_000)]))
    assert instance.subscription_id != before
    # A push in flight with the old id is not throttled by an interval that the client does not
    # know.
    assert instance.check_push(before, 6, terminating=False) is UNKNOWN_ID
    assert instance.check_get(6) is NONE
    assert instance.check_get(7) is THROTTLED


def test_changed_subscriptions_need_no_push_before_the_get() -> None:
    instance = new()
    instance.check_get(0)
    assigned(instance, SubscriptionSet([subscription(interval_ms=60_000)]))
    assert instance.check_get(1) is NONE
    assert instance.check_get(2) is THROTTLED


def test_matching_the_same_subscriptions_again_keeps_the_interval() -> None:
    instance = new()
    instance.check_get(0)
    assigned(instance)
    assert instance.check_get(1) is THROTTLED


def test_terminating_outlives_a_change_of_subscriptions() -> None:
    instance = new()
    push(instance, 0, terminating=True)
    assigned(instance, SubscriptionSet([subscription(interval_ms=60_000)]))
    assert push(instance, 1) is INVALID


def test_a_changed_demand_ends_the_interval() -> None:
    instance = new()
    asked_before = instance.subscription_id
    assert push(instance, 0) is NONE
    instance.adjust(Demand.EVERYTHING, 1)
    assert push(instance, 1) is THROTTLED
    instance.adjust(Demand.NOTHING, 4)
    assert (instance.push_interval_ms, instance.requested_metrics) == (40_000, ())
    assert instance.check_push(asked_before, 2, terminating=False) is UNKNOWN_ID
    assert instance.check_get(2) is NONE
    # Another match keeps the demand.
    assigned(instance, SubscriptionSet([subscription(interval_ms=60_000)]))
    assert (instance.push_interval_ms, instance.requested_metrics) == (240_000, ())
    instance.adjust(Demand.EVERYTHING, 1)
    assert (instance.push_interval_ms, instance.requested_metrics) == (60_000, ("",))


def test_the_attributes_of_an_instance() -> None:
    instance = new(now=3.0)
    assert (instance.created_at, instance.last_push_at) == (3.0, None)
    instance.check_get(4)
    assert instance.check_push(instance.subscription_id, 5, terminating=False) is NONE
    instance.accept_push(5, terminating=False)
    push(instance, 6)
    assert instance.last_push_at == 5
    assert (instance.pushes_accepted, instance.last_error) == (1, THROTTLED)
    assert instance.text_id == "7wk08yJMQAOK9PUGl2Zmrg"
    assert instance.assignment.matched == ("all",)
    assert instance.requested_metrics == ("",)


# -- the store
# ----------------------------------------------------------------------------------------


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def keep(
    instances: ClientInstances,
    number: int,
    now: float,
    *,
    interval_ms: int = 10_000,
    used_by: ClientIdentity | None = None,
) -> ClientInstance:
    """Use an instance as a request does."""
    used_by = used_by or connection(id=f"c{number}")
    instance = instances.look_up(uuid(number), now)
    if instance is None:
        subscriptions = SubscriptionSet([subscription(interval_ms=interval_ms)])
        instance = assigned(ClientInstance(uuid(number), used_by, now), subscriptions)
    instances.keep(instance, used_by, now)
    return instance


def remembering(most: int) -> ClientInstances:
    return ClientInstances(most, lambda _: None)


@pytest.mark.parametrize(
    ("interval_ms", "lifetime_s"), [(100, 60), (20_000, 60), (20_001, 60.003), (300_000, 900)]
)
def test_an_instance_lives_for_three_intervals_and_at_least_a_minute(
    interval_ms: int, lifetime_s: float
) -> None:
    instances = remembering(10)
    first = keep(instances, 1, 100.0, interval_ms=interval_ms)
    assert instances.look_up(uuid(1), 100.0 + lifetime_s - 0.001) is first
    assert instances.look_up(uuid(1), 100.0 + lifetime_s) is None
    assert len(instances) == 0
    assert instances.statistics.expired == 1


def test_every_request_restarts_the_lifetime() -> None:
    instances = remembering(10)
    first = keep(instances, 1, 0)
    assert keep(instances, 1, 59) is first
    assert keep(instances, 1, 118) is first
    assert keep(instances, 1, 178) is not first
    assert instances.statistics.created == 2


def test_each_request_forgets_a_few_expired_instances_of_any_lifetime() -> None:
    instances = remembering(1000)
    for number in range(1, 31):
        # Instances with a long lifetime come first and must not delay the others.
        keep(instances, number, number / 100, interval_ms=3_600_000 if number <= 10 else 1000 * number)
    for number in range(31, 41):
        before = len(instances)
        keep(instances, number, 200)
        assert before - len(instances) + 1 <= 4
    assert sorted(int.from_bytes(i.id, "big") for i in instances) == [*range(1, 11), *range(31, 41)]
    assert instances.statistics.expired == 20


def test_an_expired_instance_is_unknown_though_others_expired_before_it() -> None:
    instances = remembering(100)
    latest = [keep(instances, number, number / 100) for number in range(1, 11)][-1]
    assert instances.look_up(latest.id, 1000) is None
    assert instances.find(latest.id) is None
    assert (len(instances), instances.statistics.expired) == (5, 5)


def test_expired_instances_can_be_forgotten_without_a_request() -> None:
    instances = remembering(1000)
    for number in range(100):
        keep(instances, number + 2, 0, interval_ms=100 + number)
    assert instances.forget_expired(59.9, 1000) == 0
    assert instances.forget_expired(60, 30) == 30
    assert instances.forget_expired(60, 1000) == 70
    assert len(instances) == 0
    assert instances._by_lifetime == {}


def test_an_expired_instance_is_not_found_behind_others_that_are_expired() -> None:
    instances = remembering(10)
    for number in range(1, 7):
        keep(instances, number, 0)
    assert instances.look_up(uuid(6), 60) is None
    assert (len(instances), instances.statistics.expired) == (1, 5)


def test_a_changed_interval_changes_the_lifetime() -> None:
    instances = remembering(10)
    instance = keep(instances, 1, 0, interval_ms=3_600_000)
    assigned(instance)
    instances.keep(instance, instance.identity, 1)
    assert instances.forget_expired(61, 10) == 1


def test_the_least_recently_used_instance_is_evicted_first() -> None:
    instances = remembering(3)
    for number in (1, 2, 3):
        keep(instances, number, number)
    keep(instances, 1, 4)
    keep(instances, 4, 5)
    assert [int.from_bytes(instance.id, "big") for instance in instances] == [3, 1, 4]
    assert instances.find(uuid(2)) is None
    assert len(instances) == 3
    statistics = instances.statistics
    assert (statistics.created, statistics.evicted, statistics.expired) == (4, 1, 0)


def test_finding_an_instance_does_not_use_it() -> None:
    instances = remembering(2)
    first = keep(instances, 1, 1)
    keep(instances, 2, 2)
    assert instances.find(uuid(1)) is first
    assert next(iter(instances)) is first
    keep(instances, 3, 3)
    assert instances.find(uuid(1)) is None


def test_a_closed_connection_forgets_its_instance() -> None:
    instances = remembering(10)
    one, two = connection(id="one"), connection(id="two")
    keep(instances, 1, 0, used_by=one)
    keep(instances, 2, 0, used_by=two)
    instances.disconnected("never asked")
    instances.disconnected(one.id)
    instances.disconnected(one.id)
    assert [instance.id for instance in instances] == [uuid(2)]
    assert instances.statistics.disconnected == 1
    assert instances.forget_expired(1000, 10) == 1


def test_an_instance_that_moved_to_another_connection_stays() -> None:
    instances = remembering(10)
    one, two = connection(id="one"), connection(id="two")
    instance = keep(instances, 1, 0, used_by=one)
    assert keep(instances, 1, 1, used_by=two) is instance
    instances.disconnected(one.id)
    assert instances.find(uuid(1)) is instance
    assert instance.identity is two
    instances.disconnected(two.id)
    assert instances.find(uuid(1)) is None


def test_a_changed_identity_is_that_of_the_connections_instances() -> None:
    instances = remembering(10)
    one, two = connection(id="one"), connection(id="two")
    first, second = keep(instances, 1, 0, used_by=one), keep(instances, 2, 0, used_by=two)
    instances.identity_changed(replace(one, principal="User:alice"))
    assert first.identity == replace(one, principal="User:alice", client_instance_id=uuid(1))
    assert second.identity is two
    instances.identity_changed(connection(id="never asked"))


def test_changes_do_not_disturb_an_iteration() -> None:
    instances = remembering(2)
    keep(instances, 1, 0)
    keep(instances, 2, 0)
    seen: list[Uuid] = []
    for instance in instances:
        keep(instances, 10 + len(seen), 1)
        seen.append(instance.id)
    assert seen == [uuid(1), uuid(2)]


def test_each_forgotten_instance_is_reported_once() -> None:
    forgotten: list[Uuid] = []
    instances = ClientInstances(2, forgotten.append)
    gone = connection(id="gone")
    keep(instances, 1, 0, used_by=gone)
    instances.disconnected(gone.id)
    keep(instances, 2, 0)
    keep(instances, 3, 1)
    keep(instances, 4, 2)
    assert forgotten == [uuid(1), uuid(2)]
    keep(instances, 3, 1000)
    assert sorted(forgotten) == [uuid(1), uuid(2), uuid(3), uuid(4)]
    assert instances.forget_expired(5000, 10) == 1
    assert forgotten[-1] == uuid(3)
    assert len(forgotten) == 5


def test_each_of_the_last_60_minutes_with_an_accepted_push_has_a_bit() -> None:
    instance = new()
    assert instance.pushed_minutes(30) == 0
    for now in (30, 50, 61, 200):
        assert push(instance, now) is NONE
    assert push(instance, 210 - 1) is THROTTLED
    assert instance.pushed_minutes(239) == 0b1101
    assert instance.pushed_minutes(240) == 0b11010
    assert instance.pushed_minutes(60 * 60 - 1) == 0b1101 << 56
    assert instance.pushed_minutes(60 * 60) == 0b101 << 57
    assert instance.pushed_minutes(1e12) == 0
    assert push(instance, 1e12) is NONE
    assert instance.pushed_minutes(1e12) == 1
