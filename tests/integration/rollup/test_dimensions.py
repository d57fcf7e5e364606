"""Points that differ in reason, error, acks, partition or node have rows of their own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA, MetricsData
from structlog.testing import capture_logs

from receiver.telemetry.labels import length_delimited
from receiver.telemetry.otlp import label_metrics
from spark_streaming.postgres.reasons import MAX_REASONS
from tests.integration.rollup.conftest import Query, Roll
from tests.integration.rollup.pushes import MINUTE_NS, SECOND_NS, Client, Spooled, spool

DRAFT = "org.apache.kafka.client."
LAG = "org.apache.kafka.consumer.fetch.manager.records.lag"
CLIENT = Client(instance="AAAAAAAAAAAAAAAAAAAAAA")
NOW = (time.time_ns() // MINUTE_NS - 30) * MINUTE_NS

Points = Mapping[tuple[tuple[str, str], ...], float]


def pushed(
    at_ns: int, *, sums: Mapping[str, Points] | None = None, gauges: Mapping[str, Points] | None = None
) -> Spooled:
    """One push of the client, with points by metric and attributes, labelled by the receiver."""
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    for kind, metrics in (("sum", sums), ("gauge", gauges)):
        for name, points in (metrics or {}).items():
            metric = scope.metrics.add(name=name)
            if kind == "sum":
                metric.sum.is_monotonic = True
                metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
            for attributes, value in points.items():
                point = getattr(metric, kind).data_points.add(time_unix_nano=at_ns, as_double=value)
                for key, text in attributes:
                    point.attributes.add(key=key).value.string_value = text
    labels = b"".join(
        length_delimited(
            b"\x0a",
            length_delimited(b"\x0a", key.encode())
            + length_delimited(b"\x12", length_delimited(b"\x0a", value.encode())),
        )
        for key, value in CLIENT.labels().items()
    )
    labelled = label_metrics(data.SerializeToString(), labels, max_entries=100_000)
    return Spooled(client=CLIENT, received_at_ns=at_ns + SECOND_NS, otlp=labelled.data)


@pytest.mark.full
def test_reasons_errors_and_brokers_are_rows(roll: Roll, query: Query, folder: Path) -> None:
    reasons = {"disconnect": 1.0, "auth": 2.0, "TLS": 4.0}
    sums: Mapping[str, Points] = {
        f"{DRAFT}connection.errors": {(("reason", reason),): value for reason, value in reasons.items()},
        f"{DRAFT}request.errors": {
            (("broker_id", "1"), ("reason", "timeout")): 1.0,
            (("broker_id", "2"), ("reason", "timeout")): 2.0,
            (("broker_id", "2"), ("reason", "error")): 4.0,
            (("broker_id", "bootstrap"), ("reason", "error")): 8.0,
        },
        f"{DRAFT}consumer.group.error.count": {
            (("error", "MaxPollExceeded"),): 3.0,
            (("error", "HeartbeatTimeout"),): 5.0,
        },
    }
    spool(folder, "one", [pushed(NOW, sums=sums), pushed(NOW + 10 * SECOND_NS, sums=sums)])
    roll()
    assert dict(query("SELECT reason, sum FROM metric_1m WHERE metric LIKE %s", "%connection.errors")) == {
        reason: 2 * value for reason, value in reasons.items()
    }
    assert set(
        query("SELECT node_id, reason, sum FROM metric_1m WHERE metric LIKE %s", "%request.errors")
    ) == {("1", "timeout", 2.0), ("2", "timeout", 4.0), ("2", "error", 8.0), ("bootstrap", "error", 16.0)}
    assert set(query("SELECT error, sum FROM metric_1m WHERE metric LIKE %s", "%group.error.count")) == {
        ("MaxPollExceeded", 6.0),
        ("HeartbeatTimeout", 10.0),
    }
    # The receiver's own labels are as they were.
    assert query("SELECT DISTINCT broker_id, client_owner FROM client") == [("1", "payments")]


@pytest.mark.full
def test_reasons_are_bounded(roll: Roll, query: Query, folder: Path) -> None:
    """A client that puts ids or times into its reasons can't have any number of series."""
    name = f"{DRAFT}connection.errors"
    reasons = [f"timed out after {number} ms" for number in range(MAX_REASONS + 20)]
    spool(folder, "one", [pushed(NOW, sums={name: {(("reason", reason),): 1.0 for reason in reasons}})])
    with capture_logs() as log:
        roll()
    assert [line["series"] for line in log if line["event"].startswith("series with too many")] == [20]
    # Those that are known stay themselves, in another process too.
    known = {item for (item,) in query("SELECT reason FROM series WHERE metric = %s", name)} - {"other"}
    assert len(known) == MAX_REASONS
    again = [*sorted(known)[:2], "new", "other"]
    spool(folder, "two", [pushed(NOW + MINUTE_NS, sums={name: {(("reason", item),): 1.0 for item in again}})])
    roll()
    by_reason = "SELECT reason, sum(sum) FROM metric_1d WHERE metric = %s AND reason = ANY (%s) GROUP BY 1"
    assert dict(query(by_reason, name, [*again[:2], "other"])) == {
        again[0]: 2.0,
        again[1]: 2.0,
        "other": 22.0,
    }
    assert query("SELECT sum(sum), count(DISTINCT reason) FROM metric_1m WHERE metric = %s", name) == [
        (MAX_REASONS + 24.0, MAX_REASONS + 1)
    ]
    # Other series have a bound of their own.
    other = (("reason", "auth"), ("topic", "orders"))
    spool(folder, "three", [pushed(NOW + 2 * MINUTE_NS, sums={name: {other: 1.0}})])
    roll()
    assert query("SELECT reason FROM topic_1m WHERE metric = %s", name) == [("auth",)]


