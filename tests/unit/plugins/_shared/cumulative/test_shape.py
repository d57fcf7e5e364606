"""A metric is read by its shape only if parsing it gives the same result."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from tests.unit.plugins._shared.cumulative.support import (
    BEGIN,
    CUMULATIVE,
    DELTA,
    SECOND,
    counter,
    gauge,
    number,
    points,
    push,
)
from tests.unit.plugins._shared.cumulative.test_state import cumulative, sums


def sums_by_push(*pushes: Metric) -> tuple[list[Any], int]:
    """Return the sums after each push of a metric, and how many pushes a shape read."""
    state = cumulative()
    out = []
    by_shape = 0
    for n, metric in enumerate(pushes, start=1):
        result = state.accumulate(push(metric, at=10 * n))
        by_shape += sum(isinstance(item, tuple | bytes) for _, kept in result.scopes for item in kept)
        out.append(sums(result))
    return out, by_shape


@pytest.mark.parametrize("temporality", [DELTA, CUMULATIVE])
@pytest.mark.parametrize("value", [3, 2.5])
def test_the_second_push_is_read_by_the_shape_of_the_first(value: float, temporality: Any) -> None:
    metrics = [
        counter(
            "c",
            number(
                value * n, since=0 if temporality == CUMULATIVE else 10 * n, at=10 * n + 10, labels={"a": "b"}
            ),
            temporality=temporality,
            unit="By",
        )
        for n in (0, 1, 2)
    ]
    out, by_shape = sums_by_push(*metrics)
    last = 3 * value if temporality == DELTA else 2 * value
    assert out[-1] == [(last, 0, 30)]
    assert by_shape == 2


@pytest.mark.parametrize("since", [None, 0])
def test_gauges_have_shapes_with_and_without_a_start(since: float | None) -> None:
    def one(value: float, at: float) -> Metric:
        fields = number(value, at=at)
        if since is None:
            del fields["start_time_unix_nano"]
        return gauge("g", fields)

    state = cumulative()
    state.accumulate(push(one(1.5, 10), at=10))
    metric = one(-2.5, 20)
    result = state.accumulate(push(metric, at=20))
    assert next(iter(points(result.data)))[0] == metric
    assert [kept for _, kept in result.scopes] == [[metric.SerializeToString()]]


@pytest.mark.parametrize(
    "changed",
    [
        gauge("g", number(2, at=20)),
        gauge("h", number(2.0, at=20)),
        gauge("g", number(2.0, at=20, labels={"a": "c"})),
        gauge("g", number(2.0, at=20), number(3.0, at=20, labels={"a": "b"})),
        counter("g", number(2.0, at=20)),
    ],
    ids=["whole", "name", "attributes", "points", "kind"],
)
def test_another_metric_in_the_same_place_is_read_whole(changed: Metric) -> None:
    out, by_shape = sums_by_push(gauge("g", number(1.0, at=10)), changed)
    fresh = sums(cumulative().accumulate(push(changed, at=20)))
    assert out[1] == fresh
    assert by_shape == 0


def test_a_metric_whose_number_occurs_twice_has_no_shape() -> None:
    fields = number(1.0, since=5, at=10)
    encoded = b"".join(
        [
            b"\x11" + struct.pack("<Q", fields["start_time_unix_nano"]),
            b"\x19" + struct.pack("<Q", fields["time_unix_nano"]),
            b"\x21" + struct.pack("<d", 1.0),
        ]
    )
    metric = gauge("g", fields)
    metric.metadata.add(key="copy").value.bytes_value = encoded
    assert sums_by_push(metric, metric)[1] == 0


def test_fields_in_another_order_have_no_shape() -> None:
    point = b"".join(
        [
            b"\x21" + struct.pack("<d", 1.5),
            b"\x19" + struct.pack("<Q", BEGIN + 10 * SECOND),
            b"\x11" + struct.pack("<Q", BEGIN),
        ]
    )
    gauge_ = b"\x0a" + bytes([len(point)]) + point
    metric = b"\x0a\x01g\x2a" + bytes([len(gauge_)]) + gauge_
    scope = b"\x12" + bytes([len(metric)]) + metric
    resource = b"\x12" + bytes([len(scope)]) + scope
    data = b"\x0a" + bytes([len(resource)]) + resource
    assert MetricsData.FromString(data).resource_metrics[0].scope_metrics[0].metrics[0].name == "g"
    state = cumulative()
    for n in (1, 2):
        result = state.accumulate(push(at=10 * n, data=data))
        assert sums(result) == [(1.5, 0, 10)]
        assert not any(isinstance(item, bytes) for _, kept in result.scopes for item in kept)


def test_an_ended_series_is_not_found_by_its_shape() -> None:
    state = cumulative()
    both = [counter("c", number(1, at=10)), gauge("g", number(1, at=10))]
    state.accumulate(push(*both, at=10))
    for at in (20, 30, 40, 50, 60):
        state.accumulate(push(counter("c", number(1, since=at - 10, at=at)), at=at))
    assert state.statistics.series == 1
    result = state.accumulate(
        push(*[counter("c", number(1, since=60, at=70)), gauge("g", number(2, at=70))], at=70)
    )
    assert state.statistics.series == 2
    assert [value for value, _, _ in sums(result)] == [7, 2]


def test_late_and_invalid_numbers_are_dropped_by_shape_too() -> None:
    state = cumulative()
    for at in (10, 20):
        state.accumulate(push(counter("c", number(1, since=at - 10, at=at)), at=at))
    assert state.accumulate(push(counter("c", number(1, since=10, at=20)), at=30)).late == 1
    assert state.accumulate(push(counter("c", number(-1, since=20, at=40)), at=40)).refused == 1
    assert sums(state.accumulate(push(counter("c", number(1, since=40, at=50)), at=50))) == [(3, 0, 50)]


def test_points_of_one_series_are_merged_by_shape_too() -> None:
    state = cumulative()
    for at in (10, 20, 30):
        same = [counter("c", number(n, since=at - 10, at=at)) for n in (1, 2)]
        result = state.accumulate(push(*same, at=at))
    assert sums(result) == [(9, 0, 30)]


def test_a_delta_repeated_in_one_push_counts_once_by_shape_too() -> None:
    state = cumulative()
    for at in (10, 20, 30):
        same = [counter("c", number(2, since=at - 10, at=at)) for _ in range(3)]
        result = state.accumulate(push(*same, at=at))
    assert (sums(result), result.late) == ([(6, 0, 30)], 2)
