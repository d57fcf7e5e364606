"""Replaces the data points over a bound on series by one overflow series.

*Over a budget*: the data points of metrics that KIP-714 requires stay first, then those of other
metrics in the push's order, so that the same series stay from push to push. All metrics after the
last that fits are dropped.

*New beyond a limit*: the data points of the refused series are dropped.

One series counts the dropped points, with OpenTelemetry's overflow attribute.

Source: OpenTelemetry specification, metrics SDK, "Overflow attribute".
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from receiver.telemetry.otlp_views import points_of

#: The metric that counts the dropped data points.
OVERFLOW_METRIC: Final = "kafka.client.telemetry.overflow"
_OVERFLOW_ATTRIBUTE: Final = "otel.metric.overflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """The result of fitting a list of metrics into a budget."""

    kept: list[bool]  # which metrics stay, at least in part
    cut: tuple[int, bytes] | None  # the index of the metric that lost some points, and its new bytes
    first: int  # the index of the first metric that lost points


def leave_out(metrics: Sequence[bytes], required: Sequence[bool], series: int, max_series: int) -> Overflow:
    """Choose ``max_series`` of the ``series`` data points of metrics, which are more.

    ``required`` says whether KIP-714 requires each metric.
    """
    order = sorted(range(len(metrics)), key=lambda index: not required[index])
    stay, before = _fitting([metrics[index] for index in order], max_series)
    kept = [False] * len(metrics)
    for index in order[:stay]:
        kept[index] = True
    dropped = order[stay:]
    cut = None
    last = order[stay - 1]
    if stay and before + points_of([metrics[last]]) > max_series:
        cut = last, _first_points(metrics[last], max_series - before)
        dropped.append(last)
    first = min(dropped)
    return Overflow(kept=kept, cut=cut, first=first)


def without_series(
    metrics: Sequence[bytes], by_metric: Sequence[Sequence[int]], refused: Collection[int]
) -> tuple[list[bytes], list[int]]:
    """Drop the data points of the refused series, and metrics that lose all.

    Returns the other metrics, and the index that each of them had.

    Args:
        by_metric: The key of each of their data points.
        refused: Keys of series.
    """
    remaining: list[bytes] = []
    places: list[int] = []
    for index, (metric, keys) in enumerate(zip(metrics, by_metric, strict=True)):
        kept = [key not in refused for key in keys]
        if not all(kept):
            if not any(kept):
                continue
            cut = _selected(metric, kept)
            if cut is None:
                continue
            metric = cut
        remaining.append(metric)
        places.append(index)
    return remaining, places


def _selected(metric: bytes, kept: Sequence[bool]) -> bytes | None:
    """Return a metric with some of its points; None if it has several kinds of data."""
    parsed = Metric.FromString(metric)
    points = _data_points(parsed)
    if len(points) != len(kept):
        return None
    selected = list(itertools.compress(points, kept))
    del points[:]
    points.extend(selected)
    return bytes(parsed.SerializeToString())


def _fitting(metrics: Sequence[bytes], max_series: int) -> tuple[int, int]:
    """Return how many metrics fit, and the points before the last.

    The last may fit in part.

    A binary search, so that protobuf counts the points and Python does not parse each metric.
    """
    if not max_series:
        return 0, 0
    begin, end, before = 0, len(metrics), 0
    while end - begin > 1:
        middle = (begin + end) // 2
        points = before + points_of(metrics[begin:middle])
        if points >= max_series:
            end = middle
        else:
            begin, before = middle, points
    return end, before


def _first_points(metric: bytes, count: int) -> bytes:
    parsed = Metric.FromString(metric)
    del _data_points(parsed)[count:]
    return bytes(parsed.SerializeToString())


def overflow_metric(dropped: bytes, points: int) -> bytes:
    """Return the encoded metric that counts dropped points.

    ``dropped`` is a metric of them.
    """
    # The time is that of a dropped point, if the metric shows one: Counted also counts the points
    # of data that other data replaced.
    parsed = Metric.FromString(dropped)
    dropped_points = _data_points(parsed) if parsed.WhichOneof("data") else ()
    time_unix_nano = dropped_points[-1].time_unix_nano if dropped_points else 0
    metric = Metric(name=OVERFLOW_METRIC, unit="{point}")
    point = metric.gauge.data_points.add(time_unix_nano=time_unix_nano, as_int=points)
    point.attributes.add(key=_OVERFLOW_ATTRIBUTE).value.bool_value = True
    return bytes(metric.SerializeToString())


def _data_points(metric: Any) -> Any:
    return getattr(metric, metric.WhichOneof("data")).data_points
