"""One series with its sum so far, and the target it belongs to.

Owns how the deltas of one series add up. Histograms themselves are ``plugins.cumulative.histograms``'s.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from plugins.cumulative.histograms import ExponentialTotal, HistogramTotal

if TYPE_CHECKING:
    from plugins.cumulative.shape import Shape

__all__ = ["Kind", "Series", "SeriesState", "Target", "TargetState"]

TargetState = TypeVar("TargetState")
SeriesState = TypeVar("SeriesState")

_MAX_INT64 = (1 << 63) - 1


class Kind(Enum):
    """What a series is."""

    GAUGE = "gauge"
    #: A sum that only grows.
    COUNTER = "counter"
    #: A sum that may shrink.
    UP_DOWN = "up_down"
    HISTOGRAM = "histogram"
    EXPONENTIAL = "exponential_histogram"
    SUMMARY = "summary"


class Series(Generic[SeriesState]):
    """One series of one target.

    Attributes:
        name: Its metric's name.
        unit: Its metric's unit, may be empty.
        description: What its metric is described as, cut where it is long; may be empty.
        kind: What it is.
        attributes: Its attributes, each an encoded ``KeyValue``, sorted.
        number: Its last value, cumulative; of a histogram or a summary None, like before the first.
        start_ns: Since when it counts, by the client's clock; 0 where that isn't known.
        time_ns: The time of its last point, by the client's clock.
        seen_ns: When the push with its last point was received.
        late: How many points in a row came too late to count.
        alive: Whether it hasn't ended.
        size: Its estimated bytes, as they were counted.
        samples: The number of samples that ``size`` allows for.
        shape_bytes: The length of an encoded metric that ``size`` allows for, to learn its shape.
        state: The caller's own, None until the caller sets it.
    """

    __slots__ = (
        "_histogram",
        "_lost",
        "_rounded",
        "alive",
        "attributes",
        "description",
        "kind",
        "late",
        "name",
        "number",
        "samples",
        "seen_ns",
        "shape_bytes",
        "size",
        "start_ns",
        "state",
        "time_ns",
        "unit",
    )

    def __init__(
        self, *, name: str, unit: str, description: str, kind: Kind, attributes: tuple[bytes, ...]
    ) -> None:
        self.name = name
        self.unit = unit
        self.description = description
        self.kind = kind
        self.attributes = attributes
        self.number: int | float | None = None
        self.start_ns = 0
        self.time_ns = 0
        self.seen_ns = 0
        self.late = 0
        self.alive = True
        self.size = 0
        self.samples = 0
        self.shape_bytes = 0
        self.state: SeriesState | None = None
        #: A sum of doubles as plain addition has it, and what that has lost.
        self._rounded = self._lost = 0.0
        self._histogram: HistogramTotal | ExponentialTotal | None = None

    def begin_anew(self) -> None:
        """Forget what was counted: the next delta is the first."""
        self.number = self._histogram = None
        self.start_ns = 0

    def add_number(self, delta: float, start_ns: int, time_ns: int) -> bool:
        """Add a delta.

        Whole numbers are exact. Doubles carry what rounding has lost (Neumaier's summation), so that a
        million deltas are as exact as one, and a sum that only grows never shrinks by it. Where 64 bits are
        not enough, it begins anew.

        Args:
            delta: The delta.
            start_ns: Since when it counts, 0 where that isn't known.
            time_ns: Its time.

        Returns:
            False, and nothing was added, where it is no finite number, or a negative one of a counter.
        """
        counter = self.kind is Kind.COUNTER
        if not math.isfinite(delta) or (counter and delta < 0):
            return False
        number = self.number
        if isinstance(number, int) and isinstance(delta, int):
            total = number + delta
            if -_MAX_INT64 <= total <= _MAX_INT64:
                self.number = total
                return True
        elif number is not None:
            if isinstance(number, int):
                self._rounded, self._lost = float(number), 0.0
            rounded = self._rounded
            sum_ = rounded + delta
            lost = (rounded - sum_) + delta if abs(rounded) >= abs(delta) else (delta - sum_) + rounded
            exact = sum_ + (self._lost + lost)
            if math.isfinite(exact):
                self._rounded, self._lost = sum_, self._lost + lost
                self.number = max(exact, number) if counter else exact
                return True
        self._starts(start_ns, time_ns)
        self.number, self._rounded, self._lost = delta, float(delta), 0.0
        return True

    def follow_number(self, number: float, start_ns: int, time_ns: int) -> bool:
        """Note a number that is cumulative already, or a gauge's.

        A counter that became smaller under the same start has begun anew after its last point.

        Returns:
            False, and nothing was noted, where no counter can have that number: a negative one, or none that
            is finite.
        """
        if self.kind is Kind.COUNTER and (not math.isfinite(number) or number < 0):
            return False
        if self.kind is not Kind.GAUGE:
            start_ns = min(start_ns, time_ns)
            if self.kind is Kind.COUNTER:
                if self.number is not None and number < self.number and start_ns <= self.start_ns:
                    start_ns = self.time_ns
                start_ns = max(start_ns, self.start_ns)
            self.start_ns = start_ns
        self.number = number
        return True

    def add_histogram(self, point: Any, time_ns: int) -> bool:
        """Add a histogram's delta and make its point cumulative.

        What can't go on, because 64 bits are full or it has other boundaries, begins anew.

        Args:
            point: The data point, which is changed.
            time_ns: Its time.

        Returns:
            False, and nothing was added, where its buckets are not those of its boundaries.
        """
        made_of = HistogramTotal if self.kind is Kind.HISTOGRAM else ExponentialTotal
        delta = made_of.of(point)
        if delta is None:
            return False
        total = None if self._histogram is None else self._histogram.plus(delta)
        if total is None:
            self._starts(point.start_time_unix_nano, time_ns)
            total = delta
        self._histogram = total
        total.write(point)
        point.start_time_unix_nano = self.start_ns
        return True

    def follow_histogram(self, point: Any) -> bool:
        """Return whether a histogram or a summary that is cumulative already can be read."""
        if self.kind is Kind.HISTOGRAM:
            return HistogramTotal.of(point) is not None
        return self.kind is not Kind.EXPONENTIAL or ExponentialTotal.of(point) is not None

    def _starts(self, start_ns: int, time_ns: int) -> None:
        # A client whose clock was set back says that it started after it ended.
        self.start_ns = min(start_ns, time_ns)


class Target(Generic[TargetState, SeriesState]):
    """One Resource of one client instance: what a destination takes for one source of series.

    Attributes:
        key: What tells it from other targets of the instance, from the caller's ``identify``.
        resource: The Resource's bytes in the last push.
        series: Its series, by name, unit and kind of the metric, then by their attributes.
        shapes: How the metrics of the last push are encoded, in their order.
        size: Its estimated bytes without its series, as they were counted.
        state: The caller's own, None until the caller sets it.
    """

    __slots__ = ("key", "resource", "series", "shapes", "size", "state")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.resource = b""
        self.series: dict[tuple[str, str, Kind], dict[tuple[bytes, ...], Series[SeriesState]]] = {}
        self.shapes: list[Shape[SeriesState] | None] = []
        self.size = 0
        self.state: TargetState | None = None
