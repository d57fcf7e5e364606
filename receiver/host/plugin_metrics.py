"""Metrics of the plugins, collected from their statistics at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import HistogramMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from receiver.host.delivery.statistics import DELIVERY_BOUNDS_S, PluginStatistics
from receiver.metrics.families import PREFIX, counter, gauge

_LABELS: Final = ("plugin", "type")


class PluginMetrics(Collector):
    """Collects plugin statistics, which must be cheap, at every scrape."""

    def __init__(self, statistics: Callable[[], Sequence[PluginStatistics]]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        """Return the series of all plugins."""
        plugins = {(plugin.name, plugin.type): plugin for plugin in self._statistics()}
        for build, texts in ((gauge, _PLUGIN_GAUGES), (counter, _PLUGIN_COUNTERS)):
            for name, text in texts.items():
                values = {labels: _number(getattr(plugin, name)) for labels, plugin in plugins.items()}
                yield build(f"plugin_{name}", text, values, *_LABELS)
        yield counter(
            "plugin_dropped_pushes",
            "Pushes that did not reach the destination.",
            {
                (*labels, str(reason)): count
                for labels, plugin in plugins.items()
                for reason, count in plugin.dropped.items()
            },
            *_LABELS,
            "reason",
        )
        states = {(*labels, str(plugin.state)): 1 for labels, plugin in plugins.items()}
        yield gauge("plugin_state", "1 for the state a plugin is in.", states, *_LABELS, "state")
        circuits = {(*labels, str(plugin.circuit)): 1 for labels, plugin in plugins.items()}
        yield gauge(
            "plugin_circuit",
            "1 for the state of a plugin's circuit breaker.",
            circuits,
            *_LABELS,
            "state",
        )
        exports = SummaryMetricFamily(
            f"{PREFIX}plugin_export_seconds",
            "Calls of a plugin's export and their duration, including failed ones.",
            labels=_LABELS,
        )
        deliveries = HistogramMetricFamily(
            f"{PREFIX}plugin_delivery_seconds",
            "Time of exported pushes from their receipt to the destination's acceptance.",
            labels=_LABELS,
        )
        for labels, plugin in plugins.items():
            deliveries.add_metric(
                labels,
                list(zip(_BOUNDS, map(float, accumulate(plugin.deliveries)), strict=True)),
                plugin.delivery_seconds,
            )
            exports.add_metric(labels, plugin.exports, plugin.export_seconds)
        yield from (exports, deliveries)


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
