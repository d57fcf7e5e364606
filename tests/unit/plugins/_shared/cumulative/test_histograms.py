"""Histograms add up, and their buckets stay bounded for any input."""

from __future__ import annotations

import math
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint, Metric

from plugins._shared.cumulative.histograms import MAX_BUCKETS, ExponentialTotal
from tests.unit.plugins._shared.cumulative.support import BEGIN, CUMULATIVE, DELTA, SECOND, points, push
from tests.unit.plugins._shared.cumulative.test_state import cumulative

MAX_UINT64 = (1 << 64) - 1


def histogram(
    buckets: list[int], *, at: float, bounds: tuple[float, ...] = (1.0, 5.0), **fields: Any
) -> Metric:
    metric = Metric(name="h")
    metric.histogram.aggregation_temporality = DELTA
    metric.histogram.data_points.add(
        start_time_unix_nano=BEGIN + int((at - 10) * SECOND),
        time_unix_nano=BEGIN + int(at * SECOND),
        count=sum(buckets),
        bucket_counts=buckets,
        explicit_bounds=bounds,
        **fields,
    )
    return metric


def exponential(scale: int, offset: int, buckets: list[int], *, at: float, **fields: Any) -> Metric:
    metric = Metric(name="e")
    metric.exponential_histogram.aggregation_temporality = DELTA
    metric.exponential_histogram.data_points.add(
        start_time_unix_nano=BEGIN + int((at - 10) * SECOND),
        time_unix_nano=BEGIN + int(at * SECOND),
        count=sum(buckets) + fields.get("zero_count", 0),
        scale=scale,
        positive={"offset": offset, "bucket_counts": buckets},
        **fields,
    )
    return metric


def last(*metrics: Metric) -> Any:
    """Return the point of the last of several pushes, one for each metric."""
    state = cumulative()
    for n, metric in enumerate(metrics, start=1):
        result = state.accumulate(push(metric, at=10 * n))
    ((got, point),) = points(result.data)
    form = got.WhichOneof("data")
    assert form is not None
    assert getattr(got, form).aggregation_temporality == CUMULATIVE
    return point


def start_s(point: Any) -> float:
    return float((point.start_time_unix_nano - BEGIN) / SECOND)


def test_histograms_add_up() -> None:
    point = last(
        histogram([1, 2, 3], at=10, sum=20.5, min=0.5, max=9),
        histogram([4, 0, 1], at=20, sum=8.0, min=0.1, max=7),
    )
    assert list(point.bucket_counts) == [5, 2, 4]
    assert (point.count, point.sum, start_s(point)) == (11, 28.5, 0)
    assert not point.HasField("min")
    assert not point.HasField("max")


def test_the_sum_is_unknown_if_one_delta_has_none() -> None:
    assert not last(histogram([1, 0, 0], at=10, sum=1.0), histogram([1, 0, 0], at=20)).HasField("sum")


def test_a_histogram_without_buckets_has_a_count() -> None:
    point = last(
        *(histogram([], at=at, bounds=(), sum=2.0) for at in (10, 20)),
    )
    assert (list(point.bucket_counts), point.sum) == ([], 4.0)


def test_other_boundaries_reset() -> None:
    point = last(histogram([1, 2, 3], at=10), histogram([4, 0, 1], at=20, bounds=(1.0, 6.0)))
    assert (list(point.bucket_counts), start_s(point)) == ([4, 0, 1], 10)


def test_full_counts_reset() -> None:
    point = last(histogram([MAX_UINT64, 0, 0], at=10), histogram([1, 0, 0], at=20))
    assert (list(point.bucket_counts), start_s(point)) == ([1, 0, 0], 10)


def test_buckets_that_do_not_fit_the_boundaries_are_left_out() -> None:
    assert cumulative().accumulate(push(histogram([1, 2], at=10), at=10)).refused == 1


def test_exponential_histograms_add_up_at_the_coarser_scale() -> None:
    point = last(
        exponential(1, -2, [1, 1, 1, 1], at=10, sum=4.0, zero_count=1),
        exponential(0, 0, [10, 10], at=20, sum=40.0, zero_count=2),
    )
    # At scale 0, the finer buckets -2 and -1 are bucket -1, and 0 and 1 are bucket 0.
    assert (point.scale, point.positive.offset) == (0, -1)
    assert list(point.positive.bucket_counts) == [2, 12, 10]
    assert (point.count, point.zero_count, point.sum, start_s(point)) == (27, 3, 44.0, 0)


def test_another_zero_threshold_resets() -> None:
    point = last(exponential(0, 0, [1], at=10), exponential(0, 0, [2], at=20, zero_threshold=0.1))
    assert (list(point.positive.bucket_counts), start_s(point)) == ([2], 10)


@pytest.mark.parametrize("scale", [20, 0, -10])
def test_indexes_at_both_ends_of_the_range_take_no_more_buckets(scale: int) -> None:
    ends = (exponential(scale, -(1 << 31), [1], at=10), exponential(scale, (1 << 31) - 1, [2], at=20))
    point = last(*ends)
    assert len(point.positive.bucket_counts) <= MAX_BUCKETS
    assert sum(point.positive.bucket_counts) == 3
    assert point.scale < scale


def test_a_coarser_bucket_has_the_counts_of_its_finer_ones() -> None:
    point = ExponentialHistogramDataPoint(scale=3)
    point.positive.offset = -20
    point.positive.bucket_counts.extend(range(1, 41))
    fine = ExponentialTotal.of(point)
    assert fine is not None
    coarse = fine.at_scale(1)

    def upper(total: ExponentialTotal, index: int) -> float:
        return math.pow(2.0, (index + 1) * 2.0**-total.scale)

    for bound in (0.5, 1.0, 2.0):
        assert sum(n for index, n in fine.positive.items() if upper(fine, index) <= bound * 1.0001) == sum(
            n for index, n in coarse.positive.items() if upper(coarse, index) <= bound * 1.0001
        )