@pytest.mark.full
def test_partitions_and_acks_are_bounded(roll: Roll, query: Query, folder: Path) -> None:
    failures: Points = {
        (("topic", "orders"), ("partition", partition), ("acks", acks), ("reason", "RequestTimedOut")): 1.0
        for partition in ("0", "2", "3", "unassigned", "04", "-1", "none")
        for acks in ("all", "leader", "1000")
    }
    lag: Points = {(("topic", "orders"), ("partition", str(number))): 10.0 for number in range(50)}
    spool(
        folder,
        "one",
        [pushed(NOW, sums={f"{DRAFT}producer.partition.record.failures": failures}, gauges={LAG: lag})],
    )
    roll(max_partitions=3)
    found = query(
        "SELECT partition, acks, reason, sum FROM topic_1m WHERE metric LIKE %s ORDER BY partition, acks",
        "%record.failures",
    )
    assert found == [
        (partition, acks, "RequestTimedOut", value)
        for partition, value in (("0", 1.0), ("2", 1.0), ("other", 4.0), ("unassigned", 1.0))
        for acks in ("all", "leader", "other")
    ]
    # The counts of folded partitions add up.
    assert query(
        "SELECT partition, sum, points, max FROM metric_1m WHERE metric = %s AND bucket = to_timestamp(%s) "
        "ORDER BY partition",
        LAG,
        NOW // SECOND_NS,
    ) == [("0", 10.0, 1, 10.0), ("1", 10.0, 1, 10.0), ("2", 10.0, 1, 10.0), ("other", 470.0, 47, 10.0)]


@pytest.mark.full
def test_partitions_can_be_added_up(roll: Roll, query: Query, folder: Path) -> None:
    lag: Points = {(("topic", "orders"), ("partition", str(number))): 10.0 for number in range(5)}
    spool(folder, "one", [pushed(NOW, gauges={LAG: lag})])
    roll(max_partitions=0)
    found = query(
        "SELECT DISTINCT partition, sum FROM metric_1m WHERE metric = %s AND bucket = to_timestamp(%s)",
        LAG,
        NOW // SECOND_NS,
    )
    assert found == [(None, 50.0)]
