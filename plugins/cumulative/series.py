"""One series with its sum so far, and the target it belongs to.

Owns how the deltas of one series add up. Histograms themselves are ``plugins.cumulative.histograms``'s.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from enum import Enum
from typing import Any, Generic, TypeVar

from plugins.cumulative.histograms import ExponentialTotal, HistogramTotal

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
        kind: What it is.
        attributes: Its attributes, each an encoded ``KeyValue``, sorted.
        start_ns: Since when it counts, by the client's clock; 0 where that isn't known.
        time_ns: The time of its last point, by the client's clock.
        seen_ns: When the push with its last point was received.
        late: How many points in a row came too late to count.
        state: The caller's own, None until the caller sets it.
    """

    __slots__ = (
        "_histogram",
        "_lost",
        "_number",
        "_rounded",
        "attributes",
        "kind",
        "late",
        "seen_ns",
        "start_ns",
        "state",
        "time_ns",
    )

    def __init__(self, kind: Kind, attributes: tuple[bytes, ...]) -> None:
        self.kind = kind
        self.attributes = attributes
        self.start_ns = 0
        self.time_ns = 0
        self.seen_ns = 0
        self.late = 0
        self.state: SeriesState | None = None
        #: The cumulative number of a sum; None before the first.
        self._number: int | float | None = None
        #: A sum of doubles as plain addition has it, and what that has lost.
        self._rounded = self._lost = 0.0
        self._histogram: HistogramTotal | ExponentialTotal | None = None

    def begin_anew(self) -> None:
        """Forget what was counted: the next delta is the first."""
        self._number = self._histogram = None

    def add(self, point: Any, time_ns: int) -> bool:
        """Add a delta and make its point cumulative.

        Whole numbers are exact. Doubles carry what rounding has lost (Neumaier's summation), so that a
        million deltas are as exact as one, and a sum that only grows never shrinks by it. What can't go on
        (64 bits are full, a histogram has other boundaries) begins anew.

        Args:
            point: The data point, which is changed.
            time_ns: Its time.

        Returns:
            False, and nothing was added, where it holds nothing that can be added.
        """
        if self.kind is Kind.HISTOGRAM or self.kind is Kind.EXPONENTIAL:
            added = self._add_histogram(point, time_ns)
        else:
            added = self._add_number(point, time_ns)
        if added:
            point.start_time_unix_nano = self.start_ns
        return added

    def follow(self, point: Any, time_ns: int) -> None:
        """Note a point that is cumulative already, and where it says that it began anew.

        A counter that became smaller under the same start has begun anew after its last point; its point is
        changed to say so.
        """
        start_ns = min(point.start_time_unix_nano, time_ns)
        if self.kind is Kind.COUNTER:
            number = point.as_double or point.as_int
            if self._number is not None and number < self._number and start_ns <= self.start_ns:
                start_ns = point.start_time_unix_nano = self.time_ns
            elif start_ns < self.start_ns:
                start_ns = point.start_time_unix_nano = self.start_ns
            self._number = number
        self.start_ns = start_ns

    def _starts(self, point: Any, time_ns: int) -> None:
        # A client whose clock was set back says that it started after it ended.
        self.start_ns = min(point.start_time_unix_nano, time_ns)

    def _add_number(self, point: Any, time_ns: int) -> bool:
        # Of a oneof only one is set; where both are zero, neither has to be told from the other.
        delta = point.as_double or point.as_int
        counter = self.kind is Kind.COUNTER
        if not math.isfinite(delta) or (counter and delta < 0):
            return False
        number = self._number
        if number is None:
            self._begin_number(point, delta, time_ns)
        elif isinstance(number, int) and isinstance(delta, int):
            total = number + delta
            if not -_MAX_INT64 <= total <= _MAX_INT64:
                self._begin_number(point, delta, time_ns)
            elif number:
                point.as_int = self._number = total
            else:
                self._number = delta
        else:
            if isinstance(number, int):
                self._rounded, self._lost = float(number), 0.0
            rounded = self._rounded
            sum_ = rounded + delta
            lost = (rounded - sum_) + delta if abs(rounded) >= abs(delta) else (delta - sum_) + rounded
            exact = sum_ + self._lost + lost
            if math.isfinite(exact):
                self._rounded, self._lost = sum_, self._lost + lost
                point.as_double = self._number = max(exact, number) if counter else exact
            else:
                self._begin_number(point, delta, time_ns)
        return True

    def _begin_number(self, point: Any, delta: float, time_ns: int) -> None:
        self._starts(point, time_ns)
        self._number, self._rounded, self._lost = delta, float(delta), 0.0

    def _add_histogram(self, point: Any, time_ns: int) -> bool:
        made_of = HistogramTotal if self.kind is Kind.HISTOGRAM else ExponentialTotal
        delta = made_of.of(point)
        if delta is None:
            return False
        total = None if self._histogram is None else self._histogram.plus(delta)
        if total is None:
            self._starts(point, time_ns)
            total = delta
        self._histogram = total
        total.write(point)
        return True


class Target(Generic[TargetState, SeriesState]):
    """One Resource of one client instance: what a destination takes for one source of series.

    Attributes:
        key: What tells it from other targets of the instance, from the caller's ``identify``.
        resource: The Resource's bytes in the last push.
        state: The caller's own, None until the caller sets it.
    """

    __slots__ = ("key", "resource", "series", "state")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.resource = b""
        self.state: TargetState | None = None
        #: By name, unit and kind of the metric, then by the series' attributes.
        self.series: dict[tuple[str, str, Kind], dict[tuple[bytes, ...], Series[SeriesState]]] = {}
