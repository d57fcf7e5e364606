"""No client's values get into another's series, and old ids stay valid."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE, MetricsData
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from structlog.testing import capture_logs

from spark_streaming.catalogue import plan
from tests.integration.rollup.conftest import Query, Roll
from tests.integration.rollup.old_ids import (
    OLD_SUM,
    client_key,
    downgrade,
    forged_instance,
    forged_topic,
    series_id,
)
from tests.integration.rollup.pushes import (
    ASSIGNED,
    CONNECTIONS,
    MINUTE_NS,
    SECOND_NS,
    Client,
    Spooled,
    Values,
    push,
    spool,
)

BOB = Client(instance="AAAAAAAAAAAAAAAAAAAAAA", client_id="billing", principal="User:bob")
MALLORY = Client(instance="BBBBBBBBBBBBBBBBBBBBBB", client_id="mallory", principal="User:ANONYMOUS")
NOW = (time.time_ns() // MINUTE_NS - 30) * MINUTE_NS


def labels(client: Client, **others: str) -> Mapping[str, str | None]:
    return {**client.labels(), **others}


def on_topic(one: Spooled, topic: str) -> Spooled:
    """The push with a topic at each of its points."""
    data = MetricsData.FromString(one.otlp)
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in (metric.sum if metric.HasField("sum") else metric.gauge).data_points:
            point.attributes.add(key="topic").value.string_value = topic
    return replace(one, otlp=data.SerializeToString())


def test_a_topic_with_a_colliding_old_id_gets_its_own_series(roll: Roll, query: Query, folder: Path) -> None:
    topic, tries = forged_topic(CONNECTIONS, labels(MALLORY), labels(BOB))
    assert tries < 20_000
    assert series_id(CONNECTIONS, labels(MALLORY, topic=topic)) == series_id(CONNECTIONS, labels(BOB))
    forged = on_topic(push(MALLORY, NOW, Values(sums={CONNECTIONS: 1e12})), topic)
    spool(folder, "one", [push(BOB, NOW, Values(sums={CONNECTIONS: 3.0})), forged])
    roll()
    found = query(
        "SELECT principal, client_id, topic, sum FROM metric_1m WHERE metric = %s ORDER BY sum", CONNECTIONS
    )
    assert found == [("User:bob", "billing", None, 3.0), ("User:ANONYMOUS", "mallory", topic, 1e12)]


def test_an_instance_with_a_colliding_old_key_is_another_instance(
    roll: Roll, query: Query, folder: Path
) -> None:
    instance, _ = forged_instance(BOB.instance)
    assert client_key(instance) == client_key(BOB.instance)
    spool(folder, "one", [push(BOB, NOW), push(replace(MALLORY, instance=instance), NOW)])
    roll()
    assert query("SELECT client_instance_id, principal FROM client ORDER BY principal") == [
        (instance, "User:ANONYMOUS"),
        (BOB.instance, "User:bob"),
    ]
    assert query("SELECT principal, sum(pushes) FROM client_1m GROUP BY principal ORDER BY principal") == [
        ("User:ANONYMOUS", 1),
        ("User:bob", 1),
    ]


@pytest.mark.full
def test_texts_with_equal_cut_forms_stay_different(roll: Roll, query: Query, folder: Path) -> None:
    long = "x" * 512
    topics = [
        f"{long}a",
        f"{long}b",
        "a\0",
        "a\ufffd",
        "a",
        "A",
        "",
        "e\u0301",
        "\u00e9",
        "null",
        "a,b",
        'a"',
    ]
    spool(
        folder,
        "one",
        [push(BOB, NOW)]
        + [
            on_topic(push(BOB, NOW + number, Values(sums={CONNECTIONS: 1.0})), topic)
            for number, topic in enumerate(topics)
        ],
    )
    roll()
    shown = query("SELECT topic, sum FROM topic_1m WHERE metric = %s", CONNECTIONS)
    assert len({topic for topic, _ in shown}) == len(shown) == len(topics)
    assert {value for _, value in shown} == {1.0}
    # Sent as it is shown, a cut text is not the text that was cut.
    cut = next(topic for topic, _ in shown if topic.startswith("xx"))
    spool(folder, "two", [on_topic(push(BOB, NOW + 100, Values(sums={CONNECTIONS: 1.0})), cut)])
    roll()
    assert query("SELECT count(*), max(sum) FROM topic_1m WHERE metric = %s", CONNECTIONS) == [
        (len(topics) + 1, 1.0)
    ]


TOTALS = (
    "SELECT 'metric', metric, principal, client_id, topic, bucket, sum, points::bigint FROM metric_1m "
    "UNION ALL SELECT 'fleet', metric, client_software_name, NULL, NULL, bucket, sum, points FROM fleet_1m "
    "UNION ALL SELECT 'client', client_instance_id, principal, client_id, NULL, bucket, pushes, points "
    "FROM client_1m ORDER BY 1, 2, 3, 4, 5, 6"
)


def cumulative(client: Client, at_ns: int, value: float) -> Spooled:
    """A push of one cumulative sum that began long ago, beside the usual ones."""
    made = push(client, at_ns, Values(sums={CONNECTIONS: 2.0}, gauges={ASSIGNED: 5.0}))
    data = MetricsData.FromString(made.otlp)
    metric = data.resource_metrics[0].scope_metrics[0].metrics.add(name=OLD_SUM)
    metric.sum.is_monotonic = True
    metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
    metric.sum.data_points.add(
        time_unix_nano=at_ns, start_time_unix_nano=NOW - 3600 * SECOND_NS, as_double=value
    )
    return replace(made, otlp=data.SerializeToString())


@pytest.mark.full
def test_a_database_of_the_previous_version_continues(
    roll: Roll, query: Query, folder: Path, database: str
) -> None:
    clients = (BOB, replace(BOB, instance="CCCCCCCCCCCCCCCCCCCCCC", client_id="other"))
    spool(folder, "one", [cumulative(client, NOW, 100.0) for client in clients])
    spool(folder, "two", [on_topic(push(BOB, NOW + 1, Values(sums={CONNECTIONS: 7.0})), "t")])
    roll()
    with psycopg.connect(database) as connection:
        downgrade(connection)
    before = query("SELECT series_id, metric, principal, client_id, topic FROM series ORDER BY 1")
    assert (series_id(CONNECTIONS, labels(BOB)), CONNECTIONS, "User:bob", "billing", None) in before
    totals = query(TOTALS)

    roll()  # Nothing new: the migration alone.
    assert query("SELECT name FROM migration ORDER BY name")[2] == ("0003_identities",)
    assert query(TOTALS) == totals
    assert query("SELECT series_id, metric, principal, client_id, topic FROM series ORDER BY 1") == before

    # The same minute and the next one: they are added to the same series, and the gauge is
    # corrected.
    spool(folder, "three", [cumulative(client, NOW + 20 * SECOND_NS, 104.0) for client in clients])
    spool(folder, "four", [cumulative(client, NOW + MINUTE_NS, 109.0) for client in clients])
    roll()
    assert query("SELECT series_id, metric, principal, client_id, topic FROM series ORDER BY 1") == before
    assert query("SELECT count(*) FROM client") == [(2,)]
    by_metric: dict[Any, list[float]] = {}
    for client_id, metric, total in query(
        "SELECT client_id, metric, sum FROM metric_1m WHERE metric = ANY (%s) AND bucket <= to_timestamp(%s) "
        "AND topic IS NULL ORDER BY bucket",
        [CONNECTIONS, ASSIGNED, OLD_SUM],
        (NOW + MINUTE_NS) // SECOND_NS,
    ):
        by_metric.setdefault((client_id, metric), []).append(total)
    for client_id in ("billing", "other"):
        assert by_metric[client_id, CONNECTIONS] == [4.0, 2.0]
        assert by_metric[client_id, ASSIGNED] == [5.0, 5.0]
        assert by_metric[client_id, OLD_SUM][-2:] == [4.0, 5.0]
    # What is new has ids that no old row has.
    spool(folder, "five", [push(MALLORY, NOW + MINUTE_NS)])
    roll()
    assert query("SELECT count(*), count(DISTINCT fleet_id) FROM series") == [
        (len(before) + 3, query("SELECT count(*) FROM fleet_series")[0][0])
    ]


@pytest.mark.full
def test_new_ids_avoid_old_ids_that_clients_chose(
    roll: Roll, query: Query, folder: Path, database: str
) -> None:
    spool(folder, "one", [push(BOB, NOW)])
    roll()
    with psycopg.connect(database) as connection:
        downgrade(connection)
        for table, column in (
            ("series", "series_id"),
            ("fleet_series", "fleet_id"),
            ("client_state", "client_key"),
        ):
            connection.execute(
                f"UPDATE {table} SET {column} = n FROM (SELECT ctid AS at, row_number() OVER () AS n "
                f"FROM {table}) AS o WHERE ctid = at".encode()
            )
    spool(folder, "two", [push(MALLORY, NOW)])
    roll()
    assert query(
        "SELECT count(*), count(DISTINCT series_high) FROM series WHERE series_high IS NOT NULL"
    ) == [(3, 3)]
    assert query("SELECT count(*) FROM client") == [(2,)]


@pytest.mark.full
def test_series_keep_their_ids_with_a_new_key(roll: Roll, query: Query, folder: Path) -> None:
    spool(folder, "one", [push(BOB, NOW)])
    roll()
    before = query("SELECT series_id, series_high FROM series ORDER BY 1")
    query("DELETE FROM id_key")
    spool(folder, "two", [push(BOB, NOW + MINUTE_NS)])
    roll()
    after = query("SELECT series_id, series_high FROM series ORDER BY 1")
    assert [one for one, _ in after] == [one for one, _ in before]
    assert not {half for _, half in after} & {half for _, half in before}


def test_the_key_is_in_no_log_no_plan_and_no_page(
    roll: Roll, query: Query, folder: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    spool(folder, "one", [push(BOB, NOW)])
    with capture_logs() as log:
        roll()
    ((key_id, secret),) = query("SELECT key_id::text, secret FROM id_key")
    text = plan(max_behind_s=3600, max_ahead_s=300)
    frame = spark.range(1).select(
        f.call_function("otlp_entries", f.lit(b""), f.lit("i"), f.lit(1), f.lit(text), f.lit(key_id))
    )
    # As explain() prints it, and Spark's pages and event logs show it.
    shown = frame._jdf.queryExecution().toString()
    assert f"IdKey({key_id})" in shown
    outputs = [str(log), shown, *capfd.readouterr()]
    words = [
        int.from_bytes(secret[at : at + 8], order, signed=signed)
        for at in (0, 8)
        for order in ("little", "big")
        for signed in (True, False)
    ]
    for text in outputs:
        assert secret.hex() not in text.lower()
        assert not any(str(word) in text for word in words)
