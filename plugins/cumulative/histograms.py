"""Histograms that add up: with explicit boundaries, and exponential ones.

Owns their arithmetic (opentelemetry-proto, ``metrics.proto``; OpenTelemetry metrics data model, "Histogram"
and "ExponentialHistogram"). A total is a value: adding makes another. Whatever a client sends, there is a
bound on its buckets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

__all__ = ["MAX_BUCKETS", "ExponentialTotal", "HistogramTotal"]

_MAX_UINT64 = (1 << 64) - 1
_MAX_INT32 = (1 << 31) - 1

#: Buckets that each side of an exponential histogram may span; as many as OpenTelemetry's SDKs have.
MAX_BUCKETS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramTotal:
    """A histogram with explicit boundaries.

    Attributes:
        count: Observations.
        sum: Their sum; None where some of them had none.
        bounds: The buckets' upper boundaries, ascending.
        buckets: Observations by bucket, one more than there are boundaries; or none at all.
    """

    count: int
    sum: float | None
    bounds: tuple[float, ...]
    buckets: tuple[int, ...]

    @classmethod
    def of(cls, point: Any) -> Self | None:
        """Read a ``HistogramDataPoint``; None where it is none that can be added."""
        bounds, buckets = tuple(point.explicit_bounds), tuple(point.bucket_counts)
        if buckets and len(buckets) != len(bounds) + 1:
            return None
        if any(map(math.isnan, bounds)) or any(one > next_ for one, next_ in pairwise(bounds)):
            return None
        return cls(count=point.count, sum=_sum(point), bounds=bounds, buckets=buckets)

    def plus(self, delta: object) -> Self | None:
        """Both together; None where they have different buckets or 64 bits are not enough."""
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
        """Make a ``HistogramDataPoint`` hold this, without the smallest and largest."""
        point.count = self.count
        point.bucket_counts[:] = self.buckets
        _write_sum(point, self.sum)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialTotal:
    """An exponential histogram.

    Attributes:
        count: Observations.
        sum: Their sum; None where some of them had none.
        scale: Buckets are 2 ** 2 ** -scale wide.
        zero_threshold: What is not larger counts as zero.
        zero_count: Observations that count as zero.
        positive: Observations by bucket index, for values above zero.
        negative: Likewise for values below zero.
    """

    count: int
    sum: float | None
    scale: int
    zero_threshold: float
    zero_count: int
    positive: Mapping[int, int]
    negative: Mapping[int, int]

    @classmethod
    def of(cls, point: Any) -> Self | None:
        """Read an ``ExponentialHistogramDataPoint``, as coarse as :data:`MAX_BUCKETS` needs it.

        Returns:
            The histogram; None if its zero threshold is negative or not finite, or no data point has room for
            it at that scale.
        """
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
        """Both together, at the coarser scale; None where their zeros differ or no data point has room."""
        if not isinstance(delta, type(self)) or self.zero_threshold != delta.zero_threshold:
            return None
        scale = min(self.scale, delta.scale)
        one, other = self.at_scale(scale), delta.at_scale(scale)
        return type(self)(
            count=one.count + other.count,
            sum=_sum_of(one.sum, other.sum),
            scale=scale,
            zero_threshold=one.zero_threshold,
            zero_count=one.zero_count + other.zero_count,
            positive=_added(one.positive, other.positive),
            negative=_added(one.negative, other.negative),
        ).fitted()

    def at_scale(self, scale: int) -> Self:
        """The same observations at a scale that is not finer."""
        shift = self.scale - scale
        if not shift:
            return self
        return type(self)(
            count=self.count,
            sum=self.sum,
            scale=scale,
            zero_threshold=self.zero_threshold,
            zero_count=self.zero_count,
            positive=_added({}, self.positive, shift),
            negative=_added({}, self.negative, shift),
        )

    def write(self, point: Any) -> None:
        """Make an ``ExponentialHistogramDataPoint`` hold this, without the smallest and largest."""
        point.count, point.scale = self.count, self.scale
        point.zero_count = self.zero_count
        _write_dense(point.positive, self.positive)
        _write_dense(point.negative, self.negative)
        _write_sum(point, self.sum)

    def fitted(self) -> Self | None:
        """The same observations, as coarse as :data:`MAX_BUCKETS` needs them.

        Returns:
            The histogram; None where no data point has room for it.
        """
        fitted = self
        while max(_span(fitted.positive), _span(fitted.negative)) > MAX_BUCKETS:
            fitted = fitted.at_scale(fitted.scale - 1)
        # What is merged is added up, and a scale of 32 bits may be the coarsest there is.
        numbers = (fitted.count, fitted.zero_count, *fitted.positive.values(), *fitted.negative.values())
        offset = max(min(fitted.positive, default=0), min(fitted.negative, default=0))
        has_room = max(numbers) <= _MAX_UINT64 and fitted.scale >= -_MAX_INT32 and offset <= _MAX_INT32
        return fitted if has_room else None


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
