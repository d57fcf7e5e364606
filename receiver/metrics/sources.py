"""Metrics read at each scrape: connections, client instances, listeners.

Owns the sources that the composition root provides, and their series. A source must be cheap to
read, because the event loop collects.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from receiver.brokers.bypass import bypass_problem
from receiver.brokers.crossed import crossed_upstreams
from receiver.brokers.hidden_telemetry import hidden_telemetry
from receiver.brokers.listener_state import ListenerState
from receiver.metrics.demand import demand_metrics
from receiver.metrics.labels import SoftwareLabels
from receiver.peers.peers import Scope
from receiver.telemetry.identity import ClientIdentity, port_name
from receiver.telemetry.instance import ClientInstances
from receiver.telemetry.telemetry import ClientTelemetry

_PREFIX = "kafka_telemetry_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessNumbers:
    """The state of one process of the receiver."""

    process: str
    """``core``, or ``relay-1`` and so on."""
    cpu_s: float
    """Seconds of CPU time since its start."""
    resident_bytes: int
    """Resident memory, shared pages included."""
    loop_lag_s: float
    """The longest turn of its event loop since the last scrape, in seconds."""
    log_lines_dropped: int
    """Lines that its log had no room for, since its start."""


class StoreHealth(Protocol):
    """Whether the store of subscriptions can be used."""

    @property
    def problem(self) -> str | None:
        """Why it can't; None while it can."""
        ...

    @property
    def failures(self) -> int:
        """Failures since the start."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources of the collected metrics."""

    connections: Callable[[], Iterable[ClientIdentity]]
    """The registry's open connections (KIP-511)."""
    instances: Callable[[], ClientInstances]
    """The telemetry core's client instances."""
    telemetry: Callable[[], ClientTelemetry]
    """The telemetry core, for series budgets and reduced subscriptions."""
    store: Callable[[], StoreHealth]
    """Whether the store of subscriptions can be used."""
    processes: Callable[[], Iterable[ProcessNumbers]]
    relays: Callable[[], int]
    """The number of relays that are linked to the core."""
    ready: Callable[[], bool]
    """Whether the receiver accepts clients."""
    warnings: Callable[[], Mapping[str, Sequence[str]]]
    """What works and should be otherwise, as ``/readyz`` has it, by kind."""
    draining: Callable[[], bool]
    """Whether the receiver is stopping."""
    certificates: Callable[[], Iterable[tuple[str, str, float]]]
    """For each certificate in use: the listener's name, or ``rest``; the side that it is shown to,
    ``client`` or ``upstream``; its expiry in seconds since the epoch."""
    listeners: Callable[[], Iterable[ListenerState]]
    """Each listener, what is known of its broker, and its open connections."""
    peers: Callable[[], Mapping[Scope, int]]
    """The number of peers that the limits track, by scope."""
    held_bytes: Callable[[], int]
    """Memory of waiting bytes on connections."""


