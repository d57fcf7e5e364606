"""Adds the points of one push to its series, and collects the cumulative metrics.

It decides which points are accepted. ``plugins._shared.cumulative.state`` decides which instances
exist.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from google.protobuf.message import DecodeError

from plugins._shared.cumulative.histograms import MAX_BUCKETS, remove_invalid_quantiles
from plugins._shared.cumulative.instances import Target
from plugins._shared.cumulative.result import OutputMetric, Result
from plugins._shared.cumulative.series import Kind, Series
from plugins._shared.cumulative.shape import Shape, learn
from plugins._shared.cumulative.sizes import described_bytes
from plugins._shared.cumulative.view import MetricView

#: This many consecutive late points mean that the client's clock was set back.
_CLOCK_SET_BACK: Final = 3

_DELTA: Final = 1
_CUMULATIVE: Final = 2
#: Bound on the bytes of a series' name, unit and attributes, because each series keeps them.
_MAX_SERIES_TEXT: Final = 4_096
#: Shapes that a target keeps beyond twice its series, for metrics without a shape.
_SPARE_SHAPES: Final = 16
#: Bound on the characters of a description.
_MAX_DESCRIPTION: Final = 1_024

#: Bound on the samples of a data point. OpenTelemetry's SDKs have 15 boundaries by default.
_MAX_SAMPLES: Final = MAX_BUCKETS + 2
#: After this many series without room, a push gets no more new series.
_MAX_REFUSALS: Final = 100
#: Bytes of an exponential histogram with all its buckets.
_EXPONENTIAL_BYTES: Final = 2 * MAX_BUCKETS * 100

#: ``DataPointFlags``: the point has no value.
_NO_RECORDED_VALUE: Final = 1

_KINDS: Final = {
    "gauge": Kind.GAUGE,
    "histogram": Kind.HISTOGRAM,
    "exponential_histogram": Kind.EXPONENTIAL,
    "summary": Kind.SUMMARY,
}
_NUMBERS: Final = frozenset({Kind.GAUGE, Kind.COUNTER, Kind.UP_DOWN})
#: Kinds without temporality.
_NO_TEMPORALITY: Final = frozenset({Kind.GAUGE, Kind.SUMMARY})


class Accumulator:
    """Adds the metrics of one push.

    Args:
        result: Receives the accepted points and output metrics.
        now_ns: Receive time of the push, nanoseconds since the epoch.
        make_room: Makes room for a number of series and bytes; False if there is none.
        series_bytes: See :class:`~plugins._shared.cumulative.state.Cumulative`.
    """

    def __init__(
        self,
        result: Result,
        *,
        now_ns: int,
        make_room: Callable[[int, int], bool],
        series_bytes: Callable[[Hashable, tuple[bytes, ...], int], int],
    ) -> None:
        #: The encodings of the push's metrics, in their order.
        self.shapes: dict[Target, list[Shape | None]] = {}
        self._result = result
        self._now_ns = now_ns
        self._make_room = make_room
        self._series_bytes = series_bytes
        # The smallest request for room that failed. Larger ones fail without another try.
        self._refused_room: tuple[int, int] | None = None
        self._refusals = 0
        # Times and values of the deltas of series with several in this push.
        self._deltas: dict[Series, set[tuple[int, float | None]]] = {}
        # Data points to drop from parsed metrics, by list and index.
        self._dropped: list[tuple[Any, int]] = []

    def add_scope(self, target: Target, scope_metrics: Any) -> None:
        """Add the metrics of a ``ScopeMetrics`` (of ``PushView``)."""
        result, points = self._result, self._result.points
        outputs: list[OutputMetric] = []
        result.scopes.append((scope_metrics, outputs))
        # Clients push the same metrics in the same order each time.
        known = target.shapes
        shapes = self.shapes.setdefault(target, [])
        for metric in scope_metrics.metrics:
            place = len(shapes)
            shape = known[place] if place < len(known) else None
            read = None if shape is None or not shape.series.alive else shape.read(metric)
            if shape is None or read is None:
                shapes.append(self._add_metric(target, metric, outputs))
                continue
            shapes.append(shape)
            start_ns, time_ns, number = read
            series = shape.series
            earlier = points.get(series)
            if earlier is None:
                if time_ns <= series.time_ns and self._is_late(series, time_ns, delta=shape.delta):
                    continue
            elif shape.delta and self._is_repeated(series, time_ns, number):
                continue
            if shape.delta:
                if not series.add_number(number, start_ns, time_ns):
                    result.refused += 1
                    continue
                series.delta = number
                output: OutputMetric = (shape, series.start_ns, time_ns, series.number)
            else:
                if not series.set_number(number, start_ns, time_ns):
                    result.refused += 1
                    continue
                unchanged = series.kind is Kind.GAUGE or series.start_ns == start_ns
                output = metric if unchanged else (shape, series.start_ns, time_ns, number)
            if earlier is not None:
                self._drop(earlier[2], earlier[3])
            series.late = 0
            series.time_ns = time_ns
            series.seen_ns = self._now_ns
            points[series] = (target, None, outputs, len(outputs))
            outputs.append(output)

    def finish(self) -> None:
        """Remove dropped points, and keep the shapes for the next push."""
        # From the back, so that earlier indexes stay valid.
        for points, index in sorted(self._dropped, key=lambda drop: drop[1], reverse=True):
            del points[index]
        for target, shapes in self.shapes.items():
            # Bounded, because a push may have any number of metrics without series.
            del shapes[2 * sum(map(len, target.series.values())) + _SPARE_SHAPES :]
            target.shapes = shapes

    def _add_metric(self, target: Target, encoded: bytes, outputs: list[OutputMetric]) -> Shape | None:
        """Add a metric of any kind and number of points; return its shape if it has one."""
        try:
            metric = MetricView.FromString(encoded)
        except DecodeError:
            self._result.refused += 1
            return None
        outputs.append(metric)
        form = metric.WhichOneof("data")
        if form is None:
            return None
        data = getattr(metric, form)
        kind = _KINDS.get(form) or (Kind.COUNTER if data.is_monotonic else Kind.UP_DOWN)
        # Read once, because each access creates another string, and the series share them.
        described = (metric.name, metric.unit, kind, metric.description[:_MAX_DESCRIPTION])
        temporality = _CUMULATIVE if kind in _NO_TEMPORALITY else data.aggregation_temporality
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
                self._result.refused += 1
                self._drop(data.data_points, index)
                continue
            time_ns = point.time_unix_nano or self._now_ns
            earlier = self._result.points.get(series)
            added = _identity(kind, point) if delta else None
            if (
                time_ns <= series.time_ns and self._is_late(series, time_ns, delta=delta)
                if earlier is None
                else added is not None and self._is_repeated(series, time_ns, added)
            ):
                self._drop(data.data_points, index)
                continue
            start_ns = point.start_time_unix_nano
            number = None
            if kind in _NUMBERS:
                number = point.as_int if point.HasField("as_int") else point.as_double
                accepted = _add_number(series, point, number, start_ns, time_ns, delta=delta)
            else:
                accepted = series.add_histogram(point, time_ns) if delta else series.is_valid_histogram(point)
            if not accepted:
                self._result.refused += 1
                self._drop(data.data_points, index)
                continue
            if earlier is not None:
                self._drop(earlier[2], earlier[3])
            series.late = 0
            series.delta = added
            series.time_ns = time_ns
            series.seen_ns = self._now_ns
            self._result.points[series] = (target, point, data.data_points, index)
            # Only the first point of a series in a push needs a shape.
            if number is not None and earlier is None and 0 < shape_bytes <= series.shape_bytes:
                shape = learn(
                    series, encoded, metric, delta=delta, start_ns=start_ns, time_ns=time_ns, number=number
                )
        return shape

    def _series(
        self, target: Target, described: tuple[str, str, Kind, str], point: Any, shape_bytes: int
    ) -> Series | None:
        """Return the series of a point; None if it is too large, invalid, or has no room.

        A number without a value is invalid (``metrics.proto``, ``NumberDataPoint``): it is not 0.
        """
        name, unit, kind, description = described
        if kind in _NUMBERS and point.WhichOneof("value") is None:
            return None
        if kind is Kind.SUMMARY:
            self._result.refused += remove_invalid_quantiles(point)
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
            # Its buckets may grow to the maximum, whatever the first point has.
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
        # A request at least as large as a failed one fails too, so it is not tried.
        if refused is not None and series >= refused[0] and size >= refused[1]:
            self._refusals += 1
            return False
        if self._make_room(series, size):
            return True
        self._refused_room = (series, size)
        self._refusals += 1
        return False

    def _is_repeated(self, series: Series, time_ns: int, delta: float) -> bool:
        """Return whether the push has the same delta of its series already.

        Other deltas of the same time are added, because the receiver may have dropped the attribute
        that told their series apart.
        """
        seen = self._deltas.get(series)
        if seen is None:
            seen = self._deltas[series] = {(series.time_ns, series.delta)}
        if (time_ns, delta) in seen:
            self._result.late += 1
            return True
        seen.add((time_ns, delta))
        return False

    def _is_late(self, series: Series, time_ns: int, *, delta: bool) -> bool:
        """Return whether to drop a point that is not newer than its series' last one."""
        if time_ns == series.time_ns and not delta:
            return False
        series.late += 1
        if series.late < _CLOCK_SET_BACK:
            self._result.late += 1
            return True
        series.reset()
        return False

    def _drop(self, where: Any, index: int) -> None:
        if isinstance(where, list):
            where[index] = None
        else:
            self._dropped.append((where, index))


