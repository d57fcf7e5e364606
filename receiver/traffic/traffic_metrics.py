"""Metrics of what principals move, with a bounded number of series."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from receiver.telemetry.identity import SHARED_PRINCIPALS
from receiver.traffic.usage_store import Amounts, Key, PrincipalUse

#: Principals with series of their own; the others share :data:`OTHER`.
MAX_PRINCIPALS: Final = 100
OTHER: Final = "other"

_PREFIX: Final = "kafka_telemetry_"
_NOTHING: Final = Amounts(0, 0, 0, 0)


class TrafficMetrics(Collector):
    """What each principal has moved since the core's start, and when it was last used.

    The first principals, those with most bytes of a settlement first, keep series of their own. So
    counters never fall, and their sum is everything.

    Args:
        label_of: Returns the label of a principal, hashed if privacy demands it; None: it has none.
    """

    def __init__(
        self,
        label_of: Callable[[str], str | None],
        uses: Callable[[], Mapping[str, PrincipalUse]],
    ) -> None:
        self._label_of = label_of
        self._uses = uses
        self._moved: dict[str, Amounts] = {}
        self._new_networks: dict[str, int] = {}

    def add(self, usage: Mapping[Key, Amounts], new_networks: Mapping[str, int]) -> None:
        """Add a settlement."""
        sums: dict[str, Amounts] = {}
        for key, amounts in usage.items():
            sums[key.principal] = sums.get(key.principal, _NOTHING).plus(amounts)
        for principal, amounts in sorted(sums.items(), key=lambda entry: -sum(entry[1][:2])):
            label = self._label(principal)
            self._moved[label] = self._moved.get(label, _NOTHING).plus(amounts)
        for principal, count in new_networks.items():
            label = self._label(principal)
            self._new_networks[label] = self._new_networks.get(label, 0) + count

    def _label(self, principal: str) -> str:
        label = self._label_of(principal)
        if label is None or (label not in self._moved and len(self._moved) >= MAX_PRINCIPALS):
            return OTHER
        return label

    def describe(self) -> list[Metric]:
        """Return nothing, so that nothing is read before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return all series."""
        moved = CounterMetricFamily(
            f"{_PREFIX}traffic_bytes",
            "Bytes of Kafka's protocol from and to clients by principal.",
            labels=["principal", "direction"],
        )
        requests = CounterMetricFamily(
            f"{_PREFIX}traffic_requests", "Requests of clients by principal.", labels=["principal"]
        )
        for label, amounts in self._moved.items():
            moved.add_metric([label, "from_clients"], amounts.bytes_in)
            moved.add_metric([label, "to_clients"], amounts.bytes_out)
            requests.add_metric([label], amounts.requests)
        networks = CounterMetricFamily(
            f"{_PREFIX}principal_new_networks",
            "Networks from which a principal was used that had been known for a week without them.",
            labels=["principal"],
        )
        for label, count in self._new_networks.items():
            networks.add_metric([label], count)
        yield from (moved, requests, networks, self._last_used())

    def _last_used(self) -> Metric:
        family = GaugeMetricFamily(
            f"{_PREFIX}principal_last_used_timestamp_seconds",
            "When a principal was last used, of those that were not for longest.",
            labels=["principal"],
        )
        own = [
            (use.last_ms, principal)
            for principal, use in self._uses().items()
            if principal not in SHARED_PRINCIPALS
        ]
        for last_ms, principal in heapq.nsmallest(MAX_PRINCIPALS, own):
            if (label := self._label_of(principal)) is not None:
                family.add_metric([label], last_ms / 1000)
        return family
