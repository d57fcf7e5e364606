"""Readers find whole files, by time, with every accepted push."""

from __future__ import annotations

import datetime
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plugins.spool_files.columns import SCHEMA
from receiver.host.discovery import PluginConfigError, load_plugins
from receiver.host.host import PluginHost
from receiver.plugin import Push
from tests.unit.host.support import wait_for
from tests.unit.plugins.spool_files.support import (
    AT,
    HOUR,
    journals,
    manifest,
    numbers,
    plugin,
    published,
    push_at,
    pushes,
    rows,
    started,
)
from tests.unit.plugins.support import client_push


def test_a_push_is_a_row_with_all_its_fields(tmp_path: Path) -> None:
    one = client_push()
    with started(tmp_path) as spool:
        spool.export(one.context, one.payload)
    (row,) = rows(tmp_path).to_pylist()
    assert row == {
        "push_id": "0" * 32,
        "client_instance_id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "received_at": datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC),
        "received_at_ns": 1_700_000_000_000_000_000,
        "sequence": 1,
        "terminating": False,
        "client_id": "producer-1",
        "client_software_name": "apache-kafka-java",
        "client_software_version": "4.4.0",
        "principal": "User:ANONYMOUS",
        "client_source_address": "127.0.0.1",
        "client_source_port": 40000,
        "broker_id": 1,
        "cluster_id": "5L6g3nShT-eMCtK--X86sw",
        "listener": "CLIENT",
        "security_protocol": "PLAINTEXT",
        "sasl_mechanism": None,
        "subscription_id": 7,
        "push_interval_ms": 1000,
        "otlp": one.payload.data,
        # The columns that readers of Hive partitions derive from the folders.
        "date": "2023-11-14",
        "hour": 22,
    }


def test_every_field_of_a_push_is_in_its_row(tmp_path: Path) -> None:
    # Fails if the contract gets a field that the rows lack. What identifies a connection and its
    # request has no meaning outside the receiver.
    one = push_at(0)
    passing = {"connection_id", "content_type", "correlation_id", "request_version"}
    fields = {*one.context.__slots__, *one.payload.__dataclass_fields__} - passing
    renamed = {"source_address": "client_source_address", "source_port": "client_source_port", "data": "otlp"}
    assert {renamed.get(name, name) for name in fields} | {"received_at"} == set(SCHEMA.names)


def test_files_are_partitioned_by_the_hour_of_receipt_and_sort_by_time(tmp_path: Path) -> None:
    with started(tmp_path) as spool:
        spool.export_batch(
            [push_at(0, AT + HOUR), push_at(1), push_at(2, AT + HOUR), push_at(3, AT - 24 * HOUR)]
        )
    files = published(tmp_path)
    assert [file.parent.relative_to(tmp_path).as_posix() for file in files] == [
        "date=2026-01-30/hour=13",
        "date=2026-01-31/hour=13",
        "date=2026-01-31/hour=14",
    ]
    assert len({file.name for file in files}) == 1
    assert [pq.read_metadata(file).num_rows for file in files] == [1, 1, 2]
    with started(tmp_path) as spool:
        spool.export_batch(pushes(1, 10))
    in_one_hour = sorted((tmp_path / "date=2026-01-31" / "hour=13").iterdir())
    assert len(in_one_hour) == 2
    assert pq.read_table(in_one_hour[1], partitioning=None)["sequence"].to_pylist() == [11]


def test_a_file_has_its_format_version(tmp_path: Path) -> None:
    with started(tmp_path) as spool:
        spool.export_batch(pushes(1000))
    (file,) = published(tmp_path)
    metadata = pq.read_metadata(file)
    assert metadata.metadata[b"kafka_client_telemetry.pushes"] == b"1"
    column = metadata.row_group(0).column(SCHEMA.get_field_index("received_at"))
    assert column.compression == "ZSTD"
    assert column.statistics.min == datetime.datetime(2026, 1, 31, 13, 5, 12, tzinfo=datetime.UTC)
    # Spark reads no nanoseconds.
    assert str(metadata.schema.column(2).logical_type).startswith(
        "Timestamp(isAdjustedToUTC=true, timeUnit=microseconds"
    )


def test_the_manifest_lists_published_files(tmp_path: Path) -> None:
    with started(tmp_path) as spool:
        spool.export_batch(pushes(5))
    (file,) = published(tmp_path)
    (line,) = manifest(tmp_path)
    stem = file.name.removesuffix(".parquet")
    assert line.pop("at")
    assert line == {
        "event": "published",
        "file": file.relative_to(tmp_path).as_posix(),
        "rows": 5,
        "bytes": file.stat().st_size,
        "otlp_bytes": 10,
        "min_received_at_ns": AT,
        "max_received_at_ns": AT + 4,
        "host": line["host"],
        "run": stem[-17:-9],
        # Not always the first journal of the run, because the writer tries one at its start.
        "sequence": int(stem[-8:]),
    }
    assert stem.endswith(f"-{line['host']}-{line['run']}-{line['sequence']:08}")


def test_a_manifest_line_cut_by_a_full_disk_does_not_damage_the_next(tmp_path: Path) -> None:
    with started(tmp_path) as spool:
        spool.export_batch(pushes(1))
    (file,) = (tmp_path / "_manifest").iterdir()
    with file.open("a") as cut:
        cut.write('{"event": "publ')
    with started(tmp_path) as spool:
        spool.export_batch(pushes(1, 1))
    first, torn, second = file.read_text().splitlines()
    assert torn == '{"event": "publ'
    assert first.startswith('{"event": "published"')
    assert second.startswith('{"event": "published"')


