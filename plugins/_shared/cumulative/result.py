"""The result of accumulating a push, and how it is written as OTLP."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from plugins._shared.cumulative.instances import Target
from plugins._shared.cumulative.series import Series
from plugins._shared.cumulative.shape import Shape

#: An accepted data point: its target, the cumulative data point (None if its series' number is all
#: it has), and its place: a list and an index.
Point = tuple[Target, Any, Any, int]

#: An output metric: its bytes as received, or its shape with start, time and number, or a
#: ``MetricView``. None: the metric is left out.
OutputMetric = bytes | tuple[Shape, int, int, int | float] | Any | None


@dataclass(slots=True)
class Ended:
    """Series that ended, each once, and targets that have no series left."""

    series: list[Series] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Result:
    """The result of accumulating one push."""

    points: dict[Series, Point]
    ended: Ended
    """What ended before this push or by it. The series of a terminating push end after their
    points."""
    push: Any
    """The ``PushView``; empty for a repeated push."""
    scopes: list[tuple[Any, list[OutputMetric]]] = field(default_factory=list)
    late: int = 0
    """Points dropped because they are not after the last one of their series."""
    refused: int = 0
    """Points dropped because they are invalid, too long, or have no room."""

    @property
    def data(self) -> bytes:
        """The cumulative metrics as OTLP bytes, without dropped points."""
        for scope_metrics, metrics in self.scopes:
            del scope_metrics.metrics[:]
            scope_metrics.metrics.extend([_encoded(metric) for metric in metrics if metric is not None])
        return bytes(self.push.SerializeToString())


def _encoded(metric: Any) -> bytes:
    if isinstance(metric, bytes):
        return metric
    if isinstance(metric, tuple):
        shape, start_ns, time_ns, number = metric
        encoded: bytes = shape.write(start_ns, time_ns, number)
        return encoded
    return bytes(metric.SerializeToString())
