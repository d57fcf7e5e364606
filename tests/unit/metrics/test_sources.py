"""Metrics that each scrape reads from its sources."""

import re
from dataclasses import dataclass, field

from receiver.brokers.listener_state import ListenerState
from receiver.host.delivery.backlog import Backlog
from receiver.host.delivery.statistics import DropReason, PluginState, PluginStatistics
from receiver.host.plugin_metrics import PluginMetrics
from receiver.metrics import OTHER, ProcessNumbers, ReceiverMetrics, SoftwareLabels, Sources
from receiver.peers.peers import Scope
from receiver.store.store import StoreStatus
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.instance import ClientInstances
from receiver.telemetry.telemetry import ClientTelemetry
from tests.unit.api.conftest import ask, connection, instance_id, telemetry_core


@dataclass
class Now:
    """What the sources say."""

    connections: list[ClientIdentity] = field(default_factory=list)
    instances: ClientInstances = field(default_factory=lambda: ClientInstances(2, lambda _: None))
    telemetry: ClientTelemetry = field(default_factory=telemetry_core)
    store: StoreStatus = field(default_factory=StoreStatus)
    processes: list[ProcessNumbers] = field(default_factory=list)
    plugins: list[PluginStatistics] = field(default_factory=list)
    ready: bool = False
    warnings: dict[str, list[str]] = field(default_factory=dict)
    draining: bool = False
    certificates: list[tuple[str, str, float]] = field(default_factory=list)
    listeners: list[ListenerState] = field(default_factory=list)
    peers: dict[Scope, int] = field(default_factory=dict)

    def metrics(self, labels: SoftwareLabels | None = None) -> ReceiverMetrics:
        metrics = ReceiverMetrics(version="9.9.9", labels=labels)
        metrics.observe(
            Sources(
                connections=lambda: self.connections,
                instances=lambda: self.instances,
                telemetry=lambda: self.telemetry,
                store=lambda: self.store,
                processes=lambda: self.processes,
                relays=lambda: len(self.processes) - 1,
                ready=lambda: self.ready,
                warnings=lambda: self.warnings,
                draining=lambda: self.draining,
                certificates=lambda: self.certificates,
                listeners=lambda: self.listeners,
                peers=lambda: self.peers,
                held_bytes=lambda: 4_096,
            )
        )
        metrics.registry.register(PluginMetrics(lambda: self.plugins))
        return metrics


def lines(metrics: ReceiverMetrics, name: str) -> set[str]:
    """The lines of a metric without its prefix."""
    text = metrics.exposition()[0].decode()
    return {
        line.removeprefix("kafka_telemetry_")
        for line in text.splitlines()
        if line.startswith((f"kafka_telemetry_{name}{{", f"kafka_telemetry_{name} "))
    }


def software(number: int, name: str = "kgo", version: str = "1.0") -> ClientIdentity:
    return connection(number, client_software_name=name, client_software_version=version)


def test_a_softwares_connections_disappear_at_zero() -> None:
    now = Now(connections=[software(1), software(2), software(3, "librdkafka", "2.16.0")])
    metrics = now.metrics()
    kgo = 'connections{client_software_name="kgo",client_software_version="1.0",listener="CLIENT"}'
    librdkafka = kgo.replace("kgo", "librdkafka").replace("1.0", "2.16.0")
    assert lines(metrics, "connections") == {f"{kgo} 2.0", f"{librdkafka} 1.0"}
    del now.connections[:2]
    assert lines(metrics, "connections") == {f"{librdkafka} 1.0"}
    now.connections.clear()
    assert lines(metrics, "connections") == set()


def test_made_up_software_makes_a_bounded_number_of_series() -> None:
    now = Now(connections=[software(n, f"made-up-{n}", f"{n}") for n in range(1000)])
    shown = lines(now.metrics(SoftwareLabels(max_names=5, max_versions=10)), "connections")
    assert len(shown) <= 5 * 11 + 11
    assert sum(float(line.rpartition(" ")[2]) for line in shown) == 1000
    assert any(f'"{OTHER}"' in line for line in shown)


def test_instances_and_state() -> None:
    now = Now(ready=True)
    telemetry = telemetry_core(max_instances=3)
    now.instances = telemetry.instances
    outcomes = [ask(telemetry, number, 0.0) for number in range(2, 7)]
    assert all(outcome.created for outcome in outcomes)
    telemetry.instances.forget_expired(10_000.0, 1)
    last = telemetry.instances.find(instance_id(6))
    assert last is not None
    telemetry.instances.disconnected(last.identity.id)
    metrics = now.metrics()
    assert lines(metrics, "instances") == {"instances 1.0"}
    assert lines(metrics, "instances_created_total") == {"instances_created_total 5.0"}
    assert lines(metrics, "instances_evicted_total") == {"instances_evicted_total 2.0"}
    assert lines(metrics, "instances_expired_total") == {"instances_expired_total 1.0"}
    assert lines(metrics, "instances_disconnected_total") == {"instances_disconnected_total 1.0"}
    assert lines(metrics, "ready") == {"ready 1.0"}
    assert lines(metrics, "draining") == {"draining 0.0"}
    now.ready, now.draining = False, True
    assert lines(metrics, "ready") == {"ready 0.0"}
    assert lines(metrics, "draining") == {"draining 1.0"}


