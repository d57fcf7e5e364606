"""What a push became, and what ended.

Owns the values that :class:`plugins.cumulative.Cumulative` answers with, and how they are written as OTLP.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic

from plugins.cumulative.series import Series, SeriesState, Target, TargetState
from plugins.cumulative.shape import Shape

__all__ = ["Ended", "Kept", "Point", "Taken"]

#: A data point that counts: its target; itself, cumulative, or None where its series' number is all that it
#: has; and where it was put, a list and an index.
Point = tuple[Target[TargetState, SeriesState], Any, Any, int]

#: A metric that is told on: as it came; as its shape with start, time and number; as a ``MetricView``. None:
#: it is not.
Kept = bytes | tuple[Shape[SeriesState], int, int, int | float] | Any | None


@dataclass(slots=True)
class Ended(Generic[TargetState, SeriesState]):
    """What ended.

    Attributes:
        series: The series, each once.
        targets: The targets that have no series any more.
    """

    series: list[Series[SeriesState]] = field(default_factory=list)
    targets: list[Target[TargetState, SeriesState]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Taken(Generic[TargetState, SeriesState]):
    """What a push became.

    Attributes:
        points: The points that count, one for each series.
        ended: What ended before this push, or by it: a terminating push's own series end after their points.
        late: Points left out because they don't come after the last one of their series.
        refused: Points left out because they can't be added, are too long, or for want of room.
        push: The ``PushView``; nothing of a push that was seen before.
        scopes: Its ``ScopeMetrics`` with their metrics.
    """

    points: dict[Series[SeriesState], Point[TargetState, SeriesState]]
    ended: Ended[TargetState, SeriesState]
    push: Any
    scopes: list[tuple[Any, list[Kept[SeriesState]]]] = field(default_factory=list)
    late: int = 0
    refused: int = 0

    @property
    def data(self) -> bytes:
        """The metrics as OTLP bytes, cumulative, without the points that don't count."""
        for scope_metrics, kept in self.scopes:
            del scope_metrics.metrics[:]
            scope_metrics.metrics.extend([_encoded(metric) for metric in kept if metric is not None])
        return bytes(self.push.SerializeToString())


def _encoded(metric: Any) -> bytes:
    if isinstance(metric, bytes):
        return metric
    if isinstance(metric, tuple):
        shape, start_ns, time_ns, number = metric
        encoded: bytes = shape.write(start_ns, time_ns, number)
        return encoded
    return bytes(metric.SerializeToString())
