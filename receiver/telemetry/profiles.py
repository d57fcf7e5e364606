"""What clients of each software push, by metric, from samples.

Owns the samples from which a subscription's cost is estimated before it applies. One push in a
second is read at most. Names, software and sets of prefixes are bounded; what is over a bound is
left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.telemetry.otlp_views import DATA_KINDS

#: Seconds between two pushes that are read; reading a push takes about a millisecond.
_SAMPLE_EVERY_S: Final = 1.0

#: Largest push that is read, in bytes.
_MAX_SAMPLED_BYTES: Final = 262_144

_MAX_NAMES: Final = 4_096  # of metrics, for each software
_MAX_NAME_CHARS: Final = 256
_MAX_SOFTWARE: Final = 64  # at the bound, the one with the fewest samples makes room
_MAX_PREFIX_SETS: Final = 64  # for each software; the rarest makes room

#: At so many samples of a software, all its counts are halved, so that they follow its changes.
_MAX_SAMPLES: Final = 512

#: What counts less is forgotten, so that old names keep out no new ones.
_LEAST: Final = 1 / 32


@dataclass(frozen=True, slots=True)
class Estimate:
    """The average data points and bytes (OTLP, inflated) of a client's push."""

    series: float = 0.0
    bytes: float = 0.0


@dataclass(slots=True)
class _Sum:
    series: float = 0.0
    bytes: float = 0.0


@dataclass(slots=True)
class _Profile:
    """Sums over the sampled pushes of a software."""

    #: The number of sampled pushes by the prefixes that were requested.
    pushes: dict[tuple[str, ...], float] = field(default_factory=dict)
    metrics: dict[str, _Sum] = field(default_factory=dict)
    #: What a push has besides its metrics: Resources and labels.
    around: float = 0.0

    @property
    def samples(self) -> float:
        """The number of sampled pushes."""
        return sum(self.pushes.values())

    def halve(self) -> None:
        """Halve all counts, and forget what was not seen for several halvings."""
        self.around /= 2
        halved = ((prefixes, count / 2) for prefixes, count in self.pushes.items())
        self.pushes = {prefixes: count for prefixes, count in halved if count >= _LEAST}
        for sums in self.metrics.values():
            sums.series /= 2
            sums.bytes /= 2
        self.metrics = {name: sums for name, sums in self.metrics.items() if sums.series >= _LEAST}

    def asked_for(self, name: str) -> float:
        """Return how many sampled pushes were asked for a metric."""
        return sum(count for prefixes, count in list(self.pushes.items()) if name.startswith(prefixes))


class MetricProfiles:
    """Profiles of pushes by software name.

    Written by the core, read by other threads too.
    """

    def __init__(self) -> None:
        self._profiles: dict[str, _Profile] = {}
        self._next = float("-inf")

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of metrics that clients were seen to push."""
        names = {name for profile in list(self._profiles.values()) for name in list(profile.metrics)}
        return iter(sorted(names))

    def sample(self, data: bytes, software: str, requested: tuple[str, ...], now: float) -> int:
        """Read a push if the last reading is a second ago.

        Returns the time of its latest data point in nanoseconds since the epoch; 0 if it was not
        read or has none.

        Args:
            data: The push's MetricsData; empty if no metric matched.
            software: The client's software name.
            requested: The prefixes that the client was asked for.
            now: Monotonic seconds.
        """
        if now < self._next or len(data) > _MAX_SAMPLED_BYTES:
            return 0
        self._next = now + _SAMPLE_EVERY_S
        profile = self._profiles.get(software)
        if profile is None:
            if len(self._profiles) >= _MAX_SOFTWARE:
                # Made-up names replace each other, because each is seen once.
                del self._profiles[min(self._profiles, key=lambda name: self._profiles[name].samples)]
            profile = self._profiles[software] = _Profile()
        if requested not in profile.pushes and len(profile.pushes) >= _MAX_PREFIX_SETS:
            del profile.pushes[min(profile.pushes, key=profile.pushes.__getitem__)]
        if profile.samples >= _MAX_SAMPLES:
            profile.halve()
        profile.pushes[requested] = profile.pushes.get(requested, 0.0) + 1
        size, latest_ns = _add_metrics(profile.metrics, data)
        profile.around += len(data) - size
        return latest_ns

    def estimate(self, software: str, prefixes: tuple[str, ...]) -> Estimate | None:
        """Estimate a push of a client of a software.

        None while no push of it has been read.

        A metric counts as often as it was pushed by those who were asked for it.
        """
        profile = self._profiles.get(software)
        if profile is None:
            return None
        series = size = 0.0
        for name, sums in list(profile.metrics.items()):
            if name.startswith(prefixes):
                asked = profile.asked_for(name)
                if asked:
                    series += sums.series / asked
                    size += sums.bytes / asked
        pushes = sum(list(profile.pushes.values()))
        if series and pushes:
            size += profile.around / pushes
        return Estimate(series, size)


def _add_metrics(metrics: dict[str, _Sum], data: bytes) -> tuple[int, int]:
    """Add the metrics of a MetricsData.

    Return their bytes, and the latest time of a data point.
    """
    total = latest_ns = 0
    for resource in MetricsData.FromString(data).resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                size = metric.ByteSize()
                total += size
                kind = metric.WhichOneof("data")
                points = getattr(metric, kind).data_points if kind in DATA_KINDS else ()
                for point in points:
                    latest_ns = max(latest_ns, point.time_unix_nano)
                sums = metrics.get(metric.name)
                if sums is None:
                    if len(metrics) >= _MAX_NAMES or len(metric.name) > _MAX_NAME_CHARS:
                        continue
                    sums = metrics[metric.name] = _Sum()
                sums.series += len(points)
                sums.bytes += size
    return total, latest_ns
