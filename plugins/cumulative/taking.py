"""One push on its way into the state: metric by metric, point by point.

Owns which points count, and in which form each metric is told on. Who may be there is
``plugins.cumulative.cumulative``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, Generic

from google.protobuf.message import DecodeError

from plugins.cumulative.histograms import MAX_BUCKETS
from plugins.cumulative.series import Kind, Series, SeriesState, Target, TargetState
from plugins.cumulative.shape import Shape, learn
from plugins.cumulative.sizes import described_bytes, series_bytes
from plugins.cumulative.taken import Kept, Taken
from plugins.cumulative.view import MetricView

__all__ = ["Taking"]

#: So many points in a row are no repeats: the client's clock was set back.
_CLOCK_SET_BACK: Final = 3

_DELTA: Final = 1
_CUMULATIVE: Final = 2
#: Bytes of a series' name, unit and attributes; what has more is refused, as each series keeps them.
_MAX_SERIES_TEXT: Final = 4_096
#: Shapes that a target keeps beyond one for each of its series: for metrics without a shape in between.
_SPARE_SHAPES: Final = 16
#: Characters of a description that are kept.
_MAX_DESCRIPTION: Final = 1_024

#: Numbers of a data point; what has more is refused. OpenTelemetry's SDKs have 15 boundaries by default.
_MAX_SAMPLES: Final = MAX_BUCKETS + 2
#: After so many series without room, a push gets no more new ones, whatever their size.
_MAX_REFUSALS: Final = 100
#: Memory of an exponential histogram with all its buckets.
_EXPONENTIAL_BYTES: Final = 2 * MAX_BUCKETS * 100

#: ``DataPointFlags``: the point says that there is no value.
_NO_RECORDED_VALUE: Final = 1

_KINDS: Final = {
    "gauge": Kind.GAUGE,
    "histogram": Kind.HISTOGRAM,
    "exponential_histogram": Kind.EXPONENTIAL,
    "summary": Kind.SUMMARY,
}
_NUMBERS: Final = frozenset({Kind.GAUGE, Kind.COUNTER, Kind.UP_DOWN})
#: Kinds that have no temporality.
_MOMENTARY: Final = frozenset({Kind.GAUGE, Kind.SUMMARY})


class Taking(Generic[TargetState, SeriesState]):
    """Takes the metrics of one push.

    Args:
        taken: What the push becomes.
        now_ns: When it was received.
        make_room: Makes room for so many series and so many bytes; False if there is none.
        series_bytes: Estimates a series' bytes; see :class:`~plugins.cumulative.cumulative.Cumulative`.

    Attributes:
        shapes: The targets of the push, and how their metrics are encoded, in their order.
    """

    def __init__(
        self,
        taken: Taken[TargetState, SeriesState],
        *,
        now_ns: int,
        make_room: Callable[[int, int], bool],
        series_bytes: Callable[[Hashable, tuple[bytes, ...], int], int] = series_bytes,
    ) -> None:
        self.shapes: dict[Target[TargetState, SeriesState], list[Shape[SeriesState] | None]] = {}
        self._taken = taken
        self._now_ns = now_ns
        self._make_room = make_room
        self._series_bytes = series_bytes
        #: The smallest room that this push was refused, by series and bytes: more is refused at once.
        self._refused_room: tuple[int, int] | None = None
        self._refusals = 0
        #: Data points of changed metrics that are not told on, by list and index.
        self._left_out: list[tuple[Any, int]] = []

    def take_scope(self, target: Target[TargetState, SeriesState], scope_metrics: Any) -> None:
        """Take the metrics of a ``ScopeMetrics`` (of ``PushView``)."""
        taken, points = self._taken, self._taken.points
        kept: list[Kept[SeriesState]] = []
        taken.scopes.append((scope_metrics, kept))
        # Clients tell the same metrics in the same order in each push.
        known = target.shapes
        shapes = self.shapes.setdefault(target, [])
        for metric in scope_metrics.metrics:
            place = len(shapes)
            shape = known[place] if place < len(known) else None
            read = None if shape is None or not shape.series.alive else shape.read(metric)
            if shape is None or read is None:
                shapes.append(self._take_metric(target, metric, kept))
                continue
            shapes.append(shape)
            start_ns, time_ns, number = read
            series = shape.series
            again = points.get(series)
            if (
                time_ns <= series.time_ns
                and again is None
                and self._is_late(series, time_ns, delta=shape.delta)
            ):
                continue
            if shape.delta:
                if not series.add_number(number, start_ns, time_ns):
                    taken.refused += 1
                    continue
                told: Kept[SeriesState] = (shape, series.start_ns, time_ns, series.number)
            else:
                if not series.follow_number(number, start_ns, time_ns):
                    taken.refused += 1
                    continue
                as_it_came = series.kind is Kind.GAUGE or series.start_ns == start_ns
                told = metric if as_it_came else (shape, series.start_ns, time_ns, number)
            if again is not None:
                self._leave_out(again[2], again[3])
            series.late = 0
            series.time_ns = time_ns
            series.seen_ns = self._now_ns
            points[series] = (target, None, kept, len(kept))
            kept.append(told)

    def refuse_scope(self, scope_metrics: Any) -> None:
        """Refuse every point of a ``ScopeMetrics`` (of ``PushView``)."""
        self._taken.scopes.append((scope_metrics, []))
        for encoded in scope_metrics.metrics:
            try:
                metric = MetricView.FromString(encoded)
            except DecodeError:
                self._taken.refused += 1
                continue
            if form := metric.WhichOneof("data"):
                self._taken.refused += len(getattr(metric, form).data_points)

    def close(self) -> None:
        """Take away what is left out, and keep the shapes for the next push."""
        # From the back, so that the indexes that are still to come stay right.
        for points, index in sorted(self._left_out, key=lambda one: one[1], reverse=True):
            del points[index]
        for target, shapes in self.shapes.items():
            # A push may have any number of metrics that are no series: their places are not counted.
            del shapes[2 * sum(map(len, target.series.values())) + _SPARE_SHAPES :]
            target.shapes = shapes

    def _take_metric(
        self, target: Target[TargetState, SeriesState], encoded: bytes, kept: list[Kept[SeriesState]]
    ) -> Shape[SeriesState] | None:
        """Take a metric of any kind, with any number of points.

        Returns:
            Its shape, None where it has none.
        """
        try:
            metric = MetricView.FromString(encoded)
        except DecodeError:
            self._taken.refused += 1
            return None
        kept.append(metric)
        form = metric.WhichOneof("data")
        if form is None:
            return None
        data = getattr(metric, form)
        kind = _KINDS.get(form) or (Kind.COUNTER if data.is_monotonic else Kind.UP_DOWN)
        # Each access makes another text; all series of the metric are to have the same.
        described = (metric.name, metric.unit, kind, metric.description[:_MAX_DESCRIPTION])
        temporality = _CUMULATIVE if kind in _MOMENTARY else data.aggregation_temporality
        delta = temporality == _DELTA
        if delta:
            data.aggregation_temporality = _CUMULATIVE
        shape = None
        for index, point in enumerate(data.data_points):
            if point.flags & _NO_RECORDED_VALUE:
                continue
            series = None
            if temporality in (_DELTA, _CUMULATIVE):
                single = kind in _NUMBERS and len(data.data_points) == 1
                shape_bytes = len(encoded) if single and len(encoded) <= _MAX_SERIES_TEXT else 0
                series = self._series(target, described, point, shape_bytes)
            if series is None:
                self._taken.refused += 1
                self._leave_out(data.data_points, index)
                continue
            time_ns = point.time_unix_nano or self._now_ns
            again = self._taken.points.get(series)
            if time_ns <= series.time_ns and again is None and self._is_late(series, time_ns, delta=delta):
                self._leave_out(data.data_points, index)
                continue
            start_ns = point.start_time_unix_nano
            number = None
            if kind in _NUMBERS:
                number = point.as_int if point.HasField("as_int") else point.as_double
                counts = _count(series, point, number, start_ns, time_ns, delta=delta)
            else:
                counts = series.add_histogram(point, time_ns) if delta else series.follow_histogram(point)
            if not counts:
                self._taken.refused += 1
                self._leave_out(data.data_points, index)
                continue
            if again is not None:
                self._leave_out(again[2], again[3])
            series.late = 0
            series.time_ns = time_ns
            series.seen_ns = self._now_ns
            self._taken.points[series] = (target, point, data.data_points, index)
            # A series that a push has twice needs no second shape.
            if number is not None and again is None and 0 < shape_bytes <= series.shape_bytes:
                shape = learn(
                    series, encoded, metric, delta=delta, start_ns=start_ns, time_ns=time_ns, number=number
                )
        return shape

    def _series(
        self,
        target: Target[TargetState, SeriesState],
        described: tuple[str, str, Kind, str],
        point: Any,
        shape_bytes: int,
    ) -> Series[SeriesState] | None:
        """The series of a point; None if it is too large, cannot be read, or there is no room."""
        name, unit, kind, description = described
        samples = _samples(kind, point)
        key = (name, unit, kind)
        attributes = tuple(sorted(point.attributes))
        family = target.series.get(key)
        series = None if family is None else family.get(attributes)
        if series is not None and samples <= series.samples:
            return series
        if samples > _MAX_SAMPLES or not _fits(name, unit, attributes) or self._refusals >= _MAX_REFUSALS:
            return None
        try:
            size = self._series_bytes(target.key, attributes, samples)
        except (DecodeError, ValueError):
            return None
        size += described_bytes(name, unit, description, shape_bytes)
        if kind is Kind.EXPONENTIAL:
            # Its buckets may become as many as there can be, whatever the first point has.
            size += _EXPONENTIAL_BYTES
        if series is not None:
            if not self._room(0, size - series.size):
                return None
            series.size = max(size, series.size)
            series.samples = samples
            return series
        if not self._room(1, size):
            return None
        series = Series(name=name, unit=unit, description=description, kind=kind, attributes=attributes)
        series.size, series.samples, series.shape_bytes = size, samples, shape_bytes
        target.series.setdefault(key, {})[attributes] = series
        return series

    def _room(self, series: int, size: int) -> bool:
        if size <= 0:
            return True
        refused = self._refused_room
        # What this push was refused, it is refused again: so a push asks for it once.
        if refused is not None and series >= refused[0] and size >= refused[1]:
            self._refusals += 1
            return False
        if self._make_room(series, size):
            return True
        self._refused_room = (series, size)
        self._refusals += 1
        return False

    def _is_late(self, series: Series[SeriesState], time_ns: int, *, delta: bool) -> bool:
        """Whether a point that is not newer than the last one of its series comes too late to count."""
        if time_ns == series.time_ns and not delta:
            return False
        series.late += 1
        if series.late < _CLOCK_SET_BACK:
            self._taken.late += 1
            return True
        series.begin_anew()
        return False

    def _leave_out(self, where: Any, index: int) -> None:
        if isinstance(where, list):
            where[index] = None
        else:
            self._left_out.append((where, index))


def _count(
    series: Series[Any], point: Any, number: float, start_ns: int, time_ns: int, *, delta: bool
) -> bool:
    """Count a number and make its point cumulative; False where it can't count."""
    if not delta:
        if not series.follow_number(number, start_ns, time_ns):
            return False
        if series.kind is not Kind.GAUGE and series.start_ns != start_ns:
            point.start_time_unix_nano = series.start_ns
        return True
    if not series.add_number(number, start_ns, time_ns):
        return False
    if isinstance(series.number, int):
        point.as_int = series.number
    else:
        point.as_double = series.number
    point.start_time_unix_nano = series.start_ns
    return True


def _samples(kind: Kind, point: Any) -> int:
    """How many numbers a data point has, at least 1."""
    if kind is Kind.HISTOGRAM:
        return 1 + max(len(point.explicit_bounds), len(point.bucket_counts))
    if kind is Kind.SUMMARY:
        return 1 + len(point.quantile_values)
    return 1


def _fits(name: str, unit: str, attributes: tuple[bytes, ...]) -> bool:
    return len(name) + len(unit) + sum(map(len, attributes)) <= _MAX_SERIES_TEXT
