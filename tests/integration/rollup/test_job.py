"""The job handles unreadable input and permanent errors."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from spark_streaming import job
from spark_streaming.job import Job, JobError
from spark_streaming.postgres import Store
from spark_streaming.settings import RollupSettings
from tests.integration.rollup.conftest import Query, Roll
from tests.integration.rollup.pushes import ASSIGNED, MINUTE_NS, Client, Spooled, Values, push, spool
from tests.testbed.process import wait_until

WITHIN_S = 600
ORDERS = Client(instance="AAAAAAAAAAAAAAAAAAAAAA")
PAYMENTS = Client(instance="BBBBBBBBBBBBBBBBBBBBBB", client_id="payments")
NOW = (time.time_ns() // MINUTE_NS - 30) * MINUTE_NS


def at(minute: int, client: Client = ORDERS) -> Spooled:
    return push(client, NOW + minute * MINUTE_NS, Values(gauges={ASSIGNED: 3.0}))


@pytest.mark.full
def test_damaged_files_are_reported_and_all_others_are_read(
    roll: Roll, query: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_MIN_PAUSE_S", 0.01)
    folder = tmp_path / "mes données" / "100 %"
    damaged = set()
    for number, name in enumerate("abcdef"):
        file = spool(folder, name, [at(number)])
        if name in "bce":
            whole = file.read_bytes()
            # Without its end, or with some of its middle overwritten.
            file.write_bytes(whole[:-9] if name == "b" else whole[:40] + b"\xff" * 400 + whole[440:])
            damaged.add(f"{name}.parquet")
    with capture_logs() as log:
        roll(spool_files={"path": str(folder), "max_files": 4})
    assert query("SELECT count(*), sum(pushes) FROM ledger") == [(2, 3)]
    letters = query("SELECT batch_id, position, reason FROM dead_letter ORDER BY seen_at")
    assert {position.rpartition("/")[2] for _, position, _ in letters} == damaged
    assert [batch for batch, _, _ in letters] == [0, 0, 1]
    assert all("FAILED_READ_FILE" in reason for _, _, reason in letters)
    skipped = [line["files"] for line in log if "files" in line]
    assert [len(files) for files in skipped] == [2, 1]


@pytest.mark.full
def test_bytes_of_another_version_end_a_batch_and_maintenance(roll: Roll, query: Query, folder: Path) -> None:
    spool(folder, "one", [at(0), at(1, PAYMENTS)])
    roll()
    query("UPDATE contribution SET packed = '\\x09aabbcc'")
    spool(folder, "two", [push(ORDERS, NOW + 1, Values(gauges={ASSIGNED: 4.0}))])
    with pytest.raises(JobError, match=r"contribution\.packed: 4 bytes .* `kafka-telemetry rollup rebuild`"):
        roll()
    query("DELETE FROM contribution")
    spool(folder, "three", [at(3)])
    query("UPDATE client_state SET counts = '\\x09aabbcc' WHERE client_instance_id = %s", PAYMENTS.instance)
    with pytest.raises(JobError, match=r"contribution\.packed: 4 bytes .* `kafka-telemetry rollup rebuild`"):
        roll()
    assert query("SELECT sum(pushes) FROM ledger") == [(4,)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "content"), [("commits/0", b""), ("offsets/0", b"v1\n{"), ("metadata", b"")]
)
def test_a_damaged_checkpoint_ends_the_job_and_is_named(
    roll: Roll, folder: Path, tmp_path: Path, name: str, content: bytes
) -> None:
    spool(folder, "one", [at(0)])
    checkpoint = tmp_path / "damaged"
    roll(checkpoint=str(checkpoint))
    file = checkpoint / name
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    file.write_bytes(content)
    spool(folder, "two", [at(1)])
    with pytest.raises(JobError, match=rf"checkpoint: .*{name} is damaged: delete the folder .*damaged"):
        roll(checkpoint=str(checkpoint))


@pytest.mark.full
def test_payloads_are_cut_and_keep_their_length(roll: Roll, query: Query, folder: Path) -> None:
    broken = [
        Spooled(client=ORDERS, received_at_ns=NOW, otlp=b"\xff" * size) for size in range(70_000, 70_102)
    ]
    spool(folder, "one", [at(0), *broken])
    roll()
    assert query(
        "SELECT count(*), min(bytes), max(bytes), count(DISTINCT bytes), sum(length(payload)) "
        "FROM dead_letter"
    ) == [(102, 70_000, 70_101, 102, 100 * 65_536)]


@pytest.mark.full
def test_tasks_get_as_many_points_each_from_the_second_batch_on(
    roll: Roll, query: Query, folder: Path
) -> None:
    """Of four client ids with eight instances, and twelve with one."""
    clients = [
        Client(instance=f"{number:02}-{instance}".ljust(22, "A"), client_id=f"app-{number}")
        for number in range(16)
        for instance in range(8 if number < 4 else 1)
    ]
    for minute, name in enumerate(("one", "two")):
        spool(folder, name, [at(minute, client) for client in clients])
    roll(spool_files={"path": str(folder), "max_files": 1})
    loads = query("SELECT count(*) FROM push GROUP BY load_id ORDER BY load_id")
    assert loads[2:] == [(22,), (22,)]


@pytest.mark.full
def test_a_job_rests_after_a_small_batch_until_it_ends(
    spark: SparkSession,
    store: Store,
    settings: Callable[..., RollupSettings],
    query: Query,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch with an old push is no reason to rest."""
    rests: list[float] = []

    class Recorded(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            rests.append(timeout)
            return super().wait(timeout)

    stop = threading.Event()
    triggers = {"trigger_seconds": 0.2, "max_trigger_seconds": 3_600}
    job = Job(spark, store, settings(**triggers, grace_seconds=3_600), stop)
    monkeypatch.setattr(job, "_awake", Recorded())
    thread = threading.Thread(target=job.run)
    thread.start()
    try:
        spool(folder, "old", [at(-60)])
        wait_until(lambda: committed(query) == 1, timeout_s=WITHIN_S, what="the old push")
        assert rests == []
        for number, name in enumerate(("one", "two", "three"), start=1):
            # Only the last rest lasts until the end.
            (job._awake.set if number < 3 else job._awake.clear)()
            spool(folder, name, [push(ORDERS, time.time_ns(), Values(gauges={ASSIGNED: 3.0}))])
            wait_until(lambda: len(rests) == number, timeout_s=WITHIN_S, what="a rest")  # noqa: B023
            assert committed(query) == 1 + number
    finally:
        stop.set()
        thread.join(WITHIN_S)
    assert not thread.is_alive()
    assert all(3_000 < rest <= 3_600 for rest in rests)


def committed(query: Query) -> int:
    found = query("SELECT to_regclass('telemetry.ledger') IS NOT NULL")
    return query("SELECT count(*) FROM ledger")[0][0] if found[0][0] else 0


@pytest.mark.full
def test_the_garbage_collection_after_each_task_does_not_look_at_imports(
    roll: Roll, folder: Path, spark: SparkSession
) -> None:
    # Spark sends an inner function to its worker, which need not import the tests.
    def tracked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"objects": [len(gc.get_objects())]})

    spool(folder, "one", [at(0)])
    roll()
    # Another worker may have had no push.
    rows = spark.range(0, 8, numPartitions=8).mapInArrow(tracked, "objects bigint").collect()
    assert min(row.objects for row in rows) < 20_000
