"""The otlp plugin delivers exactly what clients sent to a real OpenTelemetry Collector."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics
from structlog.testing import capture_logs

from receiver.host.delivery.statistics import DropReason
from receiver.host.discovery import load_plugins
from receiver.host.host import PluginHost
from receiver.plugin import Push
from tests.testbed.collector import Collector
from tests.unit.host.support import push, wait_for

PAYLOADS = Path(__file__).parents[1] / "data" / "payloads"
NAMES = (
    "java44-producer-star-01",
    "java44-consumer-star-01",
    "ck-consumer-star-02",
    "franz-producer-okprefix-02",
)


def real_pushes() -> list[Push]:
    return [push(n, data=(PAYLOADS / f"{name}.bin").read_bytes()) for n, name in enumerate(NAMES)]


def written(collector: Collector, since: int) -> list[ResourceMetrics]:
    """What the collector wrote after a position in its file, read by protobuf's own JSON reader."""
    with collector.file.open("rb") as file:
        file.seek(since)
        new = file.read()
    lines = new[: new.rfind(b"\n") + 1].splitlines()
    return [
        normal(resource)
        for line in lines
        for resource in json_format.Parse(line, ExportMetricsServiceRequest()).resource_metrics
    ]


def sent(pushes: list[Push]) -> list[ResourceMetrics]:
    return [normal(resource) for item in pushes for resource in item.payload.metrics.resource_metrics]


def normal(resource: ResourceMetrics) -> ResourceMetrics:
    """Set the resource and scopes, because the collector writes absent ones as empty."""
    resource.resource.SetInParent()
    for scope in resource.scope_metrics:
        scope.scope.SetInParent()
    return resource


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_the_collector_has_exactly_what_clients_sent(
    collector: Collector, protocol: str, compression: str
) -> None:
    since = collector.file.stat().st_size
    endpoint = collector.grpc_endpoint if protocol == "grpc" else collector.http_endpoint
    host = PluginHost(
        load_plugins(
            [
                {
                    "type": "otlp",
                    "endpoint": endpoint,
                    "protocol": protocol,
                    "compression": compression,
                    "delivery": "memory",
                }
            ]
        )
    )
    pushes = real_pushes()
    host.start()
    for item in pushes:
        host.offer(item)
    assert host.stop(20)
    (statistics,) = host.statistics()
    assert statistics.exported_pushes == len(pushes)
    assert statistics.failures == statistics.rejected_points == 0

    expected = sent(pushes)
    wait_for(lambda: len(written(collector, since)) >= len(expected), timeout_s=120)
    assert written(collector, since) == expected


#: What upb takes and keeps, and the Collector's own reader refuses the whole request for.
MALFORMED = {
    "unknown group in a ResourceMetrics": b"\x0a\x04\xfb\x07\xfc\x07",
    "known field of another wire type": b"\x0a\x02\x08\x01",
}


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("malformed", MALFORMED.values(), ids=list(MALFORMED))
def test_a_push_that_the_collector_cannot_read_costs_no_other(
    collector: Collector, protocol: str, malformed: bytes
) -> None:
    since = collector.file.stat().st_size
    endpoint = collector.grpc_endpoint if protocol == "grpc" else collector.http_endpoint
    entry = {"type": "otlp", "endpoint": endpoint, "protocol": protocol, "delivery": "memory"}
    host = PluginHost(load_plugins([entry]))
    before, after = real_pushes() + real_pushes()[:1], real_pushes()
    for item in [*before, push(data=malformed), *after]:
        host.offer(item)
    with capture_logs() as logs:
        host.start()
        assert host.stop(20)
    (statistics,) = host.statistics()
    assert statistics.exported_pushes == len(before) + len(after)
    assert {reason: n for reason, n in statistics.dropped.items() if n} == {DropReason.PERMANENT: 1}
    refusal = "INTERNAL: " if protocol == "grpc" else "HTTP 400: "
    assert (statistics.last_error or "").startswith(refusal)
    (dropped,) = (entry for entry in logs if entry["event"] == "export refused, pushes dropped")
    assert dropped["pushes"] == 1
    assert dropped["error"].startswith(refusal)

    expected = sent(before + after)
    wait_for(lambda: len(written(collector, since)) >= len(expected), timeout_s=120)
    assert written(collector, since) == expected


def test_pushes_wait_for_a_collector_that_is_away() -> None:
    with Collector() as collector:
        collector.kill()
        host = PluginHost(
            load_plugins(
                [
                    {
                        "type": "otlp",
                        "endpoint": collector.grpc_endpoint,
                        "delivery": "memory",
                        "retry": {"initial_ms": 50, "max_ms": 200},
                    }
                ]
            )
        )
        pushes = real_pushes()
        host.start()
        for item in pushes:
            host.offer(item)
        wait_for(lambda: host.statistics()[0].retries >= 2)
        collector.start()
        wait_for(lambda: host.statistics()[0].exported_pushes == len(pushes), timeout_s=120)
        assert host.stop(20)
        (statistics,) = host.statistics()
        assert statistics.consecutive_failures == 0
        expected = sent(pushes)
        wait_for(lambda: len(written(collector, 0)) >= len(expected), timeout_s=120)
        assert written(collector, 0) == expected


def _failed_twice(host: PluginHost) -> bool:
    return host.statistics()[0].failures >= 2


def test_pushes_wait_on_disk_for_a_collector_that_is_away_and_survive_restarts(tmp_path: Path) -> None:
    with Collector() as collector:
        collector.kill()
        entry = {
            "type": "otlp",
            "endpoint": collector.grpc_endpoint,
            "delivery": "spool_when_behind",
            "spool": {"path": str(tmp_path / "spool"), "after_ms": 50},
            "retry": {"initial_ms": 50, "max_ms": 200},
        }
        pushes = real_pushes()
        for number, item in enumerate(pushes):
            host = PluginHost(load_plugins([entry]))
            host.start()
            host.offer(item)
            wait_for(partial(_failed_twice, host))
            assert host.stop(2)
            (statistics,) = host.statistics()
            assert statistics.spool_pushes == number + 1
            assert not any(statistics.dropped.values())
        collector.start()
        host = PluginHost(load_plugins([entry]))
        host.start()
        wait_for(lambda: host.statistics()[0].exported_pushes == len(pushes), timeout_s=120)
        assert host.stop(20)
        expected = sent(pushes)
        wait_for(lambda: len(written(collector, 0)) >= len(expected), timeout_s=120)
        assert written(collector, 0) == expected
