"""A journal: the pushes of one file to be, on disk before they are accepted.

Owns the journal's bytes, its lock and its end. A journal is a header and then frames; a frame is
the length and the CRC-32 of an Arrow record batch message, and the message. It is written by one
thread.

The lock (``flock``) is held from the journal's making until it is published and deleted, so a
journal that can be locked is of a process that has ended.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pyarrow as pa

from plugins.spool_files.columns import SCHEMA
from plugins.spool_files.disk import OWNER, sync_folder
from plugins.spool_files.layout import Stem

__all__ = ["ENDING", "Journal", "UnreadableJournalError"]

#: What a journal's name ends with.
ENDING = ".journal"

#: What the format is, and its version; padded, as Arrow wants its messages at multiples of 8.
_HEADER = b"KCTPUSHJ" + struct.pack("<II", 1, 0)
_FRAME = struct.Struct("<II")
#: How much is read at once to check a frame, whose length may be of damage: no memory is taken for
#: that.
_CHECKED_BYTES = 1 << 20


class UnreadableJournalError(Exception):
    """The journal is of another version, or isn't one at all: the operator must look at it."""


class Journal:
    """An open and locked journal; made by :meth:`create` or :meth:`claim`.

    Attributes:
        path: Where it is.
        stem: Its name.
        size: Bytes of whole frames, with the header; of one that was taken over, all that there is.
        torn_bytes: Bytes at the end that are no whole frame, a write that was never acknowledged or
            damage; known when :meth:`frames` has come to its end.
    """

    def __init__(self, path: Path, stem: Stem, descriptor: int, size: int) -> None:
        self.path = path
        self.stem = stem
        self.size = size
        self.torn_bytes = 0
        self._descriptor = descriptor

    @classmethod
    def create(cls, folder: Path, stem: Stem) -> Self:
        """Begin a journal.

        Raises:
            BlockingIOError: Somebody has taken it over already, as it was not locked at first: try
                another.
            OSError: The disk refuses; nothing stays behind.
        """
        path = folder / f"{stem}{ENDING}"
        descriptor = OWNER.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
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
            # Else a shorter frame that is written here next would be followed by the rest of this
            # one.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size)
            raise
        self.size += len(frame)

    def cut_back(self, size: int) -> None:
        """Take back what was appended since the journal had this size, as far as the disk lets us."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, size)
        self.size = size

    @property
    def deleted(self) -> bool:
        """Whether somebody deleted it: a crash would lose what it holds."""
        return os.fstat(self._descriptor).st_nlink == 0

    def frames(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Everything that was appended, a frame at a time: no more than one is in memory.

        Yields:
            Where a frame begins, for :meth:`batch`, and its pushes, in the order of their
            acceptance.

        Raises:
            OSError: The disk refuses.
            UnreadableJournalError: It is of another version, or damaged and its checksums don't
                tell.
        """
        # Not mapped: of a mapped file, an I/O error would end the process. Not by its name: it may
        # be gone.
        header = os.pread(self._descriptor, len(_HEADER), 0)
        if header != _HEADER[: len(header)]:
            raise UnreadableJournalError(f"{self.path} is no journal of version 1")
        position = len(_HEADER)
        while length := self._whole(position):
            yield position, self._decoded(position, length)
            position += _FRAME.size + length
        self.torn_bytes = max(0, self.size - position)

    def batch(self, position: int) -> pa.RecordBatch:
        """A frame that :meth:`frames` has yielded, once more.

        Args:
            position: Where it begins.

        Raises:
            OSError: The disk refuses, or has changed it.
            UnreadableJournalError: The disk has changed it.
        """
        length = self._whole(position)
        if not length:
            raise OSError(errno.EIO, "not as it was read before", str(self.path))
        return self._decoded(position, length)

    def _whole(self, position: int) -> int:
        """The length of the message of the frame that begins there, or 0 when there is no whole one."""
        frame = os.pread(self._descriptor, _FRAME.size, position)
        if len(frame) < _FRAME.size:
            return 0
        length, checksum = _FRAME.unpack(frame)
        begin = position + _FRAME.size
        end = begin + length
        if end > self.size:
            return 0
        found = 0
        for at in range(begin, end, _CHECKED_BYTES):
            found = zlib.crc32(os.pread(self._descriptor, min(_CHECKED_BYTES, end - at), at), found)
        return length if found == checksum else 0

    def _decoded(self, position: int, length: int) -> pa.RecordBatch:
        message = os.pread(self._descriptor, length, position + _FRAME.size)
        try:
            return _batch(message)
        # Arrow's own way to say that it is no message, or none whole; nothing is read from a disk
        # here.
        except (pa.ArrowException, OSError, EOFError) as error:
            raise UnreadableJournalError(f"{self.path} at byte {position}: {error}") from None

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


def _batch(message: bytes) -> pa.RecordBatch:
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
