"""From a journal's rows to published files: written under another name, and renamed when they are whole.

Owns the Parquet form. A journal always gives the same file names, so publishing one again after a crash
publishes only what is missing.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plugins.spool_files.columns import SCHEMA
from plugins.spool_files.disk import make_folder, sync_folder
from plugins.spool_files.layout import JOURNALS, Hour, Stem
from plugins.spool_files.manifest import Published

__all__ = ["publish"]

#: Level 6 takes five times as long for a fifteenth less; level 1 is no faster.
_ZSTD_LEVEL = 3
#: Every value of these is another one, so a dictionary of them only costs.
_UNIQUE = frozenset({"push_id", "received_at", "received_at_ns", "sequence", "otlp"})
#: Nobody looks for a range of these.
_NO_STATISTICS = frozenset({"push_id", "otlp"})


def publish(root: Path, stem: Stem, table: pa.Table) -> list[Published]:
    """Publish a journal's rows, one file for each hour of receive times; files that are there stay.

    Args:
        root: The plugin's folder.
        stem: The journal's name.
        table: Its rows.

    Returns:
        Every file of the journal, also one that was there.

    Raises:
        OSError: The disk refuses; files that were published stay, and no file is there in part.
    """
    hours = pc.divide(table.column("received_at_ns"), Hour(1).start_ns)
    numbers = sorted(pc.unique(hours).to_pylist())
    if len(numbers) == 1:
        return [_publish_hour(root, stem, Hour(numbers[0]), table)]
    return [_publish_hour(root, stem, Hour(n), table.filter(pc.equal(hours, n))) for n in numbers]


def _publish_hour(root: Path, stem: Stem, hour: Hour, rows: pa.Table) -> Published:
    file = hour.folder / f"{stem}.parquet"
    target = root / file
    if not target.exists():
        new = root / JOURNALS / f"{stem}.{hour}.parquet.tmp"
        make_folder(new.parent)
        _write(new, rows)
        make_folder(target.parent)
        new.rename(target)
        sync_folder(target.parent)
    received = pc.min_max(rows.column("received_at_ns"))
    return Published(
        file=file.as_posix(),
        rows=rows.num_rows,
        bytes=target.stat().st_size,
        otlp_bytes=pc.sum(pc.binary_length(rows.column("otlp"))).as_py(),
        min_received_at_ns=received["min"].as_py(),
        max_received_at_ns=received["max"].as_py(),
        host=stem.host,
        run=stem.run,
        sequence=stem.number,
    )


def _write(path: Path, rows: pa.Table) -> None:
    with path.open("wb") as file:
        try:
            pq.write_table(
                rows,
                file,
                compression="zstd",
                compression_level=_ZSTD_LEVEL,
                use_dictionary=[name for name in SCHEMA.names if name not in _UNIQUE],
                write_statistics=[name for name in SCHEMA.names if name not in _NO_STATISTICS],
            )
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            # A full disk gets its bytes back at once.
            path.unlink(missing_ok=True)
            raise
