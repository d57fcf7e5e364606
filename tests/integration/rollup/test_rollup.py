from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as ds
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA, MetricsData
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from spark_streaming.job import Job, rebuild
from spark_streaming.postgres import Store, StoreError
from spark_streaming.settings import RollupSettings
from tests.integration.rollup.conftest import Query, Roll
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
from tests.testbed.postgres import Postgres
from tests.testbed.process import wait_until

ORDERS = Client(instance="AAAAAAAAAAAAAAAAAAAAAA")
PAYMENTS = Client(instance="BBBBBBBBBBBBBBBBBBBBBB", client_id="payments")
NOW = (time.time_ns() // MINUTE_NS - 30) * MINUTE_NS + 5 * SECOND_NS

TOTALS = (
    "SELECT client_id, sum(points), sum(sum), min(min), max(max) FROM metric_1m WHERE metric = %s "
    "GROUP BY 1 ORDER BY 1"
)


def at(
    minute: int, client: Client = ORDERS, sums: float = 2.0, *, terminating: bool = False, **other: int
) -> Spooled:
    values = Values(sums={CONNECTIONS: sums}, gauges={ASSIGNED: 3.0})
    return push(client, NOW + minute * MINUTE_NS, values, terminating=terminating, **other)


def test_an_empty_folder_gives_no_batch(roll: Roll, folder: Path, query: Query) -> None:
    roll()
    assert folder.is_dir()
    assert query("SELECT count(*) FROM ledger") == [(0,)]
    assert query("SELECT count(*) FROM metric_1m") == [(0,)]


def test_each_push_counts_once_even_if_late_or_repeated(
    roll: Roll, folder: Path, query: Query, tmp_path: Path
) -> None:
    spool(folder, "one", [at(0), at(1), at(1), at(0, PAYMENTS, 5.0)])
    roll()
    spool(folder, "two", [at(1), at(4), at(5, PAYMENTS, 7.0)])
    spool(folder, "three", [at(2, sums=11.0)])
    roll()
    connections = [("orders", 4, 17.0, 2.0, 11.0), ("payments", 2, 12.0, 5.0, 7.0)]
    assert query(TOTALS, CONNECTIONS) == connections
    ledger = query("SELECT pushes, repeats, dead_letters FROM ledger ORDER BY committed_at")
    assert ledger == [(3, 1, 0), (3, 1, 0)]
    pushes = query("SELECT client_instance_id, sum(pushes) FROM client_1m GROUP BY 1 ORDER BY 1")
    assert pushes == [(ORDERS.instance, 4), (PAYMENTS.instance, 2)]

    # Without the checkpoint everything is read again, and nothing counts again.
    shutil.rmtree(tmp_path / "checkpoint")
    roll()
    assert query(TOTALS, CONNECTIONS) == connections
    assert query("SELECT sum(pushes), sum(repeats) FROM ledger") == [(6, 10)]


@pytest.mark.full
def test_histograms_are_merged_beside_numbers(roll: Roll, folder: Path, query: Query) -> None:
    def with_histogram(client: Client, counts: list[int], total: float | None) -> Spooled:
        pushed = at(0, client)
        data = MetricsData.FromString(pushed.otlp)
        histogram = data.resource_metrics[0].scope_metrics[0].metrics.add(name="latency").histogram
        histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
        histogram.data_points.add(
            time_unix_nano=NOW,
            count=sum(counts),
            sum=total,
            max=9,
            explicit_bounds=[1, 5],
            bucket_counts=counts,
        )
        return replace(pushed, otlp=data.SerializeToString())

    one, other = with_histogram(ORDERS, [2, 0, 1], 10), with_histogram(PAYMENTS, [1, 3, 0], 6)
    spool(folder, "one", [one, other, one])
    roll()
    assert query(TOTALS, "latency") == [("orders", 3, 10.0, None, 9.0), ("payments", 4, 6.0, None, 9.0)]
    assert query(TOTALS, CONNECTIONS) == [("orders", 1, 2.0, 2.0, 2.0), ("payments", 1, 2.0, 2.0, 2.0)]
    buckets = query(
        "SELECT upper, sum(count) FROM histogram_1m WHERE metric = 'latency' GROUP BY 1 ORDER BY 1"
    )
    assert buckets == [(1.0, 3), (5.0, 3), (float("inf"), 1)]

    # OTLP has no sum where values may be negative.
    spool(folder, "two", [with_histogram(PAYMENTS, [1, 1, 0], None)])
    roll()
    assert query(TOTALS, "latency") == [("orders", 3, 10.0, None, 9.0), ("payments", 6, None, None, 9.0)]
    means = query("SELECT avg FROM metric_1m WHERE metric = 'latency' AND client_id = 'payments'")
    assert means == [(None,)]


def test_counts_are_carried_forward_until_a_client_leaves(roll: Roll, folder: Path, query: Query) -> None:
    spool(folder, "one", [at(0), at(2, terminating=True), at(0, PAYMENTS), at(9, PAYMENTS)])
    roll()
    assigned = query(
        "SELECT client_id, (extract(epoch FROM bucket)::bigint / 60 - %s)::int, sum FROM metric_1m "
        "WHERE metric = %s ORDER BY 1, 2",
        NOW // MINUTE_NS,
        ASSIGNED,
    )
    of = {
        name: [minute for client, minute, value in assigned if client == name and value]
        for name in ("orders", "payments")
    }
    assert of["orders"][:2] == [0, 1]
    assert of["orders"][-1] <= 2
    # One push a minute was asked for: three minutes of silence, and it no longer counts.
    assert of["payments"][:3] == [0, 1, 2]
    assert of["payments"][-1] == 9
    assert 6 not in of["payments"]


def test_malformed_payloads_become_dead_letters_and_stop_nothing(
    roll: Roll, folder: Path, query: Query
) -> None:
    broken = Spooled(client=PAYMENTS, received_at_ns=NOW, otlp=b"\xff\xff not otlp")
    file = spool(folder, "one", [at(0), broken, broken, at(1)])
    roll()
    ((source, position, reason, size, payload),) = query(
        "SELECT source, position, reason, bytes, payload FROM dead_letter"
    )
    assert (source, position, size, payload) == (
        "spool_files",
        f"file:{file}#1",
        len(broken.otlp),
        broken.otlp,
    )
    assert "byte" in reason
    assert query(TOTALS, CONNECTIONS) == [("orders", 2, 4.0, 2.0, 2.0)]
    assert query("SELECT pushes, repeats, dead_letters FROM ledger") == [(3, 1, 1)]


@pytest.fixture
def rebuilt(
    spark: SparkSession, store: Store, settings: Callable[..., RollupSettings]
) -> Callable[..., int | None]:
    """Rebuild since a minute, and return the first minute that was rebuilt."""

    def run(since: int, **further: Any) -> int | None:
        return rebuild(spark, store, settings(**further), threading.Event(), since=since)

    return run


def test_a_rebuild_gives_equal_totals_and_a_job_continues_after_it(
    roll: Roll, folder: Path, query: Query, rebuilt: Callable[..., int | None]
) -> None:
    pushes = [at(minute, client) for minute in range(12) for client in (ORDERS, PAYMENTS)]
    # One that was said before the minute in which the rebuild begins and received in it, and an
    # empty one.
    late, empty = push(ORDERS, NOW + 8 * MINUTE_NS - 5 * SECOND_NS - SECOND_NS // 2), at(9, PAYMENTS)
    spool(folder, "one", [*pushes, late, replace(empty, push_id="empty", otlp=b"")])
    roll()
    by_minute = "SELECT bucket, metric, client_id, points, sum, min, max FROM metric_1m ORDER BY 1, 2, 3"
    by_client = "SELECT bucket, client_id, pushes, points FROM client_1m ORDER BY 1, 2"
    before = query(by_minute), query(by_client)
    since = NOW // MINUTE_NS + 8
    with capture_logs() as logs:
        assert rebuilt(since) == since
    assert (query(by_minute), query(by_client)) == before
    told = [entry for entry in logs if entry["event"] == "rebuilding"]
    received = datetime.fromtimestamp(NOW / SECOND_NS, UTC) + timedelta(minutes=11, seconds=1)
    newest = f"{received:%Y-%m-%dT%H:%M:%SZ}"
    assert [(entry["until"], entry.get("done_percent")) for entry in told] == [(newest, None), (newest, 100)]
    spool(folder, "two", [at(12)])
    roll()
    assert query(TOTALS, CONNECTIONS)[0] == ("orders", 14, 27.0, 1.0, 2.0)


@pytest.mark.parametrize("late", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.full
def test_a_rebuild_has_the_counts_that_continue_from_before(
    roll: Roll, folder: Path, query: Query, rebuilt: Callable[..., int | None], *, late: bool
) -> None:
    """Clients push every five minutes, and the rebuild begins between two pushes."""
    pushes = [
        at(minute, client, push_interval_ms=300_000)
        for minute in range(0, 25, 5)
        for client in (ORDERS, PAYMENTS)
        # One has fallen silent before, one continues.
        if client is ORDERS or minute < 6
    ]
    spool(folder, "one", pushes)
    if late:
        # Its minute is before the rebuild's, and the push after it is read in another batch.
        spool(folder, "two", [at(7, push_interval_ms=300_000)])
    roll(spool_files={"path": str(folder), "max_files": 1})
    by_minute = "SELECT bucket, metric, client_id, points, sum, min, max, avg FROM metric_1m ORDER BY 1, 2, 3"
    by_client = "SELECT bucket, client_id, pushes, points FROM client_1m ORDER BY 1, 2"
    before = query(by_minute), query(by_client)
    # By minute: the stored contributions and ranges, and what the states imply.
    stored = (
        "SELECT client_key, at, max(entries) FROM ("
        "SELECT client_key, generate_series(minute, coalesce(until, minute)) AS at, entries "
        "FROM contribution UNION ALL "
        "SELECT client_key, generate_series(carried_from, covered_until), 0 FROM client_state"
        ") AS known GROUP BY 1, 2 ORDER BY 1, 2"
    )
    contributions = query(stored)
    since = NOW // MINUTE_NS + 8
    assert rebuilt(since) == since
    assert (query(by_minute), query(by_client)) == before
    assert query(stored) == contributions
    assert rebuilt(since + 9) == since + 9
    assert (query(by_minute), query(by_client)) == before


@pytest.mark.full
def test_a_rebuild_recognises_every_push_again(
    roll: Roll, folder: Path, query: Query, rebuilt: Callable[..., int | None], tmp_path: Path
) -> None:
    # Ids are forgotten by days: more than a day before, and of the first day of which they are
    # forgotten.
    since = NOW // MINUTE_NS // 1440 * 1440 - 1440 + 600
    first = (since // 1440 - 1) * 1440 * MINUTE_NS
    spool(folder, "one", [push(ORDERS, first + n * 300 * MINUTE_NS) for n in range(6)])
    roll()
    assert rebuilt(since) == since
    shutil.rmtree(tmp_path / "checkpoint")
    roll()
    assert query(TOTALS, CONNECTIONS) == [("orders", 6, 6.0, 1.0, 1.0)]


@pytest.mark.full
def test_a_rebuild_deletes_nothing_that_the_source_lacks(
    roll: Roll, folder: Path, query: Query, rebuilt: Callable[..., int | None]
) -> None:
    expired = spool(folder, "one", [at(0), at(1)])
    spool(folder, "two", [at(minute) for minute in range(10, 14)])
    roll()
    expired.unlink()
    assert rebuilt(NOW // MINUTE_NS, max_ahead_s=0) == NOW // MINUTE_NS + 11
    assert query(TOTALS, CONNECTIONS) == [("orders", 6, 12.0, 2.0, 2.0)]


@pytest.mark.full
def test_a_checkpoint_of_another_database_is_refused(
    roll: Roll,
    folder: Path,
    query: Query,
    postgres: Postgres,
    spark: SparkSession,
    settings: Callable[..., RollupSettings],
    store: Store,
) -> None:
    spool(folder, "one", [at(0)])
    roll()
    spool(folder, "two", [at(1)])
    query("DELETE FROM ledger")
    with pytest.raises(StoreError, match=r"continues with batch 1, but the database has no batches"):
        roll()
    assert query(TOTALS, CONNECTIONS) == [("orders", 1, 2.0, 2.0, 2.0)]


@pytest.mark.parametrize("form", ["parquet", pytest.param("delta", marks=pytest.mark.full)])
@pytest.mark.full
def test_the_lake_has_each_batch_once(
    roll: Roll, folder: Path, query: Query, spark: SparkSession, tmp_path: Path, form: str
) -> None:
    lake = tmp_path / "lake"

    def read(name: str) -> list[dict[str, Any]]:
        if form == "parquet":
            table = ds.dataset(lake / name, format="parquet").to_table()
        else:
            table = spark.read.format("delta").load(str(lake / name)).toArrow()
        found: list[dict[str, Any]] = table.to_pylist()
        return found

    spool(folder, "one", [at(0), at(0), at(1)])
    roll(lake={"path": str(lake), "format": form})
    # The database loses the batch, the lake and Spark have it: it is written again.
    query("TRUNCATE ledger, push")
    checkpoint = tmp_path / "checkpoint"
    shutil.rmtree(checkpoint / "commits")
    roll(lake={"path": str(lake), "format": form})
    points = read("points")
    assert (
        sorted((point["metric"], point["value"]) for point in points)
        == [(ASSIGNED, 3.0)] * 2 + [(CONNECTIONS, 2.0)] * 2
    )
    assert {point["push_id"] for point in points} == {at(0).row()["push_id"], at(1).row()["push_id"]}
    rows = read("rollup")
    assert sum(row["points"] for row in rows) == 8  # of two pushes, and two of the roll-up's own metrics
    if form == "parquet":
        assert documented_query(lake) == [{"client_id": "orders", "value_count": 2, "value_max": 2.0}]


def documented_query(lake: Path) -> Any:
    """What the query of docs/rollup.md prints of a lake."""
    page = (Path(__file__).parents[3] / "docs" / "rollup.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for written, meant in (
        ("lake/points", str(lake / "points")),
        ("1_767_225_600", "0"),
        ("print(", "found.append("),
    ):
        assert written in code
        code = code.replace(written, meant)
    found: list[Any] = []
    exec(code, {"found": found})
    return found[0]


@pytest.mark.full
def test_batches_wait_for_postgresql(
    folder: Path,
    query: Query,
    spark: SparkSession,
    store: Store,
    settings: Callable[..., RollupSettings],
    postgres: Postgres,
    database: str,
) -> None:
    if not postgres.restartable:
        pytest.skip("somebody else's server")
    stop = threading.Event()
    job = Job(spark, store, settings(trigger_seconds=0.2), stop)
    thread = threading.Thread(target=job.run)
    thread.start()
    try:
        spool(folder, "one", [at(0)])
        wait_until(lambda: committed(query) == 1, timeout_s=120, what="the first batch")
        postgres.stop()
        spool(folder, "two", [at(1)])
        time.sleep(1.5)
        assert thread.is_alive()
        postgres.start()

        def there() -> bool:
            with psycopg.connect(database) as connection:
                found = connection.execute("SELECT sum(pushes) FROM telemetry.ledger").fetchone()
                return found == (2,)

        wait_until(there, timeout_s=120, what="the batch after the restart")
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()


def committed(query: Query) -> int:
    found = query("SELECT to_regclass('telemetry.ledger') IS NOT NULL")
    return query("SELECT count(*) FROM ledger")[0][0] if found[0][0] else 0
