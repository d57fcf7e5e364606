"""Totals in PostgreSQL equal what the clients did, whatever faults occur."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from tests.integration.rollup.fleet import CREATED, LATE_BY_S, RAW_VALUE, SENT, SENT_LATER, Fleet

pytestmark = pytest.mark.timeout(3600)

KAFKA = "org.apache.kafka."
JAVA_PRODUCERS = {name: SENT.get(name) or SENT_LATER[name] for name in ("java", "java-later")}

#: By client id, metric, topic and node.
Key = tuple[str, str, str | None, str | None]


@pytest.fixture(scope="module")
def database(rolled_up: Fleet) -> Iterator[psycopg.Connection]:
    with psycopg.connect(rolled_up.url, autocommit=True) as connection:
        connection.execute("SET search_path = telemetry")
        yield connection


def total(database: psycopg.Connection, client_id: str, metric: str) -> float:
    query = "SELECT sum(sum) FROM metric_1m WHERE client_id = %s AND metric = %s AND topic IS NULL"
    ((value,),) = database.execute(query, (client_id, f"{KAFKA}{metric}")).fetchall()
    assert value is not None, f"{client_id} has no {metric}"
    return float(value)


def test_the_job_died_between_both_commits(rolled_up: Fleet) -> None:
    assert rolled_up.kills >= 3
    assert rolled_up.between >= 2


@pytest.mark.parametrize(("client_id", "count"), JAVA_PRODUCERS.items())
def test_records_sent(database: psycopg.Connection, client_id: str, count: int) -> None:
    sent, again, failed = (
        total(database, client_id, f"producer.record.{what}.total") for what in ("send", "retry", "error")
    )
    assert (sent - again, failed) == (count, 0)


def test_records_consumed(database: psycopg.Connection, rolled_up: Fleet) -> None:
    java = ("java-consumer", "java-visitor")
    everything = sum(SENT.values()) + sum(SENT_LATER.values())
    assert sum(rolled_up.consumed[name] for name in java) == everything
    for name in java:
        consumed = total(database, name, "consumer.fetch.manager.records.consumed.total")
        assert consumed == rolled_up.consumed[name]


@pytest.mark.parametrize(
    ("client_id", "role"),
    [
        ("java", "producer"),
        ("java-later", "producer"),
        ("java-consumer", "consumer"),
        ("java-visitor", "consumer"),
    ],
)
def test_connections(database: psycopg.Connection, rolled_up: Fleet, client_id: str, role: str) -> None:
    created = total(database, client_id, f"{role}.connection.creation.total")
    assert created == rolled_up.connections[client_id] > 1


@pytest.mark.parametrize(("client_id", "at_least"), [("java-consumer", 3), ("java-visitor", 1)])
def test_rebalances(database: psycopg.Connection, rolled_up: Fleet, client_id: str, at_least: int) -> None:
    rebalances = total(database, client_id, "consumer.coordinator.rebalance.total")
    assert rebalances == rolled_up.rebalances[client_id] >= at_least


def test_pushes(database: psycopg.Connection, rolled_up: Fleet) -> None:
    query = "SELECT client_id, sum(pushes)::int FROM client_1m GROUP BY client_id"
    rolled: dict[str, int] = dict(database.execute(query).fetchall())
    assert rolled == spooled(rolled_up)
    # The sidecars answered one of the raw client's twice. Many of franz-go's are empty, and count.
    answered = dict(rolled_up.pushes)
    answered["repeated"] -= 1
    assert {name: rolled[name] for name in answered} == answered


def test_a_push_sent_twice_counts_once(database: psycopg.Connection) -> None:
    query = "SELECT sum(sum), sum(points) FROM metric_1m WHERE metric = %s AND client_id = 'repeated'"
    assert database.execute(query, (CREATED,)).fetchall() == [(RAW_VALUE, 1)]


def test_a_late_push_counts_in_its_minute(database: psycopg.Connection) -> None:
    query = """
        SELECT sum(sum), extract(epoch FROM max(last_seen) - max(bucket))
        FROM metric_1m JOIN client USING (client_id) WHERE metric = %s AND client_id = 'late'
    """
    ((value, age_s),) = database.execute(query, (CREATED,)).fetchall()
    assert value == RAW_VALUE
    assert 0 <= age_s - LATE_BY_S < 120


def test_late_and_repeated_files_count_once(database: psycopg.Connection, rolled_up: Fleet) -> None:
    assert rolled_up.withheld == 2
    ((repeats,),) = database.execute("SELECT sum(repeats) FROM ledger").fetchall()
    assert repeats > 1  # a file's, and the raw client's


def test_every_total_is_the_sum_of_the_pushes(database: psycopg.Connection, rolled_up: Fleet) -> None:
    query = """
        SELECT client_id, metric, topic, node_id, sum(sum), sum(points)::int
        FROM (SELECT * FROM metric_1m WHERE topic IS NULL UNION ALL SELECT * FROM topic_1m) AS everything
        GROUP BY 1, 2, 3, 4
    """
    rolled: dict[Key, tuple[float, int]] = {
        (client_id, metric, topic, node_id): (value, points)
        for client_id, metric, topic, node_id, value, points in database.execute(query)
    }
    pushed = delta_sums(rolled_up)
    assert {client_id for client_id, *_ in pushed} == rolled_up.pushes.keys()
    assert {key: rolled[key][1] for key in pushed} == {key: points for key, (_, points) in pushed.items()}
    totals = {key: value for key, (value, _) in pushed.items()}
    assert {key: rolled[key][0] for key in pushed} == pytest.approx(totals, rel=1e-9, abs=1e-9)


def spooled(fleet: Fleet) -> dict[str, int]:
    """How many pushes there are in the spool, each once, by client id."""
    return Counter(row["client_id"] for row in pushes(fleet))


def delta_sums(fleet: Fleet) -> dict[Key, tuple[float, int]]:
    """Return totals and points of the spool's delta sums, each push once."""
    found: dict[Key, tuple[float, int]] = {}
    for row in pushes(fleet):
        for metric in metrics(row["otlp"]):
            for point in metric.sum.data_points:
                labels = {attribute.key: attribute.value.string_value for attribute in point.attributes}
                key = (row["client_id"], metric.name, labels.get("topic"), labels.get("node_id"))
                value, points = found.get(key, (0.0, 0))
                found[key] = (value + (point.as_double or point.as_int), points + 1)
    return found


def pushes(fleet: Fleet) -> Iterator[dict[str, Any]]:
    seen: set[str] = set()
    for file in sorted(fleet.spool.glob("date=*/hour=*/*.parquet")):
        for row in pq.read_table(file, partitioning=None).to_pylist():
            if row["push_id"] not in seen:
                seen.add(row["push_id"])
                yield row


def metrics(otlp: bytes) -> Iterator[Metric]:
    for resource in MetricsData.FromString(otlp).resource_metrics:
        for scope in resource.scope_metrics:
            yield from scope.metrics
