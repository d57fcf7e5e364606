"""One series with its total: how its deltas add up."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from plugins._shared.cumulative.histograms import ExponentialTotal, HistogramTotal

_MAX_INT64 = (1 << 63) - 1


class Kind(Enum):
    """Kind of a series."""

    GAUGE = "gauge"
    #: A sum that only grows.
    COUNTER = "counter"
    #: A sum that may shrink.
    UP_DOWN = "up_down"
    HISTOGRAM = "histogram"
    EXPONENTIAL = "exponential_histogram"
    SUMMARY = "summary"


@dataclass(slots=True, eq=False, kw_only=True)
class Series:
    """One series of one target, with its total."""

    name: str
    unit: str
    description: str
    kind: Kind
    attributes: tuple[bytes, ...]
    """The attributes, each an encoded ``KeyValue``, sorted."""
    number: int | float | None = None
    """The last cumulative value. None before the first one, and for histograms and summaries."""
    start_ns: int = 0
    """Start of the count, on the client's clock; 0 if unknown."""
    time_ns: int = 0
    """Time of the last point, on the client's clock."""
    delta: float | None = None
    """What tells the last delta from others of its time; None for cumulative points."""
    seen_ns: int = 0
    """Receive time of the push with the last point."""
    late: int = 0
    """Number of consecutive late points."""
    alive: bool = True
    size: int = 0
    """Estimated bytes."""
    samples: int = 0
    """Number of samples that ``size`` includes."""
    shape_bytes: int = 0
    """Length of the encoded metric that ``size`` includes, for its shape."""
    state: Any = None
    """The caller's own state; None until the caller sets it."""
    # A sum of doubles by plain addition, and its accumulated rounding error.
    _rounded: float = field(default=0.0, init=False)
    _error: float = field(default=0.0, init=False)
    _histogram: HistogramTotal | ExponentialTotal | None = field(default=None, init=False)

    def reset(self) -> None:
        """Reset the total: the next delta is the first."""
        self.number = self._histogram = None
        self.start_ns = 0

    def add_number(self, delta: float, start_ns: int, time_ns: int) -> bool:
        """Add a delta; return False if it is not finite, or negative for a counter.

        Integers are exact. Doubles carry the rounding error (Neumaier's summation), so that a
        million deltas are as exact as one and a counter never shrinks by rounding. On overflow the
        series starts anew.
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
                self._rounded, self._error = float(number), 0.0
            rounded = self._rounded
            sum_ = rounded + delta
            error = (rounded - sum_) + delta if abs(rounded) >= abs(delta) else (delta - sum_) + rounded
            exact = sum_ + (self._error + error)
            if math.isfinite(exact):
                self._rounded, self._error = sum_, self._error + error
                self.number = max(exact, number) if counter else exact
                return True
        self._start(start_ns, time_ns)
        self.number, self._rounded, self._error = delta, float(delta), 0.0
        return True

    def set_number(self, number: float, start_ns: int, time_ns: int) -> bool:
        """Set a number that is already cumulative, or a gauge's.

        A counter that shrank under the same start has started anew after its last point.
        False, without a change, if a counter's number is negative or not finite.
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
        """Add a histogram's delta and make its point cumulative, in place.

        On overflow or other boundaries the series starts anew. False, without a change, if the
        number of buckets does not match the boundaries.
        """
        total_type = HistogramTotal if self.kind is Kind.HISTOGRAM else ExponentialTotal
        delta = total_type.of(point)
        if delta is None:
            return False
        total = None if self._histogram is None else self._histogram.plus(delta)
        if total is None:
            self._start(point.start_time_unix_nano, time_ns)
            total = delta
        self._histogram = total
        total.write(point)
        point.start_time_unix_nano = self.start_ns
        return True

    def is_valid_histogram(self, point: Any) -> bool:
        """Return whether a cumulative histogram or summary is valid."""
        if self.kind is Kind.HISTOGRAM:
            return HistogramTotal.of(point) is not None
        return self.kind is not Kind.EXPONENTIAL or ExponentialTotal.of(point) is not None

    def _start(self, start_ns: int, time_ns: int) -> None:
        # If a client's clock was set back, its start may be after its time.
        self.start_ns = min(start_ns, time_ns)
