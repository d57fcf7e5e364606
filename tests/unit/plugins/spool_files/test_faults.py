"""Accepted pushes survive failures of the disk, the process or a file."""

from __future__ import annotations

import datetime
import errno
import fcntl
import os
import resource
import shutil
import time
from pathlib import Path

import pytest

from plugins.spool_files.columns import record_batch
from plugins.spool_files.journal import Journal
from plugins.spool_files.layout import Stem, host_name
from receiver.plugin import RetryableError
from tests.unit.host.support import wait_for
from tests.unit.plugins.spool_files.support import (
    first_message,
    journals,
    manifest,
    message,
    numbers,
    plugin,
    published,
    push_at,
    pushes,
    started,
)


def claim(path: Path) -> Journal | None:
    stem = Stem.parse(path.stem)
    assert stem is not None
    return Journal.claim(path, stem)


def left_behind(path: Path, batches: int = 3, *, host: str | None = None, number: int = 1) -> Path:
    """Write the journal of a killed process: pushes 0, 1, ..., each in its own frame."""
    folder = path / "_journal"
    folder.mkdir(parents=True, exist_ok=True)
    stem = Stem.new(
        datetime.datetime(2026, 1, 31, 13, tzinfo=datetime.UTC),
        host=host or host_name(),
        run="0000000a",
        number=number,
    )
    journal = Journal.create(folder, stem)
    for n in range(batches):
        journal.append(record_batch([push_at(n)]))
    journal.close()
    return journal.path


def test_accepted_pushes_are_published_at_the_next_start(tmp_path: Path) -> None:
    left_behind(tmp_path)
    with started(tmp_path, roll_seconds=3600):
        # At once, not when the process ends.
        wait_for(lambda: numbers(tmp_path) == [0, 1, 2] and not journals(tmp_path))
    (line,) = manifest(tmp_path)
    assert (line["run"], line["sequence"], line["rows"]) == ("0000000a", 1, 3)


@pytest.mark.parametrize("cut", [1, 10, 500])
def test_a_torn_tail_is_cut_and_counted(tmp_path: Path, cut: int) -> None:
    journal = left_behind(tmp_path)
    whole = journal.stat().st_size
    left_behind(tmp_path / "two", 2)
    two = journals(tmp_path / "two")[0].stat().st_size
    os.truncate(journal, whole - cut)
    with started(tmp_path) as spool:
        wait_for(lambda: not journals(tmp_path))
        assert numbers(tmp_path) == [0, 1]
        assert first_message(spool) == f"bytes of torn journals cut off: {whole - cut - two}"
        assert message(spool, 101) == ""


def test_a_frame_that_does_not_match_its_checksum_is_not_published(tmp_path: Path) -> None:
    journal = left_behind(tmp_path)
    content = bytearray(journal.read_bytes())
    content[-20] ^= 0xFF
    journal.write_bytes(content)
    with started(tmp_path) as spool:
        wait_for(lambda: not journals(tmp_path))
        assert numbers(tmp_path) == [0, 1]
        assert "bytes of torn journals cut off: " in first_message(spool)


@pytest.mark.parametrize("size", [0, 5, 16])
def test_an_empty_journal_is_deleted(tmp_path: Path, size: int) -> None:
    os.truncate(left_behind(tmp_path), size)
    with started(tmp_path) as spool:
        wait_for(lambda: not journals(tmp_path))
        assert message(spool) == ""
    assert numbers(tmp_path) == [100]


def test_a_journal_of_another_version_is_set_aside(tmp_path: Path) -> None:
    journal = left_behind(tmp_path)
    content = journal.read_bytes()
    journal.write_bytes(content[:8] + b"\x02" + content[9:])
    with started(tmp_path) as spool:
        wait_for(lambda: not journals(tmp_path))
        said = first_message(spool)
    assert said.startswith(f"journals set aside ({journal} is no journal of version 1): 1")
    assert journal.with_name(f"{journal.name}.unreadable").stat().st_size == len(content)
    assert numbers(tmp_path) == [100]


