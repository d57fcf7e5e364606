"""Metrics of the plugins, collected from their statistics at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from receiver.host.delivery.statistics import DELIVERY_BOUNDS_S, PluginStatistics

_PREFIX = "kafka_telemetry_"


class PluginMetrics(Collector):
    """Collects plugin statistics, which must be cheap, at every scrape."""

    def __init__(self, statistics: Callable[[], Sequence[PluginStatistics]]) -> None:
        self._statistics = statistics

    def describe(self) -> list[Metric]:
        """Return nothing, so that no statistics are read before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return the series of all plugins."""
        plugins = self._statistics()
        for name, text in _PLUGIN_GAUGES.items():
            gauge = GaugeMetricFamily(f"{_PREFIX}plugin_{name}", text, labels=["plugin", "type"])
            for plugin in plugins:
                gauge.add_metric([plugin.name, plugin.type], _number(getattr(plugin, name)))
            yield gauge
        for name, text in _PLUGIN_COUNTERS.items():
            counter = CounterMetricFamily(f"{_PREFIX}plugin_{name}", text, labels=["plugin", "type"])
            for plugin in plugins:
                counter.add_metric([plugin.name, plugin.type], _number(getattr(plugin, name)))
            yield counter
        dropped = CounterMetricFamily(
            f"{_PREFIX}plugin_dropped_pushes",
            "Pushes that did not reach the destination.",
            labels=["plugin", "type", "reason"],
        )
        state = GaugeMetricFamily(
            f"{_PREFIX}plugin_state", "1 for the state a plugin is in.", labels=["plugin", "type", "state"]
        )
        circuit = GaugeMetricFamily(
            f"{_PREFIX}plugin_circuit",
            "1 for the state of a plugin's circuit breaker.",
            labels=["plugin", "type", "state"],
        )
        exports = SummaryMetricFamily(
            f"{_PREFIX}plugin_export_seconds",
            "Calls of a plugin's export and their duration, including failed ones.",
            labels=["plugin", "type"],
        )
        deliveries = HistogramMetricFamily(
            f"{_PREFIX}plugin_delivery_seconds",
            "Time of exported pushes from their receipt to the destination's acceptance.",
            labels=["plugin", "type"],
        )
        for plugin in plugins:
            deliveries.add_metric(
                [plugin.name, plugin.type],
                list(zip(_BOUNDS, map(float, accumulate(plugin.deliveries)), strict=True)),
                plugin.delivery_seconds,
            )
            for reason, count in plugin.dropped.items():
                dropped.add_metric([plugin.name, plugin.type, str(reason)], count)
            state.add_metric([plugin.name, plugin.type, str(plugin.state)], 1)
            circuit.add_metric([plugin.name, plugin.type, str(plugin.circuit)], 1)
            exports.add_metric([plugin.name, plugin.type], plugin.exports, plugin.export_seconds)
        yield from (dropped, state, circuit, exports, deliveries)


def _number(value: float | str | None) -> float:
    return value if isinstance(value, int | float) else float(value is not None)


_BOUNDS: Final = (*map(str, DELIVERY_BOUNDS_S), "+Inf")

#: By name, which is that of the statistic. One that is text counts as 1.
_PLUGIN_GAUGES: Final = {
    "queue_items": "Pushes in memory.",
    "queue_bytes": "OTLP bytes in memory.",
    "queue_high_water_items": "The most pushes ever in memory.",
    "queue_high_water_bytes": "The most OTLP bytes ever in memory.",
    "queue_max_items": "Bound of pushes in memory.",
    "queue_max_bytes": "Bound of OTLP bytes in memory.",
    "spool_pushes": "Pushes on disk.",
    "spool_bytes": "Bytes on disk.",
    "spool_max_bytes": "Bound of bytes on disk; 0 without a spool.",
    "spool_problem": "1 while the spool has a problem, which the log and REST show.",
    "files_problem": "1 while changed secrets or certificates can't be used; the old ones stay.",
    "lag_seconds": "Age of the oldest push that is neither exported nor dropped.",
    "in_flight_pushes": "Pushes in an export, or waiting for a retry.",
    "consecutive_failures": "Failed calls since the last success.",
    "call_seconds": "Duration of the current call of the plugin; shows a hang.",
}

_PLUGIN_COUNTERS: Final = {
    "offered_pushes": "Pushes handed to the plugin host.",
    "recovered_pushes": "Pushes of an earlier run, found on disk.",
    "exported_pushes": "Pushes that the destination accepted, or that had no metrics for it.",
    "exported_batches": "Exports that the destination accepted.",
    "rejected_points": "Data points that the destination rejected.",
    "failures": "Failed calls of the plugin.",
    "retries": "Retried exports.",
    "restarts": "Restarts of the plugin, or of its process, after a crash.",
}
