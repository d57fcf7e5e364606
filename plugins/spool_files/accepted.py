"""Finds the newest accepted pushes at a start.

The host may send them again after a crash. The module reads journals and published files, one frame
or row group at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from plugins.spool_files.columns import IDENTITY, identities
from plugins.spool_files.journal import Journal, UnreadableJournalError
from receiver.plugin import PushIdentity


def newest_accepted(journals: Sequence[Journal], files: Iterable[Path], most: int) -> set[PushIdentity]:
    """Return the identities of the newest accepted pushes, at most ``most``.

    ``journals`` wait to be published, newest last. ``files`` are published, newest first.
    Unreadable files are skipped.

    Raises:
        OSError: A journal cannot be read.
    """
    known: set[PushIdentity] = set()
    for journal in reversed(journals):
        known.update(_newest_in_journal(journal, most - len(known)))
    for file in files:
        if len(known) >= most:
            break
        try:
            known.update(islice(_newest_in_file(file), most - len(known)))
        except (OSError, ValueError, KeyError, pa.ArrowException):
            continue  # removed or damaged
    return known


def _newest_in_journal(journal: Journal, most: int) -> Iterable[PushIdentity]:
    newest: deque[PushIdentity] = deque(maxlen=most)
    try:
        for _, batch in journal.frames():
            newest.extend(identities(batch))
    except UnreadableJournalError:
        return ()  # not published: the writer sets it aside later
    return newest


def _newest_in_file(path: Path) -> Iterator[PushIdentity]:
    with pq.ParquetFile(path) as file:
        for number in reversed(range(file.num_row_groups)):
            rows = file.read_row_group(number, columns=list(IDENTITY), use_threads=False)
            yield from reversed(list(identities(rows)))