class PulledMetrics(Collector):
    """Collects the sources at every scrape of its registry."""

    def __init__(self, sources: Sources, labels: SoftwareLabels) -> None:
        self._sources = sources
        self._labels = labels

    def describe(self) -> list[Metric]:
        """Return nothing, so that no source is read before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return all series, reading each source once."""
        yield self._connections()
        yield from self._instances()
        yield from demand_metrics(self._sources.telemetry())
        yield from self._store()
        yield from self._processes()
        yield _gauge("relays", "Relay processes that are linked to the core.", self._sources.relays())
        yield self._certificates()
        yield from self._listeners()
        yield self._peers()
        yield _gauge("held_bytes", "Memory of bytes that wait on connections.", self._sources.held_bytes())
        yield _gauge("ready", "1 while the receiver accepts clients.", int(self._sources.ready()))
        yield self._warnings()
        yield _gauge("draining", "1 while the receiver is stopping.", int(self._sources.draining()))

    def _connections(self) -> Metric:
        # Built at each scrape, so that a software's series ends with its last connection (KIP-511).
        open_now = Tally(
            (
                identity.listener,
                *self._labels.name_and_version(
                    identity.client_software_name, identity.client_software_version
                ),
            )
            for identity in self._sources.connections()
        )
        family = GaugeMetricFamily(
            f"{_PREFIX}connections",
            "Open client connections by client software (KIP-511).",
            labels=["listener", "client_software_name", "client_software_version"],
        )
        for labels, count in open_now.items():
            family.add_metric(labels, count)
        return family

    def _instances(self) -> Iterator[Metric]:
        instances = self._sources.instances()
        counts = instances.statistics
        yield _gauge("instances", "Known client instances.", len(instances))
        yield _counter("instances_created", "Client instances created.", counts.created)
        yield _counter("instances_evicted", "Client instances evicted at the bound.", counts.evicted)
        yield _counter("instances_expired", "Client instances removed after silence.", counts.expired)
        yield _counter(
            "instances_disconnected", "Client instances removed with their connection.", counts.disconnected
        )

    def _store(self) -> Iterator[Metric]:
        health = self._sources.store()
        yield _gauge(
            "subscriptions_stale",
            "1 while the store of subscriptions can't be used and the last known ones stay in force.",
            int(health.problem is not None),
        )
        yield _counter(
            "subscription_store_failures",
            "Changes of the store of subscriptions that can't be used, and reads of it that failed.",
            health.failures,
        )

    def _warnings(self) -> Metric:
        family = GaugeMetricFamily(
            f"{_PREFIX}warnings",
            "What should be corrected, though clients are accepted; /readyz has the sentences.",
            labels=["kind"],
        )
        for kind, warnings in self._sources.warnings().items():
            family.add_metric([kind], len(warnings))
        return family

    def _processes(self) -> Iterator[Metric]:
        cpu = CounterMetricFamily(
            f"{_PREFIX}process_cpu_seconds", "CPU time of a process since its start.", labels=["process"]
        )
        resident = GaugeMetricFamily(
            f"{_PREFIX}process_resident_bytes",
            "Resident memory of a process, with the pages that it shares with others.",
            labels=["process"],
        )
        lag = GaugeMetricFamily(
            f"{_PREFIX}event_loop_lag_seconds",
            "Longest turn of a process's event loop since the last scrape.",
            labels=["process"],
        )
        dropped = CounterMetricFamily(
            f"{_PREFIX}log_lines_dropped",
            "Log lines of a process that were dropped because the log could not be written.",
            labels=["process"],
        )
        for sample in self._sources.processes():
            cpu.add_metric([sample.process], sample.cpu_s)
            resident.add_metric([sample.process], sample.resident_bytes)
            dropped.add_metric([sample.process], sample.log_lines_dropped)
            lag.add_metric([sample.process], sample.loop_lag_s)
        yield from (cpu, resident, lag, dropped)

    def _certificates(self) -> Metric:
        family = GaugeMetricFamily(
            f"{_PREFIX}tls_certificate_expiry_timestamp_seconds",
            "Expiry of a certificate in use, in seconds since the epoch.",
            labels=["listener", "side"],
        )
        for listener, side, not_after in self._sources.certificates():
            family.add_metric([listener, side], not_after)
        return family

    def _listeners(self) -> Iterator[Metric]:
        brokers = GaugeMetricFamily(
            f"{_PREFIX}broker_info",
            "1 for each listener, and each node of a rewriting one (ALL/2); the labels have its broker, and "
            "whether the node id is proven.",
            labels=["listener", "broker_id", "cluster_id", "proven"],
        )
        bypassed = GaugeMetricFamily(
            f"{_PREFIX}bypassed",
            "1 while the broker advertises an address by which clients pass by the listener.",
            labels=["listener"],
        )
        crossed = GaugeMetricFamily(
            f"{_PREFIX}crossed",
            "1 while the broker behind the listener advertises the port of another listener.",
            labels=["listener"],
        )
        hidden = GaugeMetricFamily(
            f"{_PREFIX}hidden_broker_telemetry",
            "1 while the broker has telemetry of its own that has no effect on clients of the listener.",
            labels=["listener"],
        )
        listeners = list(self._sources.listeners())
        wrong = crossed_upstreams(listeners)
        for listener in listeners:
            name = listener.settings.name
            crossed.add_metric([name], int(name in wrong))
            behind = (listener.known, *listener.nodes.values())
            hidden.add_metric([name], int(any(hidden_telemetry(broker) is not None for broker in behind)))
            bypassed.add_metric([name], int(bypass_problem(listener.settings, listener.known) is not None))
            ports = [(None, listener.known), *listener.nodes.items()]
            for port, known in ports:
                node_id = "" if known.broker.id is None else str(known.broker.id)
                proven = str(known.proven).lower()
                brokers.add_metric([port_name(name, port), node_id, known.broker.cluster_id or "", proven], 1)
        yield from (brokers, bypassed, crossed, hidden)

    def _peers(self) -> Metric:
        family = GaugeMetricFamily(f"{_PREFIX}limit_peers", "Peers that the limits track.", labels=["scope"])
        for scope, count in self._sources.peers().items():
            family.add_metric([scope], count)
        return family


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(_PREFIX + name, text, value=value)
