"""Offenders: instances that push too much are reduced and restored step by step."""

from __future__ import annotations

from receiver.settings.backpressure import BackPressureSettings
from receiver.telemetry.control.offenders import STANDARD_METRICS, Demand, Offence, Offenders, Reduced
from receiver.wire.uuid import Uuid
from tests.unit.telemetry.parts import INSTANCE

ANOTHER = Uuid(INSTANCE[::-1])
HOUR = 3600.0


def offenders(*, enabled: bool = True, **changes: object) -> Offenders:
    return Offenders(settings(enabled=enabled, **changes))


def settings(*, enabled: bool = True, **changes: object) -> BackPressureSettings:
    return BackPressureSettings.model_validate(
        {"enabled": enabled, "offenders": {"max_too_large": 3} | changes}
    )


def too_large(known: Offenders, *times: float) -> Demand:
    for now in times:
        known.demand(INSTANCE, now)
        known.record_push(INSTANCE, 0, now, too_large=True)
    return known.demand(INSTANCE, times[-1])


def test_the_standard_metrics_are_those_of_kip_714() -> None:
    assert len(set(STANDARD_METRICS)) == 21
    assert list(STANDARD_METRICS) == sorted(STANDARD_METRICS)


def test_a_reduced_demand_stays_within_the_subscriptions() -> None:
    assert Demand.EVERYTHING.prefixes(("org.apache.",)) == ("org.apache.",)
    assert Demand.STANDARD_METRICS.prefixes(("",)) == STANDARD_METRICS
    assert Demand.STANDARD_METRICS.prefixes(("org.apache.kafka.consumer.fetch.", "org.apache.kafka.x")) == (
        "org.apache.kafka.consumer.fetch.manager.fetch.latency.avg",
        "org.apache.kafka.consumer.fetch.manager.fetch.latency.max",
    )
    longer = "org.apache.kafka.consumer.poll.idle.ratio.avg.of"
    assert Demand.STANDARD_METRICS.prefixes((longer,)) == (longer,)
    assert Demand.STANDARD_METRICS.prefixes(()) == ()
    assert Demand.NOTHING.prefixes(("",)) == ()


def test_consecutive_too_large_pushes_reduce_in_two_steps() -> None:
    known = offenders()
    assert too_large(known, 1, 2) is Demand.EVERYTHING
    assert too_large(known, 3) is Demand.STANDARD_METRICS
    assert known.explain(INSTANCE, 3) == Reduced(
        demand=Demand.STANDARD_METRICS, offence=Offence.TOO_LARGE, relaxes_in_s=HOUR
    )
    assert too_large(known, 4, 5) is Demand.STANDARD_METRICS
    assert too_large(known, 6) is Demand.NOTHING
    assert too_large(known, 7, 8, 9) is Demand.NOTHING
    assert known.reductions == {Offence.TOO_LARGE: 3, Offence.BYTES_PER_MINUTE: 0}
    assert known.reduced == {Demand.STANDARD_METRICS: 0, Demand.NOTHING: 1}
    assert known.demand(ANOTHER, 9) is Demand.EVERYTHING
    assert known.explain(ANOTHER, 9) is None


def test_a_smaller_push_resets_the_count() -> None:
    known = offenders()
    for now in range(0, 30, 3):
        too_large(known, now, now + 1)
        known.record_push(INSTANCE, 100, now + 2, too_large=False)
    assert known.demand(INSTANCE, 30) is Demand.EVERYTHING


def test_a_step_is_taken_back_after_its_time() -> None:
    known = offenders()
    too_large(known, 0, 0, 0)
    assert known.demand(INSTANCE, HOUR - 1) is Demand.STANDARD_METRICS
    assert known.demand(INSTANCE, HOUR) is Demand.EVERYTHING
    assert known.explain(INSTANCE, HOUR) is None
    assert known.relaxations == 1