def test_a_crash_after_publishing_publishes_nothing_twice(tmp_path: Path) -> None:
    journal = left_behind(tmp_path)
    content = journal.read_bytes()
    with started(tmp_path):
        wait_for(lambda: not journals(tmp_path))
    (file,) = published(tmp_path)
    before = file.stat()
    journal.write_bytes(content)
    (tmp_path / "_journal" / f"{journal.stem}.2026-01-31T13.parquet.tmp").write_bytes(b"half a file")
    with started(tmp_path):
        wait_for(lambda: not journals(tmp_path))
    assert published(tmp_path) == [file]
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_half_written_file_is_written_again_after_a_crash(tmp_path: Path) -> None:
    journal = left_behind(tmp_path)
    half = tmp_path / "_journal" / f"{journal.stem}.2026-01-31T13.parquet.tmp"
    half.write_bytes(bytes(1_000_000))
    with started(tmp_path):
        wait_for(lambda: numbers(tmp_path) == [0, 1, 2])
    assert not half.exists()


def test_repeated_pushes_after_a_restart_are_dropped(tmp_path: Path) -> None:
    with started(tmp_path, roll_bytes=65_536) as spool:
        spool.export_batch([push_at(0, data=bytes(70_000))])
        wait_for(lambda: numbers(tmp_path) == [0])
        spool.export_batch(pushes(4, 10))
    left_behind(tmp_path)  # pushes 0, 1, 2 of another run
    with started(tmp_path) as spool:
        assert spool.export_batch([*pushes(6), *pushes(6, 10)]) is not None
    # 0 is there twice, because this test wrote it into a second journal.
    assert numbers(tmp_path) == [0, 0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15]


def test_journals_in_use_and_of_other_hosts_are_left_alone(tmp_path: Path) -> None:
    in_use = left_behind(tmp_path, number=1)
    held = claim(in_use)
    assert held is not None
    elsewhere = left_behind(tmp_path, host="elsewhere", number=2)
    orphaned = left_behind(tmp_path, host="gone", number=3)
    long_ago = time.time() - 2 * 3600
    os.utime(orphaned, (long_ago, long_ago))
    foreign = tmp_path / "_journal" / "mine.journal"
    foreign.write_text("not yours")
    with started(tmp_path):
        wait_for(lambda: not orphaned.exists())
    assert journals(tmp_path) == sorted([in_use, elsewhere, foreign])
    assert foreign.read_text() == "not yours"
    assert numbers(tmp_path) == [0, 1, 2]
    held.close()