def refuse_scope(result: Result, scope_metrics: Any) -> None:
    """Refuse every point of a ``ScopeMetrics`` (of ``PushView``)."""
    result.scopes.append((scope_metrics, []))
    for encoded in scope_metrics.metrics:
        try:
            metric = MetricView.FromString(encoded)
        except DecodeError:
            result.refused += 1
            continue
        if form := metric.WhichOneof("data"):
            result.refused += len(getattr(metric, form).data_points)


def _add_number(
    series: Series, point: Any, number: float, start_ns: int, time_ns: int, *, delta: bool
) -> bool:
    """Add a number and make its point cumulative; False if the number is invalid."""
    if not delta:
        if not series.set_number(number, start_ns, time_ns):
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


def _identity(kind: Kind, point: Any) -> float:
    """Return a number or hash that tells a delta from others of its series and time."""
    if kind in _NUMBERS:
        value: float = point.as_int if point.HasField("as_int") else point.as_double
        return value
    return hash(point.SerializeToString(deterministic=True))


def _samples(kind: Kind, point: Any) -> int:
    """Return the number of samples of a data point, at least 1."""
    if kind is Kind.HISTOGRAM:
        return 1 + max(len(point.explicit_bounds), len(point.bucket_counts))
    if kind is Kind.SUMMARY:
        return 1 + len(point.quantile_values)
    return 1


def _fits(name: str, unit: str, attributes: tuple[bytes, ...]) -> bool:
    return len(name) + len(unit) + sum(map(len, attributes)) <= _MAX_SERIES_TEXT
