"""Which pushes were accepted before a start, the newest: those are what a crash may bring again.

Owns how they are found in journals and in published files. Reads only, and no more at a time than a
frame or a row group of theirs.
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

__all__ = ["newest_accepted"]


def newest_accepted(journals: Sequence[Journal], files: Iterable[Path], most: int) -> set[PushIdentity]:
    """Which pushes were accepted last.

    Args:
        journals: Those that wait to be published, the newest last.
        files: What is published, the newest first; files that can't be read are passed over.
        most: How many pushes are enough.

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
            continue  # removed, damaged, or not ours to judge
    return known


def _newest_in_journal(journal: Journal, most: int) -> Iterable[PushIdentity]:
    newest: deque[PushIdentity] = deque(maxlen=most)
    try:
        for _, batch in journal.frames():
            newest.extend(identities(batch))
    except UnreadableJournalError:
        return ()  # none of it is published: it is set aside when it is its turn
    return newest


def _newest_in_file(path: Path) -> Iterator[PushIdentity]:
    with pq.ParquetFile(path) as file:
        for number in reversed(range(file.num_row_groups)):
            rows = file.read_row_group(number, columns=list(IDENTITY), use_threads=False)
            yield from reversed(list(identities(rows)))
