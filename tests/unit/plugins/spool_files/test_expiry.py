"""Which files expire and when: by their hour, by the bound, and with a wrong clock."""

from __future__ import annotations

import datetime
import os
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from plugins.spool_files.layout import host_name
from plugins.spool_files.retention import ExpiryClock, folder_bytes
from receiver.plugin import Push
from tests.unit.host.support import wait_for
from tests.unit.plugins.spool_files.support import (
    HOUR,
    journals,
    manifest,
    message,
    numbers,
    numbers_in,
    published,
    push_at,
    pushes,
    started,
)


def test_files_expire_while_publishing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugins.spool_files.writer._SWEEP_S", 0.1)
    with started(tmp_path, retain_hours=24, roll_seconds=1) as spool:
        now = datetime.datetime.now(datetime.UTC)
        (tmp_path / f"date={now:%Y-%m-%d}").write_text("in the way")
        spool.export_batch([push_at(0, time.time_ns())])
        wait_for(lambda: "cannot be published" in spool._writer.drain_messages())  # type: ignore[union-attr]
        with started(tmp_path / "other") as other:
            other.export_batch(pushes(1))
        (old,) = published(tmp_path / "other")
        (tmp_path / "date=2020-01-01" / "hour=00").mkdir(parents=True)
        old = old.rename(tmp_path / "date=2020-01-01" / "hour=00" / old.name)
        wait_for(lambda: not old.parent.parent.exists())
    assert len(journals(tmp_path)) == 1


def test_a_forward_leap_of_the_clock_removes_files_only_after_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugins.spool_files.writer._SWEEP_S", 0.02)
    ahead = {"wall": 0, "steady": 0}
    with started(tmp_path, retain_hours=24, roll_seconds=1) as spool:
        writer = spool._writer
        assert writer is not None
        writer._expiry = ExpiryClock(
            wall=lambda: time.time_ns() + ahead["wall"], steady=lambda: time.monotonic_ns() + ahead["steady"]
        )
        ahead["wall"] = 365 * 24 * HOUR
        spool.export_batch([push_at(0, time.time_ns())])
        wait_for(lambda: bool(published(tmp_path)))
        time.sleep(0.2)
        assert numbers(tmp_path) == [0]
        ahead["steady"] = HOUR
        wait_for(lambda: not published(tmp_path))


def test_the_expiry_clock() -> None:
    hour = HOUR
    wall, steady = 1000 * hour, 5 * hour
    clock = ExpiryClock(wall=lambda: wall, steady=lambda: steady)

    def hours() -> float:
        return clock.now().timestamp() / 3600

    wall, steady = wall + hour, steady + hour
    assert hours() == 1001
    wall = 5000 * hour  # set forwards, and back before the leap is accepted
    assert hours() == 1001
    steady += hour // 2
    assert hours() == 1001.5
    wall = 1001 * hour + hour // 2
    assert hours() == 1001.5
    wall, steady = 3000 * hour, steady + hour // 2
    assert hours() == 1002
    steady += hour - 1
    assert hours() < 1003
    steady += 1
    assert hours() == 3000
    wall = 900 * hour  # set back: accepted at once, because fewer files expire then
    assert hours() == 900


def test_files_expire_by_their_hour_and_other_files_stay(tmp_path: Path) -> None:
    now = now_ns()
    with started(tmp_path) as spool:
        spool.export_batch([push_at(0, now - 5 * HOUR), push_at(1, now - 50 * HOUR), push_at(2, now)])
    assert numbers(tmp_path) == [0, 1, 2]
    theirs = [
        tmp_path / "date=2020-01-01" / "hour=00" / "part-0.parquet",
        tmp_path / "date=2020-01-01" / "notes.txt",
        tmp_path / "other" / "hour=00" / published(tmp_path)[0].name,
        tmp_path / "_manifest" / "notes.jsonl",
    ]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / published(tmp_path)[0].name).write_text("theirs")
    for file in theirs:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("theirs")
    (tmp_path / "date=2020-01-02").mkdir()
    (tmp_path / "date=2020-01-02" / "hour=00").symlink_to(elsewhere)
    old_manifest = tmp_path / "_manifest" / "2020-01-01.h.jsonl"
    old_manifest.write_text("{}\n")

    with started(tmp_path, retain_hours=24) as spool:
        wait_for(lambda: numbers_of(tmp_path) == [0, 2])
        wait_for(lambda: not old_manifest.exists())
    assert all(file.read_text() == "theirs" for file in theirs)
    assert len(list(elsewhere.iterdir())) == 1
    gone = [line for line in manifest_lines(tmp_path) if line["event"] == "removed"]
    assert [line["reason"] for line in gone] == ["age"]
    assert not (tmp_path / gone[0]["file"]).parent.exists()


def test_at_the_bound_the_oldest_files_are_removed(tmp_path: Path) -> None:
    # Bytes that cannot be compressed, so that sizes are known.
    with started(tmp_path, roll_bytes=300_000, roll_seconds=3600, max_bytes=1_048_576) as spool:
        for n in range(3):
            spool.export_batch([push_at(n, data=os.urandom(300_000))])
        wait_for(lambda: numbers(tmp_path) == [0, 1, 2])
        for n in range(3, 6):
            spool.export_batch([push_at(n, data=os.urandom(300_000))])
            wait_for(lambda n=n: numbers(tmp_path) == [n - 2, n - 1, n])  # type: ignore[misc]
        wait_for(lambda: "files removed at max_bytes, the oldest first: " in message(spool))
    gone = [line for line in manifest(tmp_path) if line["event"] == "removed"]
    assert [line["reason"] for line in gone] == ["max_bytes"] * 3
    assert all(line["bytes"] > 300_000 for line in gone)


def now_ns() -> int:
    return time.time_ns()


def numbers_of(path: Path) -> list[int]:
    """Return :func:`numbers` of the files of one sidecar only."""
    return numbers_in(
        file for file in published(path) if not file.parent.is_symlink() and file.name != "part-0.parquet"
    )


def manifest_lines(path: Path) -> list[dict[str, str]]:
    import json

    (file,) = (path / "_manifest").glob(f"*.{host_name()}.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def from_block(number: int, block: str, size: int) -> Push:
    one = push_at(number, data=random.Random(number).randbytes(size))
    return replace(one, context=replace(one.context, source_address=block))


def test_a_site_over_its_share_deletes_its_own_files_and_no_others(tmp_path: Path) -> None:
    # A quarter of the bound is enough for files that are published before the folder is known to be
    # short of room.
    max_bytes = 2 << 20
    with started(tmp_path, max_bytes=max_bytes, roll_bytes=1 << 16, retain_hours=None) as spool:
        spool.export_batch([from_block(number, "10.0.0.7", 20_000) for number in range(5)])
        wait_for(lambda: len(numbers(tmp_path)) == 5)
        for first in range(1_000, 1_200, 5):
            mine = [from_block(first + 50_000, "10.0.0.7", 1_000)]
            spool.export_batch(
                [*mine, *(from_block(first + n, f"2001:db8:6:{first + n:x}::1", 20_000) for n in range(5))]
            )
            wait_for(lambda: not journals(tmp_path))
        wait_for(lambda: folder_bytes(tmp_path) <= max_bytes)
        found = set(numbers(tmp_path))
    innocent = {*range(5), *range(51_000, 51_200, 5)}
    assert innocent <= found
    hostile = found - innocent
    assert 0 < len(hostile) < 110
    assert max(hostile) == 1_199, "the newest of the hostile address block are kept"
