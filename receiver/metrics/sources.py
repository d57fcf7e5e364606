"""What is asked at scrape: the connections, instances, listeners and plugins that others keep.

Owns the shapes that the composition root fills, and the series made of them. Asking must be cheap: it happens
on the event loop.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from receiver.metrics.demand import demand_metrics
from receiver.metrics.labels import SoftwareLabels
from receiver.telemetry.connection import Connection
from receiver.telemetry.control.limits import Scope
from receiver.telemetry.instance import ClientInstances
from receiver.telemetry.telemetry import ClientTelemetry

__all__ = ["ListenerBytes", "PluginFigures", "PulledMetrics", "Sources"]

_PREFIX = "kafka_telemetry_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerBytes:
    """What a listener has passed on since the start, telemetry included.

    Attributes:
        listener: Its name.
        from_clients: Bytes read from clients.
        to_clients: Bytes written to clients.
    """

    listener: str
    from_clients: int
    to_clients: int


class PluginFigures(Protocol):
    """One plugin's statistics, as the plugin host keeps them; counters count from the start."""

    @property
    def name(self) -> str:
        """The plugin's unique name."""

    @property
    def type(self) -> str:
        """Its entry point's name."""

    @property
    def state(self) -> str:
        """Where it is in its lifecycle."""

    @property
    def circuit(self) -> str:
        """Whether its destination is asked: closed, open or half_open."""

    @property
    def queue_items(self) -> int:
        """Pushes in memory."""

    @property
    def queue_bytes(self) -> int:
        """OTLP bytes in memory."""

    @property
    def queue_high_water_items(self) -> int:
        """Most pushes ever in memory."""

    @property
    def queue_high_water_bytes(self) -> int:
        """Most OTLP bytes ever in memory."""

    @property
    def queue_max_items(self) -> int:
        """The memory's bound in pushes."""

    @property
    def queue_max_bytes(self) -> int:
        """The memory's bound in bytes."""

    @property
    def spool_pushes(self) -> int:
        """Pushes on disk."""

    @property
    def spool_bytes(self) -> int:
        """Bytes on disk."""

    @property
    def spool_max_bytes(self) -> int:
        """Their bound; 0 without a spool."""

    @property
    def spool_problem(self) -> str | None:
        """Why the spool can't be used as it should."""

    @property
    def in_flight_pushes(self) -> int:
        """Pushes neither waiting, exported nor dropped."""

    @property
    def lag_s(self) -> float:
        """How long ago the oldest push was received that is neither exported nor dropped, in seconds."""

    @property
    def offered_pushes(self) -> int:
        """Pushes handed to the host."""

    @property
    def recovered_pushes(self) -> int:
        """Pushes found on disk from before."""

    @property
    def exported_pushes(self) -> int:
        """Pushes that the destination took."""

    @property
    def exported_batches(self) -> int:
        """Exports that the destination took."""

    @property
    def dropped(self) -> Mapping[Any, int]:
        """Pushes dropped, by reason."""

    @property
    def rejected_points(self) -> int:
        """Data points that the destination refused."""

    @property
    def failures(self) -> int:
        """Failed calls."""

    @property
    def retries(self) -> int:
        """Exports tried again."""

    @property
    def restarts(self) -> int:
        """How often it was started again after a crash."""

    @property
    def consecutive_failures(self) -> int:
        """Failures since the last success."""

    @property
    def export_seconds(self) -> float:
        """Time spent in export calls, in seconds."""

    @property
    def exports(self) -> int:
        """Export calls that ended."""

    @property
    def call_seconds(self) -> float:
        """How long the current call has lasted, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Whom to ask at scrape.

    Attributes:
        connections: The registry's open connections (KIP-511).
        instances: The telemetry core's client instances.
        telemetry: The telemetry core, for the series that clients have and what they are asked less.
        listeners: What each listener has passed on.
        plugins: Each plugin's statistics.
        ready: Whether the receiver takes clients.
        draining: Whether it is stopping.
        certificates: The certificates in use: the listener's name, or ``rest``; ``client`` for what its
            clients are shown or ``upstream`` for what the broker is; the end in seconds since the epoch.
        peers: How many peers the limits remember, by scope.
        held_bytes: Memory of what waits on connections, in bytes.
        deferred_calls: How often a connection had to wait for another turn of the event loop.
    """

    connections: Callable[[], Iterable[Connection]]
    instances: Callable[[], ClientInstances]
    telemetry: Callable[[], ClientTelemetry]
    listeners: Callable[[], Iterable[ListenerBytes]]
    plugins: Callable[[], Iterable[PluginFigures]]
    ready: Callable[[], bool]
    draining: Callable[[], bool]
    certificates: Callable[[], Iterable[tuple[str, str, float]]]
    peers: Callable[[], Mapping[Scope, int]]
    held_bytes: Callable[[], int]
    deferred_calls: Callable[[], int]


