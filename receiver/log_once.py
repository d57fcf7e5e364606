"""Logs a line once that several processes have to tell, such as all relays.

The processes share a table: what was logged last about each subject, and when. The supervisor makes
it and its children inherit it by fork. A relay that sees something else than the others is heard,
because then the last line about the subject was another one.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
import zlib
from collections.abc import Mapping
from struct import Struct
from typing import Any, Final

import structlog

#: Seconds for which no other process repeats a line.
_FOR_S: Final = 60.0

#: Subjects: listeners, and the nodes of rewriting ones. Two share a place in a thousandth of cases.
_PLACES: Final = 1024

#: What was logged last, as a checksum, and when, in monotonic seconds.
_PLACE: Final = Struct("=Qd")


class _Table:
    def __init__(self) -> None:
        size = _PLACES * _PLACE.size
        self.file = os.memfd_create("logged", os.MFD_CLOEXEC)
        os.ftruncate(self.file, size)
        self._memory = mmap.mmap(self.file, size)

    def is_new(self, subject: str, line: str) -> bool:
        """Whether no process has just logged this line as the last one about the subject."""
        offset = zlib.crc32(subject.encode()) % _PLACES * _PLACE.size
        checksum, now = zlib.crc32(line.encode()), time.monotonic()
        try:
            # Without waiting, because a process that is suspended may hold it.
            fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        try:
            last, at = _PLACE.unpack_from(self._memory, offset)
            if last == checksum and now - at < _FOR_S:
                return False
            _PLACE.pack_into(self._memory, offset, checksum, now)
            return True
        finally:
            fcntl.lockf(self.file, fcntl.LOCK_UN)


_tables: list[_Table] = []


def install() -> None:
    """Make the table; call it before the fork. Without it each line is logged."""
    if not _tables:
        _tables.append(_Table())


def descriptors() -> list[int]:
    """Return the descriptors that a child has to keep."""
    return [table.file for table in _tables]


def drop_repeats(_logger: Any, method: str, event: structlog.typing.EventDict) -> Mapping[str, Any]:
    """Drop a line that another process has just logged: a structlog processor.

    The subject of a line is the field ``once``, which is not logged. Lines without it stay.
    """
    subject = event.pop("once", None)
    if subject is not None and _tables:
        line = repr((method, sorted((key, str(value)) for key, value in event.items())))
        if not _tables[0].is_new(str(subject), line):
            raise structlog.DropEvent
    return event
