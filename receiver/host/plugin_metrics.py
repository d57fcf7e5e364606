"""Metrics of the plugins, collected from their statistics at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

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
    """Collects plugin statistics at every scrape of its registry.

    Args:
        statistics: Returns the statistics of each plugin; must be cheap.
    """

    def __init__(self, statistics: Callable[[], Sequence[PluginStatistics]]) -> None:
        self._statistics = statistics

    def describe(self) -> list[Metric]:
        """Return nothing, so that no statistics are read before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return the series of all plugins."""
        plugins = self._statistics()
        for name, text, value in _PLUGIN_GAUGES:
            gauge = GaugeMetricFamily(f"{_PREFIX}plugin_{name}", text, labels=["plugin", "type"])
            for plugin in plugins:
                gauge.add_metric([plugin.name, plugin.type], value(plugin))
            yield gauge
        for name, text, value in _PLUGIN_COUNTERS:
            counter = CounterMetricFamily(f"{_PREFIX}plugin_{name}", text, labels=["plugin", "type"])
            for plugin in plugins:
                counter.add_metric([plugin.name, plugin.type], value(plugin))
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


_BOUNDS = (*map(str, DELIVERY_BOUNDS_S), "+Inf")

_Figure = Callable[[PluginStatistics], float]

_PLUGIN_GAUGES: tuple[tuple[str, str, _Figure], ...] = (
    ("queue_items", "Pushes in memory.", lambda p: p.queue_items),
    ("queue_bytes", "OTLP bytes in memory.", lambda p: p.queue_bytes),
    ("queue_high_water_items", "The most pushes ever in memory.", lambda p: p.queue_high_water_items),
    ("queue_high_water_bytes", "The most OTLP bytes ever in memory.", lambda p: p.queue_high_water_bytes),
    ("queue_max_items", "Bound of pushes in memory.", lambda p: p.queue_max_items),
    ("queue_max_bytes", "Bound of OTLP bytes in memory.", lambda p: p.queue_max_bytes),
    ("spool_pushes", "Pushes on disk.", lambda p: p.spool_pushes),
    ("spool_bytes", "Bytes on disk.", lambda p: p.spool_bytes),
    ("spool_max_bytes", "Bound of bytes on disk; 0 without a spool.", lambda p: p.spool_max_bytes),
    (
        "spool_problem",
        "1 while the spool has a problem, which the log and REST show.",
        lambda p: p.spool_problem is not None,
    ),
    (
        "files_problem",
        "1 while changed secrets or certificates can't be used; the old ones stay.",
        lambda p: p.files_problem is not None,
    ),
    (
        "lag_seconds",
        "Age of the oldest push that is neither exported nor dropped.",
        lambda p: p.lag_s,
    ),
    (
        "in_flight_pushes",
        "Pushes in an export, or waiting for a retry.",
        lambda p: p.in_flight_pushes,
    ),
    ("consecutive_failures", "Failed calls since the last success.", lambda p: p.consecutive_failures),
    (
        "call_seconds",
        "Duration of the current call of the plugin; shows a hang.",
        lambda p: p.call_seconds,
    ),
)

_PLUGIN_COUNTERS: tuple[tuple[str, str, _Figure], ...] = (
    ("offered_pushes", "Pushes handed to the plugin host.", lambda p: p.offered_pushes),
    ("recovered_pushes", "Pushes of an earlier run, found on disk.", lambda p: p.recovered_pushes),
    ("exported_pushes", "Pushes that the destination accepted.", lambda p: p.exported_pushes),
    ("exported_batches", "Exports that the destination accepted.", lambda p: p.exported_batches),
    ("rejected_points", "Data points that the destination rejected.", lambda p: p.rejected_points),
    ("failures", "Failed calls of the plugin.", lambda p: p.failures),
    ("retries", "Retried exports.", lambda p: p.retries),
    ("restarts", "Restarts of the plugin, or of its process, after a crash.", lambda p: p.restarts),
)
