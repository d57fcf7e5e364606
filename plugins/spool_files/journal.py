"""A journal: the pushes of one file to be, on disk before they are accepted.

Owns the journal's bytes, its lock and its end. A journal is a header and then frames; a frame is the length
and the CRC-32 of an Arrow record batch message, and the message. It is written by one thread.

The lock (``flock``) is held from the journal's making until it is published and deleted, so a journal
that can be locked is of a process that has ended.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa

from plugins.spool_files.columns import SCHEMA
from plugins.spool_files.disk import sync_folder
from plugins.spool_files.layout import Stem

__all__ = ["ENDING", "Journal", "JournalRows", "UnreadableJournalError"]

#: What a journal's name ends with.
ENDING = ".journal"

#: What the format is, and its version; padded, as Arrow wants its messages at multiples of 8.
_HEADER = b"KCTPUSHJ" + struct.pack("<II", 1, 0)
_FRAME = struct.Struct("<II")


class UnreadableJournalError(Exception):
    """The journal is of another version, or isn't one at all: the operator must look at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRows:
    """What a journal holds.

    Attributes:
        table: The pushes, in the order of their acceptance.
        torn_bytes: Bytes at the end that are no whole frame: a write that was never acknowledged, or damage.
    """

    table: pa.Table
    torn_bytes: int


class Journal:
    """An open and locked journal; made by :meth:`create` or :meth:`claim`.

    Attributes:
        path: Where it is.
        stem: Its name.
        size: Bytes of whole frames, with the header.
    """

    def __init__(self, path: Path, stem: Stem, descriptor: int, size: int) -> None:
        self.path = path
        self.stem = stem
        self.size = size
        self._descriptor = descriptor

    @classmethod
    def create(cls, folder: Path, stem: Stem) -> Self:
        """Begin a journal.

        Raises:
            BlockingIOError: Somebody has taken it over already, as it was not locked at first: try another.
            OSError: The disk refuses; nothing stays behind.
        """
        path = folder / f"{stem}{ENDING}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(descriptor).st_nlink:
                raise BlockingIOError(errno.EWOULDBLOCK, "taken over, and deleted as it was empty", str(path))
            _write(descriptor, _HEADER, 0)
            sync_folder(folder)
        except BaseException as error:
            # Taken over, it is somebody else's to delete.
            if not isinstance(error, BlockingIOError):
                with contextlib.suppress(OSError):
                    path.unlink()
            os.close(descriptor)
            raise
        return cls(path, stem, descriptor, len(_HEADER))

    @classmethod
    def claim(cls, path: Path) -> Self | None:
        """Take over a journal whose process has ended.

        Returns:
            None when it isn't one of ours by its name, is in use, or has just been deleted.

        Raises:
            OSError: It cannot be opened or locked.
        """
        stem = Stem.parse(path.name.removesuffix(ENDING)) if path.name.endswith(ENDING) else None
        if stem is None:
            return None
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return None
            raise
        state = os.fstat(descriptor)
        # Deleted by who had the lock before.
        if state.st_nlink == 0:
            os.close(descriptor)
            return None
        return cls(path, stem, descriptor, state.st_size)

    def append(self, batch: pa.RecordBatch) -> None:
        """Write a frame; it is on disk when this returns.

        Raises:
            OSError: The disk refuses; the journal is as it was before.
        """
        message = memoryview(batch.serialize())
        frame = b"".join((_FRAME.pack(len(message), zlib.crc32(message)), message))
        try:
            _write(self._descriptor, frame, self.size)
            os.fdatasync(self._descriptor)
        except OSError:
            # Else a shorter frame that is written here next would be followed by the rest of this one.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size)
            raise
        self.size += len(frame)

    @property
    def deleted(self) -> bool:
        """Whether somebody deleted it: a crash would lose what it holds."""
        return os.fstat(self._descriptor).st_nlink == 0

    def read(self) -> JournalRows:
        """Everything that was appended.

        Raises:
            OSError: The disk refuses.
            UnreadableJournalError: It is of another version, or damaged and its checksums don't tell.
        """
        # Not mapped: of a mapped file, an I/O error would end the process. Not by its name: it may be gone.
        with open(self._descriptor, "rb", closefd=False) as file:
            file.seek(0)
            data = file.read()
        if not data.startswith(_HEADER) and data != _HEADER[: len(data)]:
            raise UnreadableJournalError(f"{self.path} is no journal of version 1")
        batches = []
        view, position = memoryview(data), min(len(_HEADER), len(data))
        while position + _FRAME.size <= len(data):
            length, checksum = _FRAME.unpack_from(data, position)
            message = view[position + _FRAME.size : position + _FRAME.size + length]
            if not length or len(message) != length or zlib.crc32(message) != checksum:
                break
            try:
                batches.append(_batch(message))
            # Arrow's own way to say that it is no message, or none whole; nothing is read from a disk here.
            except (pa.ArrowException, OSError, EOFError) as error:
                raise UnreadableJournalError(f"{self.path} at byte {position}: {error}") from None
            position += _FRAME.size + length
        return JournalRows(table=pa.Table.from_batches(batches, SCHEMA), torn_bytes=len(data) - position)

    def set_aside(self) -> None:
        """Give it a name under which it is never read again, and let go of it.

        Raises:
            OSError: The disk refuses.
        """
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(self.path.with_name(f"{self.path.name}.unreadable"))
        self.close()

    def delete(self) -> None:
        """Delete it, as all of it is published.

        Raises:
            OSError: The disk refuses.
        """
        # While it is locked, so that nobody takes it over.
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let go of it; it stays on disk and is taken over by who opens the folder next."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _batch(message: memoryview) -> pa.RecordBatch:
    batch = pa.ipc.read_record_batch(pa.py_buffer(message), SCHEMA)
    # Whoever reads a text with wrong offsets reads memory that isn't its own.
    batch.validate(full=True)
    for field, column in zip(SCHEMA, batch.columns, strict=True):
        if column.null_count and not field.nullable:
            raise pa.ArrowInvalid(f"there are rows without {field.name}")
    return batch


def _write(descriptor: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written
