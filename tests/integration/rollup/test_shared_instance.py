"""Two processes that push as one client instance are a finding."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from tests.integration.rollup.conftest import Query, Roll
from tests.integration.rollup.pushes import (
    ASSIGNED,
    MINUTE_NS,
    SECOND_NS,
    Client,
    Spooled,
    Values,
    push,
    spool,
)

SHARED = Client(instance="AAAAAAAAAAAAAAAAAAAAAA", client_id="forked")
ALONE = Client(instance="BBBBBBBBBBBBBBBBBBBBBB", client_id="alone")
INTERVAL_MINUTES = 5


def from_address(pushed: Spooled, address: str) -> Spooled:
    data = MetricsData.FromString(pushed.otlp)
    data.resource_metrics[0].resource.attributes.add(key="client_source_address").value.string_value = address
    return replace(pushed, otlp=data.SerializeToString())


@pytest.mark.full
def test_an_instance_of_two_processes_is_found(roll: Roll, query: Query, folder: Path) -> None:
    # Findings are looked for at the present time. Ten minutes more change none of what follows.
    began = (time.time_ns() // MINUTE_NS - 32) * MINUTE_NS

    def pushes(client: Client, address: str, *, second: int, partitions: float) -> list[Spooled]:
        values = Values(gauges={ASSIGNED: partitions})
        return [
            from_address(
                push(
                    client,
                    began + minute * MINUTE_NS + second * SECOND_NS,
                    values,
                    push_interval_ms=INTERVAL_MINUTES * 60_000,
                ),
                address,
            )
            for minute in range(0, 31, INTERVAL_MINUTES)
        ]

    one = pushes(SHARED, "10.0.0.1", second=5, partitions=3.0)
    other = pushes(SHARED, "10.0.0.2", second=40, partitions=4.0)
    alone = pushes(ALONE, "10.0.0.3", second=20, partitions=5.0)
    spool(folder, "one", [*one, *other, *alone])
    roll()
    # One of the two hides the other.
    counts = "SELECT DISTINCT client_id, sum FROM metric_1m WHERE metric = %s AND points > 0 ORDER BY 1"
    assert query(counts, ASSIGNED) == [("alone", 5.0), ("forked", 4.0)]
    ((instance, severity, evidence),) = query(
        "SELECT client_instance_id, severity, evidence FROM finding WHERE kind = 'shared_instance'"
    )
    assert (instance, severity) == (SHARED.instance, "warning")
    assert evidence["push_interval_ms"] == INTERVAL_MINUTES * 60_000
    assert evidence["pushes"] >= 8
    assert evidence["processes"] >= 1.5
    # The newest push of each minute is the second process's.
    assert evidence["addresses"] == ["10.0.0.2"]
