"""Adds up histograms: with explicit boundaries, and exponential ones.

A total is immutable: adding returns another one. The number of buckets is bounded.

Source: opentelemetry-proto, ``metrics.proto``; OpenTelemetry metrics data model, "Histogram" and
"ExponentialHistogram".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

_MAX_UINT64 = (1 << 64) - 1
_MAX_INT32 = (1 << 31) - 1

#: Bound on the buckets of each side of an exponential histogram, as in OpenTelemetry's SDKs.
MAX_BUCKETS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramTotal:
    """A histogram with explicit boundaries."""

    count: int
    sum: float | None
    """Sum of the observations; None if some had none."""
    bounds: tuple[float, ...]
    """Upper boundaries of the buckets, ascending."""
    buckets: tuple[int, ...]
    """Observations by bucket, one more than boundaries; or empty."""

    @classmethod
    def of(cls, point: Any) -> Self | None:
        """Read a ``HistogramDataPoint``; None if it is invalid."""
        bounds, buckets = tuple(point.explicit_bounds), tuple(point.bucket_counts)
        if buckets and len(buckets) != len(bounds) + 1:
            return None
        if any(map(math.isnan, bounds)) or any(bound > following for bound, following in pairwise(bounds)):
            return None
        return cls(count=point.count, sum=_sum(point), bounds=bounds, buckets=buckets)

    def plus(self, delta: object) -> Self | None:
        """Add a delta; None if the buckets differ or a count exceeds 64 bits."""
        if not isinstance(delta, type(self)) or self.bounds != delta.bounds:
            return None
        if len(self.buckets) != len(delta.buckets):
            return None
        buckets = tuple(map(int.__add__, self.buckets, delta.buckets))
        if max(self.count + delta.count, *buckets, 0) > _MAX_UINT64:
            return None
        return type(self)(
            count=self.count + delta.count,
            sum=_sum_of(self.sum, delta.sum),
            bounds=self.bounds,
            buckets=buckets,
        )

    def write(self, point: Any) -> None:
        """Write it to a data point, and clear its minimum and maximum."""
        point.count = self.count
        point.bucket_counts[:] = self.buckets
        _write_sum(point, self.sum)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialTotal:
    """An exponential histogram."""

    count: int
    sum: float | None
    """Sum of the observations; None if some had none."""
    scale: int
    """The base of the buckets is 2 ** 2 ** -scale."""
    zero_threshold: float
    """Absolute values up to this count as zero."""
    zero_count: int
    positive: Mapping[int, int]
    """Observations above zero by bucket index."""
    negative: Mapping[int, int]
    """Observations below zero by bucket index."""

    @classmethod
    def of(cls, point: Any) -> Self | None:
        """Read a data point, scaled to :data:`MAX_BUCKETS`; None if it is invalid."""
        if not math.isfinite(point.zero_threshold) or point.zero_threshold < 0:
            return None
        return cls(
            count=point.count,
            sum=_sum(point),
            scale=point.scale,
            zero_threshold=point.zero_threshold,
            zero_count=point.zero_count,
            positive=_sparse(point.positive),
            negative=_sparse(point.negative),
        ).fitted()

    def plus(self, delta: object) -> Self | None:
        """Add a delta at the coarser scale; None if thresholds differ or it cannot fit."""
        if not isinstance(delta, type(self)) or self.zero_threshold != delta.zero_threshold:
            return None
        scale = min(self.scale, delta.scale)
        left, right = self.at_scale(scale), delta.at_scale(scale)
        return type(self)(
            count=left.count + right.count,
            sum=_sum_of(left.sum, right.sum),
            scale=scale,
            zero_threshold=left.zero_threshold,
            zero_count=left.zero_count + right.zero_count,
            positive=_added(left.positive, right.positive),
            negative=_added(left.negative, right.negative),
        ).fitted()

    def at_scale(self, scale: int) -> Self:
        """Return it at an equal or coarser scale."""
        shift = self.scale - scale
        if not shift:
            return self
        return replace(
            self,
            scale=scale,
            positive=_added({}, self.positive, shift),
            negative=_added({}, self.negative, shift),
        )

    def write(self, point: Any) -> None:
        """Write it to a data point, and clear its minimum and maximum."""
        point.count, point.scale = self.count, self.scale
        point.zero_count = self.zero_count
        _write_dense(point.positive, self.positive)
        _write_dense(point.negative, self.negative)
        _write_sum(point, self.sum)

    def fitted(self) -> Self | None:
        """Scale it down to :data:`MAX_BUCKETS`; None if no data point can hold it."""
        fitted = self
        while max(_span(fitted.positive), _span(fitted.negative)) > MAX_BUCKETS:
            fitted = fitted.at_scale(fitted.scale - 1)
        # Merged buckets may overflow, and the scale may be below 32 bits.
        numbers = (fitted.count, fitted.zero_count, *fitted.positive.values(), *fitted.negative.values())
        offset = max(min(fitted.positive, default=0), min(fitted.negative, default=0))
        has_room = max(numbers) <= _MAX_UINT64 and fitted.scale >= -_MAX_INT32 and offset <= _MAX_INT32
        return fitted if has_room else None


def remove_invalid_quantiles(point: Any) -> int:
    """Remove a summary's quantiles outside 0 to 1 and negative values.

    Return their number.

    Source: opentelemetry-proto, ``metrics.proto``, ``ValueAtQuantile``.
    """
    values = point.quantile_values
    valid = [value for value in values if 0 <= value.quantile <= 1 and not value.value < 0]
    removed = len(values) - len(valid)
    if removed:
        del values[:]
        values.extend(valid)
    return removed


def _sum(point: Any) -> float | None:
    return float(point.sum) if point.HasField("sum") and math.isfinite(point.sum) else None


def _sum_of(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _write_sum(point: Any, total: float | None) -> None:
    if total is None:
        point.ClearField("sum")
    else:
        point.sum = total
    point.ClearField("min")
    point.ClearField("max")


def _sparse(buckets: Any) -> dict[int, int]:
    counts: Sequence[int] = buckets.bucket_counts
    return {index: count for index, count in enumerate(counts, buckets.offset) if count}


def _write_dense(buckets: Any, sparse: Mapping[int, int]) -> None:
    buckets.offset = offset = min(sparse, default=0)
    buckets.bucket_counts[:] = [sparse.get(offset + place, 0) for place in range(_span(sparse))]


def _span(sparse: Mapping[int, int]) -> int:
    return max(sparse) - min(sparse) + 1 if sparse else 0


def _added(one: Mapping[int, int], other: Mapping[int, int], shift: int = 0) -> dict[int, int]:
    total = dict(one)
    for index, count in other.items():
        total[index >> shift] = total.get(index >> shift, 0) + count
    return total
