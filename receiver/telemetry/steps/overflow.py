"""What becomes of a push with more series than its client may have.

Owns which data points stay: those of the metrics that KIP-714 requires first, then in the push's order, so
that the same series stay from push to push. Behind the last that may stay, every metric goes. All others
become one series that tells how many they were, as OpenTelemetry's own overflow attribute marks it. It must
not know who may have how many.

Source: OpenTelemetry specification, metrics SDK, "Overflow attribute".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from receiver.telemetry.otlp_views import points_of

__all__ = ["OVERFLOW_METRIC", "Overflow", "leave_out"]

#: The metric that tells how many data points were left out.
OVERFLOW_METRIC: Final = "kafka.client.telemetry.overflow"
_OVERFLOW_ATTRIBUTE: Final = "otel.metric.overflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """What stays of a list of metrics.

    Attributes:
        kept: Which of them stay.
        cut: The one that stays in part: its index and what is left of it; None where none does.
        first: The index of the first that does not stay, or stays in part.
        metric: The encoded metric that stands for what was left out.
    """

    kept: list[bool]
    cut: tuple[int, bytes] | None
    first: int
    metric: bytes


def leave_out(metrics: Sequence[bytes], required: Sequence[bool], series: int, max_series: int) -> Overflow:
    """Choose the data points that stay.

    Args:
        metrics: Encoded Metric messages.
        required: Whether KIP-714 requires each.
        series: How many data points they have in all.
        max_series: How many may stay, less than that.

    Returns:
        What stays.
    """
    order = [index for index, wanted in enumerate(required) if wanted]
    order += [index for index, wanted in enumerate(required) if not wanted]
    stay, before = _that_stay([metrics[index] for index in order], max_series)
    kept = [False] * len(metrics)
    for index in order[:stay]:
        kept[index] = True
    gone = order[stay:]
    cut = None
    last = order[stay - 1]
    if stay and before + points_of([metrics[last]]) > max_series:
        cut = last, _first_points(metrics[last], max_series - before)
        gone.append(last)
    first = min(gone)
    return Overflow(kept=kept, cut=cut, first=first, metric=_overflow(metrics[first], series - max_series))


def _that_stay(metrics: Sequence[bytes], max_series: int) -> tuple[int, int]:
    """Say how many metrics stay, the last perhaps in part, and how many points those before the last have.

    By halves, so that protobuf counts and Python does not look at each.
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


def _overflow(left_out: bytes, points: int) -> bytes:
    # A point that was left out lends its time; of data that other data replaced, nothing is to be seen.
    parsed = Metric.FromString(left_out)
    examples = _data_points(parsed) if parsed.WhichOneof("data") else ()
    time_unix_nano = examples[-1].time_unix_nano if examples else 0
    metric = Metric(name=OVERFLOW_METRIC, unit="{point}")
    point = metric.gauge.data_points.add(time_unix_nano=time_unix_nano, as_int=points)
    point.attributes.add(key=_OVERFLOW_ATTRIBUTE).value.bool_value = True
    return bytes(metric.SerializeToString())


def _data_points(metric: Any) -> Any:
    return getattr(metric, metric.WhichOneof("data")).data_points
