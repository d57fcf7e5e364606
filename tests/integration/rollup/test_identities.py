"""No client's values get into another's series, and series keep their ids."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from structlog.testing import capture_logs

from spark_streaming.catalogue import plan
from tests.integration.rollup.conftest import Query, Roll
from tests.integration.rollup.pushes import (
    CONNECTIONS,
    MINUTE_NS,
    Client,
    Spooled,
    Values,
    push,
    spool,
)

BOB = Client(instance="AAAAAAAAAAAAAAAAAAAAAA", client_id="billing", principal="User:bob")
MALLORY = Client(instance="BBBBBBBBBBBBBBBBBBBBBB", client_id="mallory", principal="User:ANONYMOUS")
NOW = (time.time_ns() // MINUTE_NS - 30) * MINUTE_NS


def on_topic(one: Spooled, topic: str) -> Spooled:
    """The push with a topic at each of its points."""
    data = MetricsData.FromString(one.otlp)
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in (metric.sum if metric.HasField("sum") else metric.gauge).data_points:
            point.attributes.add(key="topic").value.string_value = topic
    return replace(one, otlp=data.SerializeToString())


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


@pytest.mark.full
def test_series_keep_their_ids_with_a_new_key(roll: Roll, query: Query, folder: Path) -> None:
    spool(folder, "one", [push(BOB, NOW)])
    roll()
    before = query("SELECT series_id, series_high FROM series ORDER BY 1")
    query("DELETE FROM id_key")
    spool(folder, "two", [push(BOB, NOW + MINUTE_NS)])
    roll()
    after = query("SELECT series_id, series_high FROM series ORDER BY 1")
    assert [item for item, _ in after] == [item for item, _ in before]
    assert not {half for _, half in after} & {half for _, half in before}


@pytest.mark.full
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
