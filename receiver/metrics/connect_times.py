"""The histogram of times to connect to a broker, which relays fill in by bucket.

A relay counts each time in its bucket and adds it to a sum, so that a report has a bounded size
however many clients connected. A histogram of the metrics library takes single times only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import HistogramMetricFamily

_BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BUCKETS: Final = (*(str(bound) for bound in _BOUNDS_S), "+Inf")


def connect_bucket(seconds: float) -> str:
    """Return the upper bound of a time's bucket, as in the label ``le``."""
    return _BUCKETS[bisect_left(_BOUNDS_S, seconds)]


class ConnectTimes:
    """Times to connect by listener, as a collector of one metric."""

    def __init__(self, name: str, documentation: str) -> None:
        self._name = name
        self._documentation = documentation
        self._counts: dict[str, dict[str, float]] = {}
        self._sums_s: dict[str, float] = {}

    def count(self, listener: str, bucket: str, times: float) -> None:
        """Count connections in a bucket of :func:`connect_bucket`.

        Raises:
            ValueError: There is no such bucket.
        """
        if bucket not in _BUCKETS:
            raise ValueError(f"no bucket: {bucket!r}")
        counts = self._counts.setdefault(listener, dict.fromkeys(_BUCKETS, 0.0))
        counts[bucket] += times

    def add(self, listener: str, seconds: float) -> None:
        """Add the time that connections took together."""
        self._sums_s[listener] = self._sums_s.get(listener, 0.0) + seconds

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """Describe the metric, so that the registry knows its name."""
        yield self._family()

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Return the metric; buckets are cumulative."""
        family = self._family()
        for listener, counts in self._counts.items():
            total, buckets = 0.0, []
            for bound, count in counts.items():
                total += count
                buckets.append((bound, total))
            family.add_metric([listener], buckets, self._sums_s.get(listener, 0.0))
        yield family

    def _family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self._name, self._documentation, labels=["listener"])
