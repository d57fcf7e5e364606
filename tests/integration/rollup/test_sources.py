"""Pushes of the receiver's plugin and a Collector, from a real broker."""

from __future__ import annotations

import dataclasses
import itertools
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # its stubs don't export it
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from structlog.testing import capture_logs

from plugins.kafka_topic.record import headers, key
from spark_streaming.settings import RollupSettings
from spark_streaming.sources import held
from tests.integration.rollup.conftest import Query, Roll
from tests.integration.rollup.pushes import (
    CONNECTIONS,
    MINUTE_NS,
    SECOND_NS,
    Client,
    Values,
    otlp,
    push,
    spool,
)
from tests.testbed.broker import KafkaBroker
from tests.unit.host.support import push as plugin_push

NOW = (time.time_ns() // MINUTE_NS - 10) * MINUTE_NS
ORDERS = Client(instance="AAAAAAAAAAAAAAAAAAAAAA")
PAYMENTS = Client(instance="BBBBBBBBBBBBBBBBBBBBBB", client_id="payments")


@pytest.fixture
def topic(broker: KafkaBroker) -> str:
    """A new topic with two partitions."""
    name = f"telemetry-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.internal_bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(20)
    return name


@pytest.mark.full
def test_records_with_hostile_headers_and_keys_stop_nothing(
    roll: Roll, query: Query, broker: KafkaBroker, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.internal_bootstrap})
    numbers = (
        b"9223372036854775807",
        b"-9223372036854775808",
        b"9223372036854775808",
        b"0",
        b"\0",
        b"\xff",
        b"",
    )
    keys = (b"\xf0\x9f", b"\0", b"\xed\xa0\x80" * 400, b"k" * 5000, b"", ORDERS.instance.encode())
    for number, (odd, name) in enumerate(itertools.product(numbers, keys)):
        odd_headers = {
            "format_version": odd,
            "received_at_ns": odd,
            "push_interval_ms": odd,
            "terminating": odd,
            "push_id": odd + b"%d" % number,
        }
        # Other bytes each, or some would be repeats.
        data = otlp(0, {Client(instance=""): Values(sums={CONNECTIONS: number})})
        producer.produce(topic, data, key=name, headers=list(odd_headers.items()))
    good = otlp(NOW, {PAYMENTS: Values(sums={CONNECTIONS: 5})})
    producer.produce(topic, good)
    producer.flush(20)
    with capture_logs() as log:
        roll(source="kafka", kafka={"bootstrap_servers": broker.internal_bootstrap, "topic": topic})
    assert not [line for line in log if line["event"].startswith(("batch failed", "push isolated"))]
    ((pushes, dead),) = query("SELECT sum(pushes), sum(dead_letters) FROM ledger")
    # Only one of the keys names an instance.
    assert (pushes, dead) == (len(numbers) * len(keys) + 1, len(numbers) * (len(keys) - 1))
    assert {reason for (reason,) in query("SELECT reason FROM dead_letter")} == {
        "a resource with data points has no client_instance_id"
    }
    assert query("SELECT sum FROM metric_1m WHERE metric = %s AND client_id = 'payments'", CONNECTIONS) == [
        (5.0,)
    ]
    assert query("SELECT count(*) FROM client WHERE last_seen > now() + interval '1 hour'") == [(0,)]


