"""Finds, scans and writes a spool's segment files.

Owns their names, the scan after a restart, and writes that leave nothing half-written behind. The
spool decides when a segment begins and when it is deleted.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from receiver.host.spool.frame import (
    FILE_HEADER,
    HEADER_BYTES,
    FrameError,
    FrameHeader,
    parse_header,
    split_body,
)
from receiver.host.spool.values import SpoolError

#: Temporary shortages of the system, which do not mean that a file is damaged.
SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
# Nor does a missing permission, which the operator can grant.
_NOT_DAMAGE: Final = SHORTAGES | {errno.EACCES, errno.EPERM}
_SEGMENT: Final = re.compile(r"[0-9]{20}\.log", re.ASCII)
_SET_ASIDE: Final = re.compile(r"[0-9]{20}\.log\.corrupt", re.ASCII)
_NOT_ZERO: Final = re.compile(rb"[^\0]")
_CHUNK: Final = 1 << 16


@dataclass(slots=True, kw_only=True)
class Segment:
    """A segment file."""

    path: Path
    first: int
    """The number of its first push, which is also its name."""
    end: int
    """The number of its last push plus one."""
    size: int
    """Bytes up to the end of its last valid frame."""
    file_bytes: int
    """Bytes on disk."""
    damaged: bool = False
    """Whether a part can't be read, so that the file is set aside instead of deleted."""


def find_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return a folder's segment files and those set aside, oldest first.

    Raises:
        OSError: The folder can't be read.
    """
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
    return (
        [folder / name for name in names if _SEGMENT.fullmatch(name)],
        [folder / name for name in names if _SET_ASIDE.fullmatch(name)],
    )


def holds_segments(folder: Path) -> bool:
    """Return whether a folder has segment files; False if it can't be read."""
    try:
        return bool(find_files(folder)[0])
    except OSError:
        return False


def set_aside(path: Path) -> Path:
    """Rename a segment file, so that no spool reads it, and return the new path.

    Raises:
        OSError: The disk fails.
    """
    return path.replace(path.with_name(f"{path.name}.corrupt"))


def sync_folder(folder: Path) -> None:
    """Make new file names in a folder durable; raise OSError if the disk fails."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def scan(path: Path, *, newest: bool) -> Segment | None:
    """Scan a segment file by the headers of its frames.

    :attr:`Segment.size` excludes the rest of an interrupted write at the end. Any other invalid
    frame makes the segment a damaged one, which ends before that frame. None if the disk can't read
    it, or it is not of this version.

    Args:
        newest: Whether it was written last. Then the scan also checks the body of its last frame,
            because a file may have grown before its content was written.

    Raises:
        SpoolError: The system lacks files or memory, or forbids to read the file, which may be
            intact.
    """
    try:
        return _scan(path, newest=newest)
    except FrameError:
        return None
    except (OSError, MemoryError) as error:
        if isinstance(error, MemoryError) or error.errno in _NOT_DAMAGE:
            raise SpoolError.from_error(error, path) from error
        return None


def _scan(path: Path, *, newest: bool) -> Segment:
    with path.open("rb") as file:
        file_bytes = os.fstat(file.fileno()).st_size
        first = int(path.stem)
        segment = Segment(path=path, first=first, end=first, size=0, file_bytes=file_bytes)
        start = file.read(len(FILE_HEADER))
        if start == FILE_HEADER:
            segment.size = len(FILE_HEADER)
            try:
                while _scan_frame(file, segment, newest=newest):
                    pass
            except (FrameError, OSError) as error:
                if isinstance(error, OSError) and error.errno in _NOT_DAMAGE:
                    raise
                segment.damaged = True
        elif not FILE_HEADER.startswith(start) and not (newest and _is_zero(start, file)):
            raise FrameError("the file has no header of this version")
        return segment


def _scan_frame(file: IO[bytes], segment: Segment, *, newest: bool) -> bool:
    data = file.read(HEADER_BYTES)
    if len(data) < HEADER_BYTES or (newest and _is_zero(data, file)):
        return False
    header = parse_header(data)
    end = segment.size + header.frame_bytes
    if header.first != segment.end:
        raise FrameError(f"the frame begins with push {header.first}: expected {segment.end}")
    if end > segment.file_bytes or (
        newest and end == segment.file_bytes and not _is_whole(header, file.read(header.body_bytes))
    ):
        return False
    file.seek(end)
    segment.size = end
    segment.end = header.end
    return True


def _is_zero(start: bytes, rest: IO[bytes]) -> bool:
    chunk = start
    while chunk and not _NOT_ZERO.search(chunk):
        chunk = rest.read(_CHUNK)
    return not chunk


def _is_whole(header: FrameHeader, body: bytes) -> bool:
    try:
        split_body(header, body)
    except FrameError:
        return False
    return True


class SegmentWriter:
    """Creates a segment file and appends to it.

    Args:
        path: The file, which must not exist.

    Raises:
        OSError: The disk fails.
    """

    def __init__(self, path: Path) -> None:
        self.closed = False
        self._path = path
        self._size = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def append(self, frames: Sequence[bytes]) -> int:
        """Append frames durably; return the file's size.

        Raises:
            OSError: The disk fails. The frames are removed again. If that fails too, or the file is
                empty then, it is closed.
        """
        data = b"".join(frames if self._size else (FILE_HEADER, *frames))
        try:
            _write(self._descriptor, data, self._size)
            os.fdatasync(self._descriptor)
            if not os.fstat(self._descriptor).st_nlink:
                self.close()
                raise FileNotFoundError(errno.ENOENT, "another process has deleted the file")
            if not self._size:
                sync_folder(self._path.parent)
        except OSError:
            self._undo()
            raise
        self._size += len(data)
        return self._size

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            os.close(self._descriptor)
        self.closed = True

    def _undo(self) -> None:
        if self.closed:
            return
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError:
            self.close()
        if not self._size:
            self.close()
            with suppress(OSError):
                self._path.unlink()


def _write(descriptor: int, data: bytes, at: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(descriptor, left, at)
        at += written
        left = left[written:]