def test_a_repeated_offence_doubles_the_time_up_to_a_bound() -> None:
    known = offenders()
    now, waits = 0.0, []
    for _ in range(8):
        too_large(known, now, now, now)
        explained = known.explain(INSTANCE, now)
        assert explained is not None
        waits.append(explained.relaxes_in_s / HOUR)
        now += explained.relaxes_in_s
    assert waits == [1, 2, 4, 8, 16, 16, 16, 16]


def test_a_long_time_without_offence_resets_the_time() -> None:
    known = offenders()
    too_large(known, 0, 0, 0)
    # An hour reduced, and another hour in which an offence would count as repeated.
    too_large(known, 2 * HOUR, 2 * HOUR, 2 * HOUR)
    explained = known.explain(INSTANCE, 2 * HOUR)
    assert explained is not None
    assert explained.relaxes_in_s == HOUR


def test_steps_are_taken_back_one_by_one() -> None:
    known = offenders()
    too_large(known, 0, 0, 0, 0, 0, 0)
    assert known.demand(INSTANCE, 2 * HOUR) is Demand.STANDARD_METRICS
    assert known.demand(INSTANCE, 4 * HOUR) is Demand.EVERYTHING
    too_large(known, 4 * HOUR, 4 * HOUR, 4 * HOUR, 4 * HOUR, 4 * HOUR, 4 * HOUR)
    # Even when it was silent all the time.
    assert known.demand(INSTANCE, 100 * HOUR) is Demand.EVERYTHING


def test_another_too_large_push_delays_relaxation() -> None:
    known = offenders()
    too_large(known, 0, 0, 0)
    too_large(known, HOUR - 1)
    assert known.demand(INSTANCE, HOUR + 1) is Demand.STANDARD_METRICS


def test_more_bytes_in_a_minute_than_allowed_are_an_offence() -> None:
    known = offenders(max_bytes_per_minute=2000)
    for now in (0, 20, 60, 80, 120):
        known.record_push(INSTANCE, 1000, now, too_large=False)
    assert known.demand(INSTANCE, 120) is Demand.EVERYTHING
    known.record_push(INSTANCE, 1001, 179, too_large=False)
    assert known.demand(INSTANCE, 179) is Demand.STANDARD_METRICS
    explained = known.explain(INSTANCE, 179)
    assert explained is not None
    assert explained.offence is Offence.BYTES_PER_MINUTE
    # The bytes of an offence do not count for the next.
    known.record_push(INSTANCE, 2000, 180, too_large=False)
    assert known.demand(INSTANCE, 180) is Demand.STANDARD_METRICS
    known.record_push(INSTANCE, 1, 181, too_large=False)
    assert known.demand(INSTANCE, 181) is Demand.NOTHING


def test_without_a_byte_limit_bytes_are_not_counted() -> None:
    known = offenders()
    known.record_push(INSTANCE, 1 << 40, 0, too_large=False)
    assert known.demand(INSTANCE, 0) is Demand.EVERYTHING


def test_no_instance_is_reduced_while_disabled() -> None:
    known = offenders(enabled=False, max_bytes_per_minute=1024)
    known.record_push(INSTANCE, 5000, 0, too_large=False)
    assert too_large(known, 1, 2, 3, 4) is Demand.EVERYTHING


def test_disabling_restores_every_demand_at_once() -> None:
    known = offenders()
    too_large(known, 1, 2, 3)
    known.replace_settings(settings(enabled=False))
    assert known.demand(INSTANCE, 3) is Demand.EVERYTHING
    assert known.reduced == {Demand.STANDARD_METRICS: 0, Demand.NOTHING: 0}


def test_a_forgotten_instance_starts_without_offences() -> None:
    known = offenders()
    too_large(known, 1, 2, 3)
    known.forget(INSTANCE)
    known.forget(INSTANCE)
    assert known.reduced == {Demand.STANDARD_METRICS: 0, Demand.NOTHING: 0}
    assert too_large(known, 4, 5) is Demand.EVERYTHING
