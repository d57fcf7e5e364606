"""Metrics read at each scrape: connections, client instances, listeners.

Owns the sources that the composition root provides, and their series. A source must be cheap to
read, because the event loop collects.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from receiver.brokers.bypass import bypass_problem
from receiver.brokers.crossed import crossed_upstreams
from receiver.brokers.hidden_telemetry import hidden_telemetry
from receiver.brokers.listener_broker import KnownBroker
from receiver.brokers.listener_state import ListenerState
from receiver.metrics.demand import demand_metrics
from receiver.metrics.families import counter, gauge
from receiver.metrics.labels import SoftwareLabels
from receiver.peers.peers import Scope
from receiver.telemetry.identity import ClientIdentity, port_name
from receiver.telemetry.instance import ClientInstances
from receiver.telemetry.telemetry import ClientTelemetry


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

    def collect(self) -> Iterator[Metric]:
        """Return all series, reading each source once."""
        yield self._connections()
        yield from self._instances()
        yield from demand_metrics(self._sources.telemetry())
        yield from self._store()
        yield from self._processes()
        yield gauge("relays", "Relay processes that are linked to the core.", self._sources.relays())
        yield gauge(
            "tls_certificate_expiry_timestamp_seconds",
            "Expiry of a certificate in use, in seconds since the epoch.",
            {(listener, side): not_after for listener, side, not_after in self._sources.certificates()},
            "listener",
            "side",
        )
        yield from self._listeners()
        yield gauge("limit_peers", "Peers that the limits track.", self._sources.peers(), "scope")
        yield gauge("held_bytes", "Memory of bytes that wait on connections.", self._sources.held_bytes())
        yield gauge("ready", "1 while the receiver accepts clients.", int(self._sources.ready()))
        yield gauge(
            "warnings",
            "What should be corrected, though clients are accepted; /readyz has the sentences.",
            {kind: len(warnings) for kind, warnings in self._sources.warnings().items()},
            "kind",
        )
        yield gauge("draining", "1 while the receiver is stopping.", int(self._sources.draining()))

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
        return gauge(
            "connections",
            "Open client connections by client software (KIP-511).",
            open_now,
            "listener",
            "client_software_name",
            "client_software_version",
        )

    def _instances(self) -> Iterator[Metric]:
        instances = self._sources.instances()
        counts = instances.statistics
        yield gauge("instances", "Known client instances.", len(instances))
        yield counter("instances_created", "Client instances created.", counts.created)
        yield counter("instances_evicted", "Client instances evicted at the bound.", counts.evicted)
        yield counter("instances_expired", "Client instances removed after silence.", counts.expired)
        yield counter(
            "instances_disconnected", "Client instances removed with their connection.", counts.disconnected
        )

    def _store(self) -> Iterator[Metric]:
        health = self._sources.store()
        yield gauge(
            "subscriptions_stale",
            "1 while the store of subscriptions can't be used and the last known ones stay in force.",
            int(health.problem is not None),
        )
        yield counter(
            "subscription_store_failures",
            "Changes of the store of subscriptions that can't be used, and reads of it that failed.",
            health.failures,
        )

    def _processes(self) -> Iterator[Metric]:
        processes = list(self._sources.processes())
        yield counter(
            "process_cpu_seconds",
            "CPU time of a process since its start.",
            {sample.process: sample.cpu_s for sample in processes},
            "process",
        )
        yield gauge(
            "process_resident_bytes",
            "Resident memory of a process, with the pages that it shares with others.",
            {sample.process: sample.resident_bytes for sample in processes},
            "process",
        )
        yield gauge(
            "event_loop_lag_seconds",
            "Longest turn of a process's event loop since the last scrape.",
            {sample.process: sample.loop_lag_s for sample in processes},
            "process",
        )
        yield counter(
            "log_lines_dropped",
            "Log lines of a process that were dropped because the log could not be written.",
            {sample.process: sample.log_lines_dropped for sample in processes},
            "process",
        )

    def _listeners(self) -> Iterator[Metric]:
        listeners = {listener.settings.name: listener for listener in self._sources.listeners()}
        yield gauge(
            "broker_info",
            "1 for each listener, and each node of a rewriting one (ALL/2); the labels have its broker, and "
            "whether the node id is proven.",
            {
                _broker_labels(port_name(name, port), known): 1
                for name, listener in listeners.items()
                for port, known in ((None, listener.known), *listener.nodes.items())
            },
            "listener",
            "broker_id",
            "cluster_id",
            "proven",
        )
        yield gauge(
            "bypassed",
            "1 while the broker advertises an address by which clients pass by the listener.",
            {
                name: bypass_problem(listener.settings, listener.known) is not None
                for name, listener in listeners.items()
            },
            "listener",
        )
        crossed = crossed_upstreams(list(listeners.values()))
        yield gauge(
            "crossed",
            "1 while the broker behind the listener advertises the port of another listener.",
            {name: name in crossed for name in listeners},
            "listener",
        )
        yield gauge(
            "hidden_broker_telemetry",
            "1 while the broker has telemetry of its own that has no effect on clients of the listener.",
            {name: _hides_telemetry(listener) for name, listener in listeners.items()},
            "listener",
        )


def _broker_labels(listener: str, known: KnownBroker) -> tuple[str, ...]:
    broker_id = "" if known.broker.id is None else str(known.broker.id)
    return listener, broker_id, known.broker.cluster_id or "", str(known.proven).lower()


def _hides_telemetry(listener: ListenerState) -> bool:
    return any(hidden_telemetry(known) is not None for known in (listener.known, *listener.nodes.values()))