@pytest.mark.full
def test_records_of_the_plugin_and_of_a_collector_both_count(
    roll: Roll, query: Query, broker: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer({"bootstrap.servers": broker.internal_bootstrap})
    template = plugin_push()
    received_ns = NOW + SECOND_NS
    received = dataclasses.replace(
        template,
        context=dataclasses.replace(template.context, received_at_ns=received_ns, push_interval_ms=1234),
        payload=dataclasses.replace(
            template.payload,
            client_instance_id=ORDERS.instance,
            terminating=True,
            data=otlp(NOW, {ORDERS: Values(sums={CONNECTIONS: 2})}),
        ),
    )
    for partition in (0, 1, 1):  # repeated by another sidecar, and by a retry
        producer.produce(
            topic,
            received.payload.data,
            key=key(received),
            headers=headers(received),
            partition=partition,
        )
    collected = otlp(
        NOW + MINUTE_NS, {ORDERS: Values(sums={CONNECTIONS: 3}), PAYMENTS: Values(sums={CONNECTIONS: 5})}
    )
    producer.produce(topic, collected, partition=0)
    producer.produce(topic, None, key=b"a tombstone", partition=0)
    producer.produce(topic, b"\xff no OTLP", partition=1)
    producer.flush(20)
    kafka = {"source": "kafka", "kafka": {"bootstrap_servers": broker.internal_bootstrap, "topic": topic}}
    roll(**kafka)
    totals = query(
        "SELECT client_id, sum(points), sum(sum) FROM metric_1m WHERE metric = %s GROUP BY 1 ORDER BY 1",
        CONNECTIONS,
    )
    assert totals == [("orders", 2, 5.0), ("payments", 1, 5.0)]
    assert query("SELECT client_id, push_interval_ms FROM client ORDER BY 1") == [
        ("orders", 300_000),  # a Collector's record doesn't say, and it is the newer one
        ("payments", 300_000),
    ]
    assert query("SELECT source, position, reason FROM dead_letter ORDER BY position")[0] == (
        "kafka",
        f"{topic}/0/2",
        "the record has no value",
    )
    assert query("SELECT position FROM dead_letter ORDER BY position")[1:] == [(f"{topic}/1/2",)]
    assert query("SELECT sum(pushes), sum(repeats) FROM ledger") == [(4, 2)]

    # Records that expire unread are reported and don't stop the job.
    producer.produce(topic, otlp(NOW, {PAYMENTS: Values(sums={CONNECTIONS: 1000})}), partition=0)
    producer.produce(topic, otlp(NOW + 2 * MINUTE_NS, {PAYMENTS: Values(sums={CONNECTIONS: 7})}), partition=0)
    producer.flush(20)
    admin = AdminClient({"bootstrap.servers": broker.internal_bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        deleted.result(20)
    with capture_logs() as log:
        roll(**kafka)
    assert [line["offsets"] for line in log if "offsets" in line] == [1]
    assert query(
        "SELECT sum(sum) FROM metric_1m WHERE metric = %s AND client_id = 'payments'", CONNECTIONS
    ) == [(12.0,)]

    # With nothing to read, Spark is not asked what it read.
    asked: list[StreamingQuery] = []
    monkeypatch.setattr(StreamingQuery, "recentProgress", property(asked.append))
    roll(**kafka)
    assert not asked


@pytest.mark.full
def test_a_topic_is_complete_since_the_last_partition_that_lost_records(
    spark: SparkSession, settings: Callable[..., RollupSettings], broker: KafkaBroker, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.internal_bootstrap})
    for partition, minutes in enumerate(((1, 4, 8), (2, 3, 5))):
        for minute in minutes:
            received: list[tuple[str, str | bytes | None]] = [
                ("received_at_ns", b"%d" % (minute * MINUTE_NS))
            ]
            producer.produce(topic, b"", headers=received, partition=partition)
    producer.flush(20)
    admin = AdminClient({"bootstrap.servers": broker.internal_bootstrap})
    kafka = settings(source="kafka", kafka={"bootstrap_servers": broker.internal_bootstrap, "topic": topic})
    assert held(spark, kafka) == (MINUTE_NS, 8 * MINUTE_NS)
    # Of those that lost records the one that begins later counts.
    for partition, expired, since in ((1, 1, 3), (0, 1, 4), (1, 2, 5), (0, 2, 8)):
        for deleted in admin.delete_records([TopicPartition(topic, partition, expired)]).values():
            deleted.result(20)
        found = held(spark, kafka)
        assert found is not None
        assert found.whole_since_ns == since * MINUTE_NS


@pytest.mark.parametrize(
    ("push_id", "interval_ms", "expected_ms"),
    [
        (b"\xff no UTF-8", b"3000000000000000000", 3_600_000),
        *(
            pytest.param(*values, marks=pytest.mark.full)
            for values in (
                (b"0" * 65_536, b"1000000000000000", 3_600_000),
                (b"a line\n", b"-1", 100),
                (b"", b"soon", 300_000),
            )
        ),
    ],
)
def test_invalid_headers_stop_nothing(
    roll: Roll,
    query: Query,
    broker: KafkaBroker,
    topic: str,
    push_id: bytes,
    interval_ms: bytes,
    expected_ms: int,
) -> None:
    producer = Producer({"bootstrap.servers": broker.internal_bootstrap})
    for minute in range(2):
        payload = otlp(NOW + minute * MINUTE_NS, {ORDERS: Values(sums={CONNECTIONS: 2})})
        odd: list[tuple[str, str | bytes | None]] = [("push_id", push_id), ("push_interval_ms", interval_ms)]
        producer.produce(topic, payload, headers=odd)
    producer.flush(20)
    roll(source="kafka", kafka={"bootstrap_servers": broker.internal_bootstrap, "topic": topic})
    assert query("SELECT sum(sum) FROM metric_1m WHERE metric = %s", CONNECTIONS) == [(4.0,)]
    assert query("SELECT push_interval_ms, state FROM client")[0][0] == expected_ms


def test_files_of_other_producers_are_read_by_column_names(roll: Roll, query: Query, folder: Path) -> None:
    folder.mkdir()
    payload = otlp(NOW, {ORDERS: Values(sums={CONNECTIONS: 2})})
    somebodys = {"added_later": [1], "push_id": ["a b"], "push_interval_ms": [10**15], "otlp": [payload]}
    pq.write_table(pa.table(somebodys), folder / "some.parquet")
    (folder / "_journal").mkdir()
    (folder / "_journal" / "other.parquet").write_bytes(b"not yet")
    (folder / "notes.txt").write_text("no pushes")
    roll()
    assert query("SELECT client_id, points, sum FROM metric_1m WHERE metric = %s", CONNECTIONS) == [
        ("orders", 1, 2.0)
    ]
    assert query("SELECT push_interval_ms FROM client") == [(3_600_000,)]


@pytest.mark.full
def test_an_empty_file_is_reported_once(roll: Roll, query: Query, folder: Path) -> None:
    """The receiver never writes one, and Spark skips it silently."""
    (folder / "date=2026-01-31").mkdir(parents=True)
    empty = folder / "date=2026-01-31" / "a.parquet"
    empty.touch()
    (folder / "date=2026-01-31" / "_hidden.parquet").touch()
    with capture_logs() as log:
        roll()
    assert [line["files"] for line in log if "files" in line] == [[f"file:{empty}"]]
    letters = "SELECT position, reason, bytes FROM dead_letter ORDER BY seen_at"
    assert query(letters) == [(f"file:{empty}", "the file is empty: its pushes are lost", 0)]
    spool(folder, "b", [push(ORDERS, NOW)])
    (folder / "c.parquet").touch()
    roll()
    assert [position for position, _, _ in query(letters)] == [
        f"file:{empty}",
        f"file:{folder / 'c.parquet'}",
    ]
    assert query("SELECT sum(pushes) FROM ledger") == [(1,)]


@pytest.mark.full
def test_a_damaged_file_is_reported_and_skipped(roll: Roll, query: Query, folder: Path) -> None:
    spool(folder, "a", [push(ORDERS, NOW)])
    whole = spool(folder, "b", [push(ORDERS, NOW + MINUTE_NS)]).read_bytes()
    damaged = folder / "date=2026-01-31" / "c.parquet"
    damaged.write_bytes(b"no Parquet at all" + whole[17:-9])
    roll()
    ((position, reason),) = query("SELECT position, reason FROM dead_letter")
    assert position.endswith("/date=2026-01-31/c.parquet")
    assert "FAILED_READ_FILE" in reason
    assert query("SELECT sum(pushes) FROM ledger") == [(2,)]
