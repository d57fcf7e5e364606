"""Deltas become sums that shrink only at a restart, and nothing counts twice."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags, Metric, MetricsData

from plugins._shared.cumulative import Cumulative, Result
from tests.unit.plugins._shared.cumulative.support import (
    BEGIN,
    CUMULATIVE,
    DELTA,
    SECOND,
    counter,
    gauge,
    metrics_data,
    number,
    points,
    push,
)


def cumulative(max_series: int = 1000) -> Cumulative:
    return Cumulative(max_series=max_series)


def sums(result: Result) -> list[tuple[float, float, float]]:
    """Return value, start and time of each point; times are seconds after BEGIN."""
    found = []
    for metric, point in points(result.data):
        if metric.WhichOneof("data") == "sum":
            assert metric.sum.aggregation_temporality == CUMULATIVE
        value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
        found.append(
            (value, (point.start_time_unix_nano - BEGIN) / SECOND, (point.time_unix_nano - BEGIN) / SECOND)
        )
    return found


def test_deltas_add_up_since_the_start_of_the_first() -> None:
    state = cumulative()
    assert sums(state.accumulate(push(counter("c", number(5, since=1, at=10)), at=10))) == [(5, 1, 10)]
    assert sums(state.accumulate(push(counter("c", number(3, since=10, at=20)), at=20))) == [(8, 1, 20)]
    assert sums(state.accumulate(push(counter("c", number(0, since=20, at=30)), at=30))) == [(8, 1, 30)]
    assert state.statistics.series == 1


def test_each_set_of_attributes_is_a_series_in_any_order() -> None:
    state = cumulative()
    one: dict[str, str | int] = {"topic": "a", "partition": 1}
    other: dict[str, str | int] = {"topic": "a", "partition": 2}
    state.accumulate(push(counter("c", number(1, at=10, labels=one), number(10, at=10, labels=other)), at=10))
    turned = dict(reversed(one.items()))
    result = state.accumulate(
        push(counter("c", number(20, at=20, labels=other), number(2, at=20, labels=turned)), at=20)
    )
    assert [value for value, _, _ in sums(result)] == [30, 3]
    assert state.statistics.series == 2


def test_instances_metrics_units_and_kinds_are_distinct_series() -> None:
    state = cumulative()
    different = (
        ("c", "", True, "a"),
        ("d", "", True, "a"),
        ("c", "ms", True, "a"),
        ("c", "", False, "a"),
        ("c", "", True, "b"),
    )
    for sequence, (name, unit, monotonic, instance) in enumerate(different, start=1):
        metric = counter(name, number(7, at=10), unit=unit, monotonic=monotonic)
        result = state.accumulate(
            push(metric, at=10, instance=instance, push_id=str(sequence), sequence=sequence)
        )
        assert sums(result) == [(7, 0, 10)]
    assert state.statistics.series == 5


def test_cumulative_points_and_gauges_are_unchanged() -> None:
    metrics = (
        gauge("g", number(-1.5, at=10)),
        counter("total", number(100, since=-50, at=10), temporality=CUMULATIVE),
    )
    one = push(*metrics, at=10, resource={"client_id": "x"})
    assert cumulative().accumulate(one).data == one.payload.data


def test_other_fields_are_written_unchanged() -> None:
    data = MetricsData.FromString(
        metrics_data(counter("c", number(1, at=10, labels={"a": "b"})), resource={"r": 1})
    )
    scope = data.resource_metrics[0].scope_metrics[0]
    scope.scope.name, scope.scope.version = "kgo", "1"
    scope.metrics[0].description = "What it is."
    scope.metrics[0].sum.data_points[0].exemplars.add(as_double=3.5, span_id=b"12345678")
    result = cumulative().accumulate(push(at=10, data=data.SerializeToString()))
    scope.metrics[0].sum.aggregation_temporality = CUMULATIVE
    assert MetricsData.FromString(result.data) == data


@pytest.mark.parametrize("again", ["same key", "same bytes"])
def test_a_repeated_push_adds_nothing(again: str) -> None:
    state = cumulative()
    first = push(counter("c", number(5, at=10)), at=10)
    state.accumulate(first)
    if again == "same key":
        result = state.accumulate(push(counter("c", number(5, since=10, at=11)), at=10, push_id="other"))
    else:
        result = state.accumulate(push(counter("c", number(5, at=10)), at=11, push_id=first.payload.push_id))
    assert result.data == b""
    assert sums(state.accumulate(push(counter("c", number(1, since=10, at=20)), at=20))) == [(6, 0, 20)]


def test_a_repeated_terminating_push_adds_nothing() -> None:
    state = cumulative()
    last = push(counter("c", number(5, at=10)), at=10, terminating=True)
    assert len(state.accumulate(last).ended.series) == 1
    again = push(counter("c", number(5, at=10)), at=12, terminating=True, push_id=last.payload.push_id)
    result = state.accumulate(again)
    assert (result.data, result.ended.series) == (b"", [])


@pytest.mark.parametrize("at", [20, 15])
def test_a_delta_that_is_not_after_the_last_one_adds_nothing(at: float) -> None:
    state = cumulative()
    state.accumulate(push(counter("c", number(5, since=10, at=20)), at=20))
    result = state.accumulate(
        push(counter("c", number(5, since=10, at=at)), gauge("g", number(1, at=21)), at=21)
    )
    assert result.late == 1
    assert [metric.name for metric, _ in points(result.data)] == ["g"]
    assert sums(state.accumulate(push(counter("c", number(1, since=20, at=30)), at=30))) == [(6, 10, 30)]


def test_an_older_gauge_does_not_replace_a_newer_one_and_an_equally_old_one_does() -> None:
    state = cumulative()
    state.accumulate(push(gauge("g", number(1, at=20)), at=20))
    assert sums(state.accumulate(push(gauge("g", number(2, at=19)), at=21))) == []
    assert sums(state.accumulate(push(gauge("g", number(3, at=20)), at=22))) == [(3, 0, 20)]


def test_a_series_restarts_at_the_third_push_after_the_clock_was_set_back() -> None:
    state = cumulative()
    state.accumulate(push(counter("c", number(5, since=1000, at=1010)), at=10))
    for at in (20, 30):
        assert sums(state.accumulate(push(counter("c", number(5, since=at - 10, at=at)), at=at))) == []
    assert sums(state.accumulate(push(counter("c", number(7, since=30, at=40)), at=40))) == [(7, 30, 40)]
    assert sums(state.accumulate(push(counter("c", number(1, since=40, at=50)), at=50))) == [(8, 30, 50)]


def test_a_start_after_the_time_is_ignored() -> None:
    assert sums(cumulative().accumulate(push(counter("c", number(5, since=90, at=10)), at=10))) == [
        (5, 10, 10)
    ]


@pytest.mark.parametrize("bad", [-1, -0.5, math.nan, math.inf])
def test_an_invalid_delta_is_dropped(bad: float) -> None:
    state = cumulative()
    state.accumulate(push(counter("c", number(5, at=10)), at=10))
    result = state.accumulate(push(counter("c", number(bad, since=10, at=20)), at=20))
    assert (sums(result), result.refused) == ([], 1)
    assert sums(state.accumulate(push(counter("c", number(2, since=20, at=30)), at=30))) == [(7, 0, 30)]


@pytest.mark.parametrize("bad", [-1, -0.5, math.nan, math.inf])
@pytest.mark.parametrize("good", [5, 5.0])
def test_an_invalid_cumulative_number_is_dropped(good: float, bad: float) -> None:
    state = cumulative()
    first = state.accumulate(push(counter("c", number(bad, since=1, at=5), temporality=CUMULATIVE), at=5))
    assert (sums(first), first.refused) == ([], 1)
    state.accumulate(push(counter("c", number(good, since=1, at=10), temporality=CUMULATIVE), at=10))
    result = state.accumulate(push(counter("c", number(bad, since=1, at=20), temporality=CUMULATIVE), at=20))
    assert (sums(result), result.refused) == ([], 1)
    result = state.accumulate(
        push(counter("c", number(good + 2, since=1, at=30), temporality=CUMULATIVE), at=30)
    )
    assert sums(result) == [(7, 1, 30)]


def test_a_sum_without_a_temporality_is_dropped() -> None:
    result = cumulative().accumulate(push(counter("c", number(5, at=10), temporality=0), at=10))
    assert (sums(result), result.refused) == ([], 1)


def test_sums_that_may_shrink_add_up_too() -> None:
    state = cumulative()
    state.accumulate(push(counter("c", number(5, at=10), monotonic=False), at=10))
    assert sums(state.accumulate(push(counter("c", number(-8, at=20), monotonic=False), at=20))) == [
        (-3, 0, 20)
    ]


def test_a_sum_over_64_bits_restarts() -> None:
    state = cumulative()
    state.accumulate(push(counter("c", number((1 << 63) - 1, since=0, at=10)), at=10))
    assert sums(state.accumulate(push(counter("c", number(2, since=10, at=20)), at=20))) == [(2, 10, 20)]


def test_doubles_lose_nothing_to_rounding() -> None:
    state = cumulative()
    state.accumulate(push(counter("c", number(1e16, at=1)), at=1))
    for n in range(100):
        result = state.accumulate(push(counter("c", number(0.1, since=1 + n, at=2 + n)), at=2 + n))
    assert sums(result)[0][0] == 1e16 + 10.0


def test_a_client_may_change_from_whole_numbers_to_doubles() -> None:
    state = cumulative()
    values: list[float] = [0, 3, 4, 0.5, 2]
    totals = [
        sums(state.accumulate(push(counter("c", number(value, since=n, at=n + 1)), at=n + 1)))[0][0]
        for n, value in enumerate(values)
    ]
    assert totals == [0, 3, 7, 7.5, 9.5]


def test_points_with_the_same_attributes_are_merged() -> None:
    same = counter("c", number(1, at=10), number(2, at=10)), counter("c", number(4, at=10))
    state = cumulative()
    assert sums(state.accumulate(push(*same, at=10))) == [(7, 0, 10)]
    assert sums(state.accumulate(push(gauge("g", number(1, at=10), number(2, at=10)), at=20))) == [(2, 0, 10)]


def test_a_point_without_a_recorded_value_does_not_count() -> None:
    point = number(5, at=10) | {"flags": DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK}
    result = cumulative().accumulate(push(counter("c", point), at=10))
    assert result.points == {}


def test_a_cumulative_counter_that_shrank_starts_after_its_last_point() -> None:
    state = cumulative()
    state.accumulate(push(counter("c", number(10, since=0, at=10), temporality=CUMULATIVE), at=10))
    for at, value, start in ((20, 4, 10), (30, 6, 10), (40, 1, 30)):
        result = state.accumulate(
            push(counter("c", number(value, since=0, at=at), temporality=CUMULATIVE), at=at)
        )
        assert sums(result) == [(value, start, at)]


def test_a_cumulative_counter_with_a_later_start_starts_there() -> None:
    state = cumulative()
    state.accumulate(push(counter("c", number(10, since=0, at=10), temporality=CUMULATIVE), at=10))
    result = state.accumulate(push(counter("c", number(12, since=15, at=20), temporality=CUMULATIVE), at=20))
    assert sums(result) == [(12, 15, 20)]


def test_a_counter_continues_when_the_temporality_changes() -> None:
    state = cumulative()
    state.accumulate(push(counter("c", number(10, since=0, at=10), temporality=CUMULATIVE), at=10))
    result = state.accumulate(push(counter("c", number(5, since=10, at=20), temporality=DELTA), at=20))
    assert sums(result) == [(15, 0, 20)]


def test_accumulated_real_pushes_equal_the_clients_own_totals(
    java_pushes: list[tuple[bytes, float]],
) -> None:
    """The sum of a Java client's deltas equals the total that it would push."""
    state = cumulative()
    expected: dict[Any, float] = {}
    for data, at in java_pushes:
        for metric, point in points(data):
            if metric.HasField("sum"):
                key = (metric.name, str(point.attributes))
                expected[key] = expected.get(key, 0.0) + point.as_double
        result = state.accumulate(push(at=at, data=data))
    got = {
        (metric.name, str(point.attributes)): point.as_double
        for metric, point in points(result.data)
        if metric.HasField("sum")
    }
    assert got
    assert {key: expected[key] for key in got} == got


def test_a_delta_repeated_in_one_push_counts_once() -> None:
    state = cumulative()
    repeated = [number(2.0, at=10)] * 3
    result = state.accumulate(push(counter("c", *repeated, number(5.0, at=20), number(2.0, at=10)), at=20))
    assert (sums(result), result.late) == ([(7.0, 0, 20)], 3)


def test_deltas_of_one_time_that_differ_are_added() -> None:
    """The receiver may have dropped the attribute that told their series apart."""
    result = cumulative().accumulate(push(counter("c", number(1, at=10), number(2, at=10)), at=10))
    assert (sums(result), result.late) == ([(3, 0, 10)], 0)


@pytest.mark.parametrize("form", [gauge, counter])
def test_a_point_without_a_value_is_refused(form: Callable[..., Metric]) -> None:
    """It is invalid (metrics.proto, NumberDataPoint), and not 0."""
    state = cumulative()
    result = state.accumulate(
        push(form("m", number(1, at=10, labels={"n": 1}), {"time_unix_nano": BEGIN}), at=10)
    )
    assert (result.refused, state.statistics.series) == (1, 1)
    assert [value for value, *_ in sums(result)] == [1]
