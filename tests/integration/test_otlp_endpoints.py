"""Several real OpenTelemetry Collectors as one destination, one of which restarts."""

from __future__ import annotations

from tests.testbed.collector import Collector
from tests.testbed.process import wait_until
from tests.unit.plugins.support import client_push, started


def size(collector: Collector) -> int:
    return collector.file.stat().st_size


def test_every_export_arrives_while_one_collector_is_down() -> None:
    with Collector() as one, Collector() as other:
        with started(endpoints=[one.grpc_endpoint, other.grpc_endpoint], timeout_ms=2000) as plugin:
            for _ in range(4):
                plugin.export_batch([client_push()])
            wait_until(lambda: size(one) == size(other) > 0, timeout_s=120, what="both to have the same")
            each = size(one) // 2
            one.kill()
            for _ in range(6):
                plugin.export_batch([client_push()])
            wait_until(lambda: size(other) == each * 8, timeout_s=120, what="the other to have the rest")
            assert size(one) == each * 2
        one.start()
        with started(endpoints=[one.grpc_endpoint, other.grpc_endpoint]) as plugin:
            for _ in range(4):
                plugin.export_batch([client_push()])
            wait_until(lambda: size(other) == each * 10, timeout_s=120, what="its share")
            wait_until(lambda: size(one) == each * 4, timeout_s=120, what="its share")