def test_processes() -> None:
    core = ProcessNumbers(
        process="core", cpu_s=3.5, resident_bytes=1000, loop_lag_s=0.25, log_lines_dropped=0
    )
    relay = ProcessNumbers(
        process="relay-1", cpu_s=7.0, resident_bytes=2000, loop_lag_s=0.5, log_lines_dropped=7
    )
    metrics = Now(processes=[core, relay]).metrics()
    assert lines(metrics, "relays") == {"relays 1.0"}
    for name, shown in (
        ("process_cpu_seconds_total", ("3.5", "7.0")),
        ("process_resident_bytes", ("1000.0", "2000.0")),
        ("event_loop_lag_seconds", ("0.25", "0.5")),
    ):
        expected = zip(("core", "relay-1"), shown, strict=True)
        assert lines(metrics, name) == {
            f'{name}{{process="{process}"}} {value}' for process, value in expected
        }


def test_certificates_and_peers() -> None:
    now = Now(certificates=[("SSL", "client", 1.8e9), ("SSL", "upstream", 1.9e9)])
    now.peers = {"source_address": 3, "principal": 2}
    metrics = now.metrics()
    assert lines(metrics, "tls_certificate_expiry_timestamp_seconds") == {
        'tls_certificate_expiry_timestamp_seconds{listener="SSL",side="client"} 1.8e+09',
        'tls_certificate_expiry_timestamp_seconds{listener="SSL",side="upstream"} 1.9e+09',
    }
    assert lines(metrics, "held_bytes") == {"held_bytes 4096.0"}
    now.warnings = {"bypass": ["one", "two"], "clock": []}
    assert lines(metrics, "warnings") == {'warnings{kind="bypass"} 2.0', 'warnings{kind="clock"} 0.0'}
    assert lines(metrics, "limit_peers") == {
        'limit_peers{scope="principal"} 2.0',
        'limit_peers{scope="source_address"} 3.0',
    }


def test_plugins() -> None:
    now = Now(
        plugins=[
            PluginStatistics(
                name="collector",
                type="otlp",
                state=PluginState.RUNNING,
                delivery="spool_when_behind",
                isolation="thread",
                circuit="half_open",
                queue_items=1,
                queue_bytes=2,
                queue_high_water_items=3,
                queue_high_water_bytes=4,
                queue_max_items=5,
                queue_max_bytes=6,
                spool_pushes=19,
                spool_bytes=20,
                spool_max_bytes=21,
                spool_problem="/spool: No space left on device",
                files_problem="tls.ca_file: no certificate",
                backlog=Backlog(pushes=3, bytes=30, used=0.5, full_in_s=None, away_s=0.0, has_spool=True),
                in_flight_pushes=7,
                lag_seconds=22.5,
                offered_pushes=8,
                recovered_pushes=23,
                exported_pushes=9,
                exported_batches=10,
                dropped=dict.fromkeys(DropReason, 0) | {DropReason.QUEUE_FULL: 11},
                rejected_points=12,
                failures=13,
                retries=14,
                restarts=24,
                consecutive_failures=15,
                last_error="hunter2",
                deliveries=(1, 2, *(0,) * 8, 1),
                delivery_seconds=100_000.5,
                export_seconds=16.5,
                exports=17,
                call_seconds=18.5,
            )
        ]
    )
    metrics = now.metrics()
    whole = metrics.exposition()[0].decode()
    labels = 'plugin="collector",type="otlp"'
    for name, value in {
        "queue_items": 1,
        "queue_bytes": 2,
        "queue_high_water_items": 3,
        "queue_high_water_bytes": 4,
        "queue_max_items": 5,
        "queue_max_bytes": 6,
        "spool_pushes": 19,
        "spool_bytes": 20,
        "spool_max_bytes": 21,
        "spool_problem": 1,
        "files_problem": 1,
        "in_flight_pushes": 7,
        "lag_seconds": 22.5,
        "offered_pushes_total": 8,
        "recovered_pushes_total": 23,
        "exported_pushes_total": 9,
        "exported_batches_total": 10,
        "rejected_points_total": 12,
        "failures_total": 13,
        "retries_total": 14,
        "restarts_total": 24,
        "consecutive_failures": 15,
        "export_seconds_sum": 16.5,
        "export_seconds_count": 17,
        "call_seconds": 18.5,
    }.items():
        assert f"kafka_telemetry_plugin_{name}{{{labels}}} {float(value)}\n" in whole
    buckets = {
        float(bound): float(count)
        for bound, count in re.findall(r'plugin_delivery_seconds_bucket\{le="([^"]+)",[^}]*\} (\S+)', whole)
    }
    assert (buckets[0.1], buckets[0.5], buckets[86_400.0], buckets[float("inf")]) == (1, 3, 3, 4)
    assert f"kafka_telemetry_plugin_delivery_seconds_sum{{{labels}}} 100000.5\n" in whole
    assert 'kafka_telemetry_plugin_state{plugin="collector",state="running",type="otlp"} 1.0\n' in whole
    assert 'kafka_telemetry_plugin_circuit{plugin="collector",state="half_open",type="otlp"} 1.0\n' in whole
    dropped = 'kafka_telemetry_plugin_dropped_pushes_total{plugin="collector",reason="%s",type="otlp"} %s\n'
    assert dropped % ("queue_full", 11.0) in whole
    assert dropped % ("shutdown", 0.0) in whole
    assert "hunter2" not in whole


def test_a_store_that_cannot_be_used_is_shown() -> None:
    now = Now()
    metrics = now.metrics()
    assert lines(metrics, "subscriptions_stale") == {"subscriptions_stale 0.0"}
    assert lines(metrics, "subscription_store_failures_total") == {"subscription_store_failures_total 0.0"}
    now.store = StoreStatus(problem="subscriptions.d: 1 mistake in its files", failures=2)
    assert lines(metrics, "subscriptions_stale") == {"subscriptions_stale 1.0"}
    assert lines(metrics, "subscription_store_failures_total") == {"subscription_store_failures_total 2.0"}
