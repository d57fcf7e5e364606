from __future__ import annotations

import errno
import fcntl
import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plugins.spool_files.columns import SCHEMA, record_batch
from plugins.spool_files.disk import OWNER
from plugins.spool_files.journal import Journal, UnreadableJournalError
from plugins.spool_files.layout import Stem
from plugins.spool_files.publish import publish
from tests.unit.plugins.spool_files.support import HOUR, push_at

STEM = Stem.new(datetime(2026, 1, 31, 13, tzinfo=UTC), host="h", run="0000000a", number=1)


def journal_of(folder: Path, *numbers: int) -> Journal:
    journal = Journal.create(folder, STEM)
    for number in numbers:
        journal.append(record_batch([push_at(number)]))
    return journal


def sequences(journal: Journal) -> list[int]:
    return [batch.column("sequence")[0].as_py() - 1 for _, batch in journal.frames()]


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_journal_that_cannot_be_created_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("plugins.spool_files.journal.sync_folder", full_disk)
        with pytest.raises(OSError, match="No space left"):
            Journal.create(tmp_path, STEM)
    assert list(tmp_path.iterdir()) == []
    Journal.create(tmp_path, STEM).close()


def test_only_a_closed_journal_that_exists_can_be_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Journal.claim(tmp_path / f"{STEM}.journal", STEM) is None
    journal = journal_of(tmp_path, 0)
    assert Journal.claim(journal.path, STEM) is None
    journal.close()
    claimed = Journal.claim(journal.path, STEM)
    assert claimed is not None
    assert sequences(claimed) == [0]
    claimed.close()
    lock = fcntl.flock

    def deleted_before_the_lock(descriptor: int, how: int) -> None:
        journal.path.unlink()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", deleted_before_the_lock)
    assert Journal.claim(journal.path, STEM) is None


def test_a_journal_is_cut_back_to_an_earlier_size(tmp_path: Path) -> None:
    journal = journal_of(tmp_path, 0)
    size = journal.size
    journal.append(record_batch([push_at(1)]))
    journal.cut_back(size)
    assert (journal.size, journal.path.stat().st_size) == (size, size)
    journal.append(record_batch([push_at(2)]))
    assert sequences(journal) == [0, 2]
    journal.close()


def test_a_frame_that_changes_after_it_was_read_is_an_error(tmp_path: Path) -> None:
    journal = journal_of(tmp_path, 0)
    ((position, batch),) = journal.frames()
    assert journal.batch(position).equals(batch)
    os.pwrite(journal._descriptor, b"\xff", journal.size - 1)
    with pytest.raises(OSError, match="the frame changed since it was read"):
        journal.batch(position)
    journal.close()


def test_a_frame_with_a_null_in_a_required_column_is_unreadable(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    (row,) = record_batch([push_at(0)]).to_pylist()
    nullable = pa.schema([field.with_nullable(True) for field in SCHEMA])
    journal.append(pa.RecordBatch.from_pylist([{**row, "push_id": None}], schema=nullable))
    with pytest.raises(UnreadableJournalError, match="rows without push_id"):
        sequences(journal)
    journal.close()


def test_a_file_that_cannot_be_written_leaves_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = journal_of(tmp_path, 0)
    with monkeypatch.context() as patched:
        patched.setattr("plugins.spool_files.publish.os.fsync", full_disk)
        with pytest.raises(OSError, match="No space left"):
            publish(tmp_path, journal, OWNER)
    assert [path for path in tmp_path.rglob("*.parquet*") if path.is_file()] == []
    (published,) = publish(tmp_path, journal, OWNER)
    assert (published.rows, (tmp_path / published.file).exists()) == (1, True)
    journal.close()


def test_row_groups_are_bounded_and_hours_have_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugins.spool_files.publish._ROW_GROUP_BYTES", 1)
    journal = journal_of(tmp_path, 0, 1)
    at = push_at(0).context.received_at_ns
    journal.append(record_batch([push_at(2, at + HOUR)]))
    first, second = publish(tmp_path, journal, OWNER)
    groups = [pq.read_metadata(tmp_path / item.file).num_row_groups for item in (first, second)]
    assert (groups, first.rows, second.rows) == ([2, 1], 2, 1)
    assert (first.min_received_at_ns, first.max_received_at_ns) == (at, at + 1)
    journal.close()