class PulledMetrics(Collector):
    """The series made of what the sources say; registered with a registry, asked at every scrape."""

    def __init__(self, sources: Sources, labels: SoftwareLabels) -> None:
        self._sources = sources
        self._labels = labels

    def describe(self) -> list[Metric]:
        """Nothing: a source is not asked before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All series, from one look at each source."""
        yield self._connections()
        yield from self._instances()
        yield from demand_metrics(self._sources.telemetry())
        yield from self._listeners()
        yield from self._plugins()
        yield self._certificates()
        yield self._peers()
        yield _gauge("held_bytes", "Memory of what waits on connections.", self._sources.held_bytes())
        yield _counter(
            "deferred_calls",
            "Times that a connection waited for another turn because its peer's share was used up.",
            self._sources.deferred_calls(),
        )
        yield _gauge("ready", "1 while the receiver takes clients.", int(self._sources.ready()))
        yield _gauge("draining", "1 while the receiver is stopping.", int(self._sources.draining()))

    def _connections(self) -> Metric:
        # Made anew each time, so that a software's series is gone with its last connection (KIP-511).
        open_now = Tally(
            (
                connection.listener,
                *self._labels.name_and_version(
                    connection.client_software_name, connection.client_software_version
                ),
            )
            for connection in self._sources.connections()
        )
        family = GaugeMetricFamily(
            f"{_PREFIX}connections",
            "Open client connections, by what the client says it is (KIP-511).",
            labels=["listener", "client_software_name", "client_software_version"],
        )
        for labels, count in open_now.items():
            family.add_metric(labels, count)
        return family

    def _instances(self) -> Iterator[Metric]:
        instances = self._sources.instances()
        counts = instances.statistics
        yield _gauge("instances", "Client instances known now.", len(instances))
        yield _counter("instances_created", "Client instances created.", counts.created)
        yield _counter("instances_evicted", "Client instances forgotten for want of room.", counts.evicted)
        yield _counter("instances_expired", "Client instances forgotten after silence.", counts.expired)
        yield _counter(
            "instances_disconnected", "Client instances forgotten with their connection.", counts.disconnected
        )

    def _listeners(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            f"{_PREFIX}listener_bytes",
            "Bytes a listener has passed on, by direction.",
            labels=["listener", "direction"],
        )
        for passed in self._sources.listeners():
            family.add_metric([passed.listener, "from_clients"], passed.from_clients)
            family.add_metric([passed.listener, "to_clients"], passed.to_clients)
        yield family

    def _certificates(self) -> Metric:
        family = GaugeMetricFamily(
            f"{_PREFIX}tls_certificate_expiry_seconds",
            "When a certificate in use ends, in seconds since the epoch.",
            labels=["listener", "side"],
        )
        for listener, side, not_after in self._sources.certificates():
            family.add_metric([listener, side], not_after)
        return family

    def _peers(self) -> Metric:
        family = GaugeMetricFamily(
            f"{_PREFIX}limit_peers", "Peers that the limits remember.", labels=["scope"]
        )
        for scope, count in self._sources.peers().items():
            family.add_metric([scope], count)
        return family

    def _plugins(self) -> Iterator[Metric]:
        plugins = list(self._sources.plugins())
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
            "Pushes that never reached the destination.",
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
            "Calls of a plugin's export and the time they took, failed ones included.",
            labels=["plugin", "type"],
        )
        for plugin in plugins:
            for reason, count in plugin.dropped.items():
                dropped.add_metric([plugin.name, plugin.type, str(reason)], count)
            state.add_metric([plugin.name, plugin.type, str(plugin.state)], 1)
            circuit.add_metric([plugin.name, plugin.type, str(plugin.circuit)], 1)
            exports.add_metric([plugin.name, plugin.type], plugin.exports, plugin.export_seconds)
        yield from (dropped, state, circuit, exports)


_Figure = Callable[[PluginFigures], float]

_PLUGIN_GAUGES: tuple[tuple[str, str, _Figure], ...] = (
    ("queue_items", "Pushes in memory.", lambda p: p.queue_items),
    ("queue_bytes", "OTLP bytes in memory.", lambda p: p.queue_bytes),
    ("queue_high_water_items", "Most pushes ever in memory.", lambda p: p.queue_high_water_items),
    ("queue_high_water_bytes", "Most OTLP bytes ever in memory.", lambda p: p.queue_high_water_bytes),
    ("queue_max_items", "The memory's bound in pushes.", lambda p: p.queue_max_items),
    ("queue_max_bytes", "The memory's bound in OTLP bytes.", lambda p: p.queue_max_bytes),
    ("spool_pushes", "Pushes on disk.", lambda p: p.spool_pushes),
    ("spool_bytes", "Bytes on disk.", lambda p: p.spool_bytes),
    ("spool_max_bytes", "The disk's bound in bytes; 0 without a spool.", lambda p: p.spool_max_bytes),
    (
        "spool_problem",
        "1 while the spool can't be used as it should; the log and REST say why.",
        lambda p: p.spool_problem is not None,
    ),
    (
        "lag_seconds",
        "How long ago the oldest push was received that is neither exported nor dropped.",
        lambda p: p.lag_s,
    ),
    (
        "in_flight_pushes",
        "Pushes in an export now or waiting for the next try.",
        lambda p: p.in_flight_pushes,
    ),
    ("consecutive_failures", "Failed calls since the last success.", lambda p: p.consecutive_failures),
    (
        "call_seconds",
        "How long the current call of the plugin has lasted; shows a hang.",
        lambda p: p.call_seconds,
    ),
)

_PLUGIN_COUNTERS: tuple[tuple[str, str, _Figure], ...] = (
    ("offered_pushes", "Pushes handed to the plugin host.", lambda p: p.offered_pushes),
    ("recovered_pushes", "Pushes found on disk from before.", lambda p: p.recovered_pushes),
    ("exported_pushes", "Pushes that the destination took.", lambda p: p.exported_pushes),
    ("exported_batches", "Exports that the destination took.", lambda p: p.exported_batches),
    ("rejected_points", "Data points that the destination refused.", lambda p: p.rejected_points),
    ("failures", "Failed calls of the plugin.", lambda p: p.failures),
    ("retries", "Exports tried again.", lambda p: p.retries),
    ("restarts", "Plugins, or their processes, started again after a crash.", lambda p: p.restarts),
)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(_PREFIX + name, text, value=value)