def test_a_file_is_published_in_time_without_further_pushes(tmp_path: Path) -> None:
    with started(tmp_path, roll_seconds=1) as spool:
        began = time.monotonic()
        spool.export_batch(pushes(3))
        assert not published(tmp_path)
        wait_for(lambda: bool(published(tmp_path)))
        assert time.monotonic() - began >= 1.0
        assert numbers(tmp_path) == [0, 1, 2]
        wait_for(lambda: not journals(tmp_path))
        # Nothing waits, so no empty file is published.
        time.sleep(1.2)
        assert len(published(tmp_path)) == 1


def test_a_file_is_published_by_size_without_waiting(tmp_path: Path) -> None:
    with started(tmp_path, roll_seconds=3600, roll_bytes=65_536) as spool:
        spool.export_batch([push_at(0, data=bytes(70_000))])
        wait_for(lambda: numbers(tmp_path) == [0])
        spool.export_batch([push_at(1, data=bytes(10_000))])
        spool.export_batch([push_at(2, data=bytes(60_000))])
        wait_for(lambda: numbers(tmp_path) == [0, 1, 2])
        spool.export_batch([push_at(3)])
    assert [pq.read_metadata(file).num_rows for file in published(tmp_path)] == [1, 2, 1]


def test_readers_see_whole_files_only(tmp_path: Path) -> None:
    """A reader that lists files continuously can read each of them, and none changes."""
    seen: dict[Path, int] = {}
    done = threading.Event()
    problems: list[str] = []

    def read() -> None:
        while not done.is_set():
            for file in published(tmp_path):
                try:
                    size, found = file.stat().st_size, pq.read_table(file, partitioning=None)
                except Exception as error:
                    problems.append(repr(error))
                    return
                if seen.setdefault(file, size) != size or not found.num_rows:
                    problems.append(f"{file} changed")

    reader = threading.Thread(target=read)
    reader.start()
    with started(tmp_path, roll_bytes=65_536) as spool:
        for n in range(60):
            spool.export_batch([push_at(n, data=bytes(30_000))])
    done.set()
    reader.join()
    assert problems == []
    assert numbers(tmp_path) == list(range(60))
    assert rows(tmp_path).num_rows == 60


def test_several_sidecars_write_to_one_folder(tmp_path: Path) -> None:
    with started(tmp_path) as one, started(tmp_path) as other:
        one.export_batch(pushes(3))
        other.export_batch(pushes(3, 3))
        # Neither claims the other's journal.
        assert len(journals(tmp_path)) == 2
    assert numbers(tmp_path) == list(range(6))
    assert len(published(tmp_path)) == len(manifest(tmp_path)) == 2
    assert not journals(tmp_path)


def test_stopping_ends_the_thread_and_publishes(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with started(tmp_path, roll_seconds=3600) as spool:
        spool.export_batch(pushes(2))
        assert set(threading.enumerate()) > before
    assert set(threading.enumerate()) == before
    assert numbers(tmp_path) == [0, 1]
    assert list((tmp_path / "_journal").iterdir()) == []
    plugin(tmp_path).stop()


def test_the_host_exports_and_stops_the_plugin(tmp_path: Path) -> None:
    entry = {"type": "spool_files", "path": str(tmp_path), "retain_hours": None, "delivery": "memory"}
    host = PluginHost(load_plugins([entry]))
    host.start()
    for push in pushes(50):
        host.offer(push)
    assert host.stop(20)
    (statistics,) = host.statistics()
    assert (statistics.exported_pushes, statistics.failures) == (50, 0)
    assert numbers(tmp_path) == list(range(50))


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"type": "spool_files"}, "plugins[0].path: required: a path"),
        ({"path": ""}, 'plugins[0].path: "": is the working directory: name a folder of its own'),
        ({"path": "x", "roll_seconds": 0}, "plugins[0].roll_seconds: 0: expected an integer, 1 to 86400"),
        ({"path": "x", "roll_bytes": 1}, "plugins[0].roll_bytes: 1: expected an integer, 65536 to"),
        ({"path": "x", "retain_hours": 0}, "plugins[0].retain_hours: 0: expected an integer or null"),
        (
            {"path": "x", "max_bytes": 5},
            "plugins[0].max_bytes: 5: expected an integer or null, at least 1048576",
        ),
        ({"path": "x", "roll_second": 5}, "roll_second: unknown key; did you mean roll_seconds?"),
    ],
)
def test_a_wrong_setting_is_named_with_its_fix(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(PluginConfigError) as caught:
        load_plugins([{"type": "spool_files", **settings}])
    assert error in str(caught.value)


def test_a_missing_pyarrow_is_named_with_its_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith(("pyarrow", "plugins.spool_files."))]:
        if not name.endswith((".config", ".receiver")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(PluginConfigError) as caught:
        plugin(tmp_path)
    assert 'plugins[0].type: "spool_files": the plugin cannot be constructed: ' in str(caught.value)
    assert "pip install 'kafka-client-telemetry[spool-files]'" in str(caught.value)


def test_rows_keep_their_order(tmp_path: Path) -> None:
    given: list[Push] = [push_at(n) for n in (5, 3, 9, 1)]
    with started(tmp_path) as spool:
        spool.export_batch(given[:2])
        spool.export_batch(given[2:])
    (file,) = published(tmp_path)
    assert pq.read_table(file, partitioning=None)["sequence"].to_pylist() == [6, 4, 10, 2]
    assert isinstance(rows(tmp_path), pa.Table)
