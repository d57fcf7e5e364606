"""A journal: holds accepted pushes on disk until their file is published.

A journal is a header followed by frames. A frame is the length and CRC-32 of an Arrow record batch
message, and the message. One thread writes it.

The lock (``flock``) is held from creation until the journal is published and deleted. So a journal
that can be locked belongs to a process that has ended.
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

#: Suffix of journal names.
ENDING = ".journal"

#: Magic and version, padded because Arrow aligns its messages to 8 bytes.
_HEADER = b"KCTPUSHJ" + struct.pack("<II", 1, 0)
_FRAME = struct.Struct("<II")
#: Bytes read at once to check a frame, because a damaged length must not allocate memory.
_CHECKED_BYTES = 1 << 20


class UnreadableJournalError(Exception):
    """The journal has another version or is damaged. The operator must look at it."""


class Journal:
    """An open and locked journal, from :meth:`create` or :meth:`claim`.

    Attributes:
        size: Bytes of the header and whole frames; for a claimed journal, its file size.
        torn_bytes: Bytes after the last whole frame, from an unacknowledged write or damage. Known
            after :meth:`frames` has ended.
    """

    def __init__(self, path: Path, stem: Stem, descriptor: int, size: int) -> None:
        self.path = path
        self.stem = stem
        self.size = size
        self.torn_bytes = 0
        self._descriptor = descriptor

    @classmethod
    def create(cls, folder: Path, stem: Stem) -> Self:
        """Create a journal.

        Raises:
            BlockingIOError: Another process claimed it before it was locked. Try another name.
            OSError: The disk refuses. Nothing is left behind.
        """
        path = folder / f"{stem}{ENDING}"
        descriptor = OWNER.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(descriptor).st_nlink:
                raise BlockingIOError(
                    errno.EWOULDBLOCK, "claimed and deleted, because it was empty", str(path)
                )
            _write(descriptor, _HEADER, 0)
            sync_folder(folder)
        except BaseException as error:
            # If another process claimed it, that process deletes it.
            if not isinstance(error, BlockingIOError):
                with contextlib.suppress(OSError):
                    path.unlink()
            os.close(descriptor)
            raise
        return cls(path, stem, descriptor, len(_HEADER))

    @classmethod
    def claim(cls, path: Path, stem: Stem) -> Self | None:
        """Claim a journal whose process has ended; None if it is in use or was deleted.

        Raises:
            OSError: It cannot be opened or locked.
        """
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
        # The previous holder of the lock deleted it.
        if state.st_nlink == 0:
            os.close(descriptor)
            return None
        return cls(path, stem, descriptor, state.st_size)

    def append(self, batch: pa.RecordBatch) -> None:
        """Write a frame durably.

        Raises:
            OSError: The disk refuses. The journal is unchanged.
        """
        message = memoryview(batch.serialize())
        frame = b"".join((_FRAME.pack(len(message), zlib.crc32(message)), message))
        try:
            _write(self._descriptor, frame, self.size)
            os.fdatasync(self._descriptor)
        except OSError:
            # Otherwise the rest of this frame would follow a shorter next one.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size)
            raise
        self.size += len(frame)

    def cut_back(self, size: int) -> None:
        """Truncate to an earlier size, as far as the disk allows."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, size)
        self.size = size

    @property
    def deleted(self) -> bool:
        """Whether its file was deleted. Then a crash would lose its pushes."""
        return os.fstat(self._descriptor).st_nlink == 0

    def frames(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield each frame's position and pushes, in the order of acceptance.

        One frame is in memory at a time.

        Raises:
            OSError: The disk refuses.
            UnreadableJournalError: It has another version, or damage that its checksums do not
                show.
        """
        # Not mmap, because an I/O error would kill the process. Not by name, because the file may
        # be deleted.
        header = os.pread(self._descriptor, len(_HEADER), 0)
        if header != _HEADER[: len(header)]:
            raise UnreadableJournalError(f"{self.path} is no journal of version 1")
        position = len(_HEADER)
        while length := self._whole(position):
            yield position, self._decoded(position, length)
            position += _FRAME.size + length
        self.torn_bytes = max(0, self.size - position)

    def batch(self, position: int) -> pa.RecordBatch:
        """Read a frame again, at a position from :meth:`frames`.

        Raises:
            OSError: The disk refuses, or the frame changed.
            UnreadableJournalError: The frame changed.
        """
        length = self._whole(position)
        if not length:
            raise OSError(errno.EIO, "the frame changed since it was read", str(self.path))
        return self._decoded(position, length)

    def _whole(self, position: int) -> int:
        """Return the message length of the frame at a position; 0 if it is not whole."""
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
        # Arrow raises these for malformed messages. Nothing is read from disk here.
        except (pa.ArrowException, OSError, EOFError) as error:
            raise UnreadableJournalError(f"{self.path} at byte {position}: {error}") from None

    def set_aside(self) -> None:
        """Rename it so that it is never read again, and close it."""
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(self.path.with_name(f"{self.path.name}.unreadable"))
        self.close()

    def delete(self) -> None:
        """Delete it after all of it is published."""
        # While it is locked, so that no process claims it.
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Close it. It stays on disk for the next process to claim."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _batch(message: bytes) -> pa.RecordBatch:
    batch = pa.ipc.read_record_batch(pa.py_buffer(message), SCHEMA)
    # Invalid text offsets would read out of bounds.
    batch.validate(full=True)
    for field, column in zip(SCHEMA, batch.columns, strict=True):
        if column.null_count and not field.nullable:
            raise pa.ArrowInvalid(f"rows without {field.name}")
    return batch


def _write(descriptor: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written
