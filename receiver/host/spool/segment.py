"""Segment files: which there are, what is in them, and how a new one is written.

Owns names, the look through a file after a restart, and writes that leave nothing half-written behind. Does
not decide when a segment is begun, or goes.
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

__all__ = [
    "SHORTAGES",
    "Segment",
    "SegmentWriter",
    "find_files",
    "holds_segments",
    "scan",
    "set_aside",
    "sync_folder",
]

#: What the system lacks for a moment, which says nothing of a file.
SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
# Nor does a missing right, which somebody can grant.
_SAYS_NOTHING: Final = SHORTAGES | {errno.EACCES, errno.EPERM}
_SEGMENT: Final = re.compile(r"[0-9]{20}\.log", re.ASCII)
_SET_ASIDE: Final = re.compile(r"[0-9]{20}\.log\.corrupt", re.ASCII)
_NOT_ZERO: Final = re.compile(rb"[^\0]")
_CHUNK: Final = 1 << 16


@dataclass(slots=True, kw_only=True)
class Segment:
    """What is known of a segment file.

    Attributes:
        path: The file.
        first: The number of its first push, which is its name.
        end: The number after its last push's.
        size: Bytes up to the end of its last good frame.
        file_bytes: Bytes that it takes on disk.
        damaged: Whether something in it can't be read, so that it is set aside rather than deleted.
    """

    path: Path
    first: int
    end: int
    size: int
    file_bytes: int
    damaged: bool = False


def find_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return a folder's segment files, and those that were set aside, oldest first.

    Other files are somebody else's.

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
    """Whether a folder has segment files, so that pushes may be there; not when it can't be read."""
    try:
        segments, _ = find_files(folder)
    except OSError:
        return False
    return bool(segments)


def set_aside(path: Path) -> Path:
    """Rename a segment file to what it is called when nobody reads it any more, and return that.

    Raises:
        OSError: The disk refuses.
    """
    return path.replace(path.with_name(f"{path.name}.corrupt"))


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable.

    Raises:
        OSError: The disk refuses.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def scan(path: Path, *, newest: bool) -> Segment | None:
    """Look through a segment file, by its frames' headers.

    What a write that was interrupted left at the end is not part of :attr:`Segment.size`; whatever else is no
    frame makes the segment a damaged one, which ends before it.

    Args:
        path: The file.
        newest: Whether it is the last that was written: then its last frame's body is looked at as well,
            because a file may have grown before its content was written.

    Returns:
        What is in it; None when the disk can't read it, or it doesn't begin as this version's segments do.

    Raises:
        SpoolError: The system lacks files or memory, or forbids to read the file, which may be a good one.
    """
    try:
        return _look_through(path, newest=newest)
    except FrameError:
        return None
    except (OSError, MemoryError) as error:
        if isinstance(error, MemoryError) or error.errno in _SAYS_NOTHING:
            raise SpoolError.of(error, path) from error
        return None


def _look_through(path: Path, *, newest: bool) -> Segment:
    with path.open("rb") as file:
        file_bytes = os.fstat(file.fileno()).st_size
        first = int(path.stem)
        segment = Segment(path=path, first=first, end=first, size=0, file_bytes=file_bytes)
        start = file.read(len(FILE_HEADER))
        if start == FILE_HEADER:
            segment.size = len(FILE_HEADER)
            try:
                while _take_frame(file, segment, newest=newest):
                    pass
            except (FrameError, OSError) as error:
                if isinstance(error, OSError) and error.errno in _SAYS_NOTHING:
                    raise
                segment.damaged = True
        elif not FILE_HEADER.startswith(start) and not (newest and _is_zero(start, file)):
            raise FrameError("the file doesn't begin as a segment of this version does")
        return segment


def _take_frame(file: IO[bytes], segment: Segment, *, newest: bool) -> bool:
    data = file.read(HEADER_BYTES)
    if len(data) < HEADER_BYTES or (newest and _is_zero(data, file)):
        return False
    header = parse_header(data)
    end = segment.size + header.frame_bytes
    if header.first != segment.end:
        raise FrameError(f"the frame begins with push {header.first} instead of {segment.end}")
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
    """Makes a segment file and appends to it.

    Args:
        path: The file, which must not exist.

    Attributes:
        closed: Whether nothing more can be appended.

    Raises:
        OSError: The disk refuses.
    """

    def __init__(self, path: Path) -> None:
        self.closed = False
        self._path = path
        self._size = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def append(self, frames: Sequence[bytes]) -> int:
        """Put frames at the end; they are on disk when it returns.

        Returns:
            The file's size.

        Raises:
            OSError: The disk refuses. Nothing of the frames is left, unless the disk refuses that as well:
                then the file is closed, as is one of which nothing is left.
        """
        data = b"".join(frames if self._size else (FILE_HEADER, *frames))
        try:
            _write(self._descriptor, data, self._size)
            os.fdatasync(self._descriptor)
            if not os.fstat(self._descriptor).st_nlink:
                self.close()
                raise FileNotFoundError(errno.ENOENT, "somebody has deleted the file")
            if not self._size:
                sync_folder(self._path.parent)
        except OSError:
            self._undo()
            raise
        self._size += len(data)
        return self._size

    def close(self) -> None:
        """Append no more."""
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