def test_a_full_disk_refuses_and_the_journal_stays_whole(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with started(tmp_path, roll_seconds=3600) as spool:
        spool.export_batch(pushes(2))
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
            for _ in range(3):
                with pytest.raises(RetryableError, match=r"cannot write to .*/_journal: File too large"):
                    spool.export_batch([push_at(2, data=bytes(100_000))])
            # A smaller push still fits and is accepted.
            spool.export_batch(pushes(1, 3))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        spool.export_batch([push_at(2, data=bytes(100_000))])
    assert numbers(tmp_path) == [0, 1, 2, 3]
    (line,) = manifest(tmp_path)
    assert line["rows"] == 4


def test_failing_publication_is_reported_bounded_and_recovers(tmp_path: Path) -> None:
    with started(tmp_path, roll_bytes=65_536) as spool:
        # A file in the place of the day's folder makes publishing fail, but not journals.
        day = tmp_path / "date=2026-01-31"
        day.write_text("in the way")
        big = bytes(70_000)
        for n in range(2):
            spool.export_batch([push_at(n, data=big)])
        wait_for(lambda: "files cannot be published or removed: " in spool._writer.drain_messages())  # type: ignore[union-attr]
        for n in range(2, 4):
            spool.export_batch([push_at(n, data=big)])
        with pytest.raises(RetryableError, match="files cannot be published: "):
            spool.export_batch([push_at(4, data=big)])
        assert len(journals(tmp_path)) == 4
        assert not published(tmp_path)
        day.unlink()
        wait_for(lambda: numbers(tmp_path) == [0, 1, 2, 3])
        wait_for(lambda: not journals(tmp_path))
        assert message(spool) == ""
        assert list(tmp_path.glob("_journal/*.tmp")) == []


def test_a_deleted_folder_is_created_again_and_no_accepted_push_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    with started(folder, roll_seconds=3600) as spool:
        spool.export_batch(pushes(2))
        shutil.rmtree(folder)
        result = spool.export_batch(pushes(2, 2))
        assert result is not None
        assert "deleted journals, published anyway: 1" in result.message
        wait_for(lambda: numbers(folder) == [0, 1])
        assert message(spool, 4) == ""
    assert numbers(folder) == [0, 1, 2, 3, 4]
    assert [line["rows"] for line in manifest(folder)] == [2, 3]


def test_a_new_journal_that_another_process_claims_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "_journal"
    lock = fcntl.flock

    def another_is_faster(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        for path in folder.glob("*.journal"):
            claimed = claim(path)
            assert claimed is not None
            claimed.delete()
        lock(descriptor, how)

    with started(tmp_path) as spool:
        monkeypatch.setattr(fcntl, "flock", another_is_faster)
        spool.export_batch(pushes(2))
        assert len(journals(tmp_path)) == 1
    assert numbers(tmp_path) == [0, 1]


def test_a_journal_that_cannot_be_opened_blocks_no_push(tmp_path: Path) -> None:
    closed = left_behind(tmp_path)
    closed.unlink()
    closed.mkdir()  # a folder, because root may open every file
    with started(tmp_path) as spool:
        assert f"journals that cannot be opened ([Errno 21] Is a directory: '{closed}'): " in message(spool)
    assert numbers(tmp_path) == [100]


def test_journals_that_fail_at_the_stop_are_published_at_the_next_start(tmp_path: Path) -> None:
    day = tmp_path / "date=2026-01-31"
    with started(tmp_path) as spool:
        day.write_text("in the way")
        spool.export_batch(pushes(3))
    assert len(journals(tmp_path)) == 1
    day.unlink()
    with started(tmp_path):
        pass
    assert numbers(tmp_path) == [0, 1, 2]


def test_a_folder_that_cannot_be_created_fails_the_start_until_it_can(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    path.write_text("in the way")
    spool = plugin(path)
    for _ in range(2):
        with pytest.raises(OSError, match="spool"):
            spool.start()
    path.unlink()
    spool.start()
    spool.export_batch(pushes(1))
    spool.stop()
    assert numbers(path) == [0]


def test_a_failed_start_releases_claimed_journals(tmp_path: Path) -> None:
    journal = left_behind(tmp_path)
    spool = plugin(tmp_path)
    manifests = tmp_path / "_manifest"
    day = datetime.datetime.now(datetime.UTC).date()
    (manifests / f"{day}.{host_name()}.jsonl").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        spool.start()
    claimed = claim(journal)
    assert claimed is not None
    claimed.close()


def test_a_full_disk_is_an_error_with_its_reason(tmp_path: Path) -> None:
    spool = plugin(tmp_path)
    spool.start()
    spool.export_batch(pushes(1))
    assert spool._writer is not None
    (open_journal,) = spool._writer._open.values()
    # /dev/full answers ENOSPC to every write, like a full disk.
    full = os.open("/dev/full", os.O_RDWR)
    mine, open_journal._descriptor = open_journal._descriptor, full
    with pytest.raises(RetryableError, match=os.strerror(errno.ENOSPC)):
        spool.export_batch(pushes(1, 1))
    open_journal._descriptor = mine
    os.close(full)
    spool.export_batch(pushes(1, 1))
    spool.stop()
    assert numbers(tmp_path) == [0, 1]
