"""Publishes a journal as Parquet files.

Each file is written under a temporary name and renamed. A journal always gives the same file names,
so publishing it again after a crash adds only the missing files.

A journal is read twice: first to find the frames of each hour, then to write them hour by hour. So
one file is open at a time, and memory holds one row group and one frame.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plugins.spool_files.columns import SCHEMA
from plugins.spool_files.disk import Access, make_folder, sync_folder
from plugins.spool_files.journal import Journal
from plugins.spool_files.layout import HOUR_NS, JOURNALS, Hour
from plugins.spool_files.manifest import Published

#: Uncompressed bytes of a row group.
_ROW_GROUP_BYTES = 8 << 20
#: Level 6 takes five times as long and saves a fifteenth; level 1 is no faster.
_ZSTD_LEVEL = 3
#: Columns with unique values, for which a dictionary is useless.
_UNIQUE = frozenset({"push_id", "received_at", "received_at_ns", "sequence", "otlp"})
#: Columns without range queries.
_NO_STATISTICS = frozenset({"push_id", "otlp"})


def publish(root: Path, journal: Journal, access: Access) -> list[Published]:
    """Publish a journal's pushes, one file for each hour of receive times.

    The journal is not deleted. Returns all files of the journal, including those published before.

    Raises:
        OSError: The disk refuses. Published files stay, and no partial file is left.
        UnreadableJournalError: The journal has another version or is damaged. Nothing is published.
    """
    hours: dict[int, _HourOfJournal] = {}
    for position, batch in journal.frames():
        for number, rows in _by_hour(batch):
            hours.setdefault(number, _HourOfJournal(Hour(number))).add(position, rows)
    return [hours[number].publish(root, journal, access) for number in sorted(hours)]


class _HourOfJournal:
    """The pushes of one hour in a journal."""

    def __init__(self, hour: Hour) -> None:
        self._hour = hour
        # An array, because there may be as many frames as pushes.
        self._positions = array("Q")
        self._rows = 0
        self._otlp_bytes = 0
        self._received: list[int] = []

    def add(self, position: int, rows: pa.RecordBatch) -> None:
        received = pc.min_max(rows.column("received_at_ns"))
        self._positions.append(position)
        self._rows += rows.num_rows
        self._otlp_bytes += pc.sum(pc.binary_length(rows.column("otlp"))).as_py()
        ends = (*self._received, received["min"].as_py(), received["max"].as_py())
        self._received = [min(ends), max(ends)]

    def publish(self, root: Path, journal: Journal, access: Access) -> Published:
        file = self._hour.folder / f"{journal.stem}.parquet"
        target = root / file
        if not target.exists():
            new = root / JOURNALS / f"{journal.stem}.{self._hour}.parquet.tmp"
            make_folder(new.parent)
            _write(new, self._batches(journal), access)
            make_folder(target.parent, access)
            new.rename(target)
            sync_folder(target.parent)
        return Published(
            file=file.as_posix(),
            rows=self._rows,
            bytes=target.stat().st_size,
            otlp_bytes=self._otlp_bytes,
            min_received_at_ns=self._received[0],
            max_received_at_ns=self._received[1],
            host=journal.stem.host,
            run=journal.stem.run,
            sequence=journal.stem.number,
        )

    def _batches(self, journal: Journal) -> Iterator[pa.RecordBatch]:
        for position in self._positions:
            yield dict(_by_hour(journal.batch(position)))[self._hour.number]


def _by_hour(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each hour with its number."""
    hours = pc.divide(batch.column("received_at_ns"), HOUR_NS)
    numbers = pc.unique(hours).to_pylist()
    for number in numbers:
        yield number, batch if len(numbers) == 1 else batch.filter(pc.equal(hours, number))


def _write(path: Path, batches: Iterator[pa.RecordBatch], access: Access) -> None:
    descriptor = access.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with os.fdopen(descriptor, "wb") as file:
        try:
            with pq.ParquetWriter(
                file,
                SCHEMA,
                compression="zstd",
                compression_level=_ZSTD_LEVEL,
                use_dictionary=[name for name in SCHEMA.names if name not in _UNIQUE],
                write_statistics=[name for name in SCHEMA.names if name not in _NO_STATISTICS],
            ) as parquet:
                waiting: list[pa.RecordBatch] = []
                waiting_bytes = 0
                for batch in batches:
                    waiting.append(batch)
                    waiting_bytes += batch.nbytes
                    if waiting_bytes >= _ROW_GROUP_BYTES:
                        parquet.write_table(pa.Table.from_batches(waiting))
                        waiting, waiting_bytes = [], 0
                if waiting:
                    parquet.write_table(pa.Table.from_batches(waiting))
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            # Free the bytes at once, because the disk may be full.
            path.unlink(missing_ok=True)
            raise
