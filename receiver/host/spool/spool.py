"""The segment log: append, read and commit pushes, within a bound on disk.

Owns the folder with its lock, the order of writes, and the bound. Knows no plugin, has no thread,
and writes no log. Callers log :class:`Recovery`, :class:`SpoolStatistics` and :class:`SpoolError`.

A segment file's name is the number of its first push. Numbers only grow. The cursor is the number
of the first push that is not known to be delivered. An opened spool begins a new segment, so that
it never appends to a file that a crash left behind.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import zstandard

from receiver.host.spool.cursor import load_cursor, save_cursor
from receiver.host.spool.frame import FILE_HEADER, MAX_PUSH_BYTES, Frame, encode_frames
from receiver.host.spool.lock import lock_folder
from receiver.host.spool.reader import SpoolReader
from receiver.host.spool.segment import Segment, SegmentWriter, find_files, scan, set_aside
from receiver.host.spool.values import Position, Recovery, Spooled, SpoolError, SpoolStatistics
from receiver.plugin import Push

# The most bytes of a frame before compression, enough for pushes to share repeated text.
_FRAME_BYTES: Final = 1 << 20
# A fully delivered segment that is still written is deleted from this size on.
_MIN_DELETE_BYTES: Final = 1 << 20
_MIN_SEGMENTS: Final = 4
# The cursor is saved after this many seconds, or commits.
_SAVE_EVERY_S: Final = 1.0
_SAVE_LAST_S: Final = 0.1
_SAVE_EVERY_COMMITS: Final = 256


class Spool:
    """A bounded log of pushes in a folder.

    One thread appends; one thread reads, rewinds and commits. Any thread may read
    :attr:`statistics`, which never waits.

    Args:
        path: The folder; the spool creates it if necessary.
        max_bytes: The most bytes of segment files, at least 4096.
        segment_bytes: Size at which a new segment begins, at most a quarter of ``max_bytes``. A
            single :meth:`append` may be larger.
    """

    def __init__(self, path: Path, *, max_bytes: int, segment_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._segment_bytes = min(segment_bytes, max_bytes // _MIN_SEGMENTS)
        self._compressor = zstandard.ZstdCompressor(level=1)
        # Held during a write, which may take long; always acquired before the other lock.
        self._writing = threading.Lock()
        # Protects everything below.
        self._lock = threading.Lock()
        self._folder_lock: int | None = None
        self._reset(0)

    @property
    def statistics(self) -> SpoolStatistics:
        """A consistent snapshot after the last change; never waits."""
        return self._statistics

    def open(self) -> Recovery:
        """Lock the folder and recover its contents.

        Raises:
            SpoolError: The disk fails, the system lacks files or memory, or another spool uses the
                folder.
        """
        with self._writing, self._lock:
            if self._folder_lock is not None:
                raise SpoolError(self._path, "the spool is open already")
            try:
                self._folder_lock = lock_folder(self._path)
                self._reset(load_cursor(self._path))
                self._recover()
                self._update()
            except SpoolError:
                self._release()
                raise
            except (OSError, MemoryError) as error:
                self._release()
                raise SpoolError.from_error(error, self._path) from error
            return Recovery(
                pushes=self._statistics.pushes,
                bytes=self._statistics.bytes,
                torn_bytes=self._torn_bytes,
                set_aside=tuple(self._set_aside),
                lost_pushes=self._statistics.lost_pushes,
            )

    def append(self, pushes: Sequence[Push]) -> Sequence[Push]:
        """Append pushes; they are on disk when the method returns.

        At the bound the oldest segments are deleted, and their undelivered pushes counted as
        dropped. So are new pushes that exceed the bound by themselves, or
        :data:`~receiver.host.spool.frame.MAX_PUSH_BYTES`.

        Returns:
            The new pushes that were dropped.

        Raises:
            SpoolError: The disk fails, or the spool is closed. Then none of the pushes is in the
                spool, and the caller may try again.
        """
        with self._writing:
            if self._folder_lock is None:
                raise SpoolError(self._path, "the spool is closed")
            fitting = [push for push in pushes if len(push.payload.data) <= MAX_PUSH_BYTES]
            dropped = [push for push in pushes if len(push.payload.data) > MAX_PUSH_BYTES]
            first = self._next
            frames = encode_frames(
                fitting,
                first=first,
                raw_bytes=min(_FRAME_BYTES, self._segment_bytes),
                compressor=self._compressor,
            )
            size = sum(len(frame.data) for frame in frames)
            while size + len(FILE_HEADER) > self._max_bytes:
                size -= len(frames.pop(0).data)
            try:
                if frames:
                    self._write(frames, size)
            except OSError as error:
                raise SpoolError.from_error(error, self._path) from error
            dropped += fitting[: frames[0].first - first if frames else None]
            with self._lock:
                self._dropped_full += len(dropped)
                self._update()
            return dropped

    def read(self, max_items: int, max_bytes: int) -> list[Spooled]:
        """Return the oldest pushes not read since :meth:`open` or :meth:`rewind`.

        Args:
            max_bytes: The most OTLP bytes, unless a single push is larger.

        Returns:
            The pushes, in order. None if all were read, the spool is closed, or the system lacks
            files or memory.
        """
        with self._lock:
            if self._folder_lock is None:
                return []
            batch = self._reader.read(max_items, max_bytes)
            self._update()
            return batch

    def rewind(self) -> None:
        """Read again from the first uncommitted push."""
        with self._lock:
            if self._folder_lock is not None:
                self._reader.rewind()
                self._update()

    def commit(self, position: Position) -> None:
        """Mark a push and all before it as delivered.

        Delivered segments are deleted. The cursor is saved after about a second or 256 commits, or
        after a tenth of a second if all pushes are delivered. A crash repeats the deliveries since
        then. If the disk fails, :attr:`SpoolStatistics.problem` has the error, and the next commit
        tries again. A closed spool ignores it.

        Raises:
            ValueError: No push has this position.
        """
        with self._lock:
            if self._folder_lock is None:
                return
            if not 0 <= position < self._next:
                raise ValueError(f"no push has the position {position}: the next one gets {self._next}")
            self._reader.commit(position + 1)
            self._unsaved_commits += 1
            self._delete_newest_if_delivered()
            # After the last push there may be no further commit for hours.
            every_s = _SAVE_LAST_S if position + 1 == self._next else _SAVE_EVERY_S
            if self._unsaved_commits >= _SAVE_EVERY_COMMITS or time.monotonic() - self._saved_at >= every_s:
                self._save()
            self._update()

    def check(self) -> None:
        """Check that the disk can be written, by saving the cursor.

        Raises:
            SpoolError: The disk fails, or the spool is closed.
        """
        with self._lock:
            if self._folder_lock is None:
                raise SpoolError(self._path, "the spool is closed")
            try:
                save_cursor(self._path, self._reader.committed)
            except OSError as error:
                raise SpoolError.from_error(error, self._path) from error

    def close(self) -> None:
        """Save the cursor and unlock the folder; waits for a running :meth:`append`."""
        with self._writing, self._lock:
            if self._folder_lock is None:
                return
            self._end_segment()
            self._save()
            self._update()
            self._release()

    def _reset(self, number: int) -> None:
        self._segments: deque[Segment] = deque()
        # Files that need no more reading, with their sizes; they are deleted first for room.
        self._unread_files: dict[Path, int] = {}
        self._reader = SpoolReader(self._segments, number)
        self._writer: SegmentWriter | None = None
        self._active: Segment | None = None
        self._next = number
        self._bytes = 0
        self._pushes = 0
        self._dropped_full = 0
        self._torn_bytes = 0
        self._set_aside: list[str] = []
        self._lost_pushes = 0
        self._written_bytes = 0
        self._problem: str | None = None
        self._saved_at = time.monotonic()
        self._unsaved_commits = 0
        self._update()

    def _recover(self) -> None:
        paths, set_aside_before = find_files(self._path)
        for path in set_aside_before:
            self._keep_until_full(path, path.stat().st_size)
        lost_from: int | None = None  # up to the next readable segment
        # Scan all files before changing any, so that a failed scan leaves them for the next
        # attempt.
        scanned = [(path, scan(path, newest=path is paths[-1])) for path in paths]
        for path, segment in scanned:
            if segment is None:
                self._set_aside.append(path.name)
                kept = set_aside(path)
                self._keep_until_full(kept, kept.stat().st_size)
                lost_from = int(path.stem) if lost_from is None else lost_from
                continue
            if lost_from is not None:
                self._lost_pushes += max(0, segment.first - max(lost_from, self._reader.committed))
            lost_from = segment.end if segment.damaged else None
            if segment.damaged:
                self._set_aside.append(path.name)
            elif segment.size < segment.file_bytes:
                os.truncate(path, segment.size)
                self._torn_bytes += segment.file_bytes - segment.size
                segment.file_bytes = segment.size
            if segment.end > segment.first:
                self._add(segment)
            elif segment.damaged:
                self._keep_until_full(set_aside(path), segment.file_bytes)
            else:
                path.unlink()
        self._make_room(0)

    def _add(self, segment: Segment) -> None:
        before = self._segments[-1] if self._segments else None
        if before is not None and before.end > segment.first:
            # Numbers overlap if a file that was unreadable at an earlier start is readable now.
            self._pushes -= before.end - segment.first
            before.end = segment.first
        self._segments.append(segment)
        self._pushes += segment.end - segment.first
        self._bytes += segment.file_bytes
        self._next = max(self._next, segment.end)

    def _write(self, frames: Sequence[Frame], size: int) -> None:
        """Append to the newest segment, or begin one; raises OSError."""
        segment = self._active
        with self._lock:
            if segment is not None and (
                segment.size + size > self._segment_bytes or segment.end != frames[0].first
            ):
                self._end_segment()
                segment = None
            self._make_room(size if segment else size + len(FILE_HEADER))
        path = self._path / f"{frames[0].first:020}.log"
        try:
            writer = self._writer = self._writer or SegmentWriter(path)
            file_bytes = writer.append([frame.data for frame in frames])
        except OSError:
            if self._writer is None or self._writer.closed:
                with self._lock:
                    # The name may exist already. The next open finds a write that could not be
                    # undone.
                    self._next = frames[-1].end
                    self._end_segment()
            raise
        with self._lock:
            if segment is None:
                segment = self._active = Segment(
                    path=path, first=frames[0].first, end=frames[0].first, size=0, file_bytes=0
                )
                self._segments.append(segment)
            self._bytes += file_bytes - segment.file_bytes
            self._pushes += frames[-1].end - segment.end
            self._written_bytes += file_bytes - segment.file_bytes
            segment.size = segment.file_bytes = file_bytes
            self._next = segment.end = frames[-1].end

    def _make_room(self, size: int) -> None:
        """Delete the oldest files until ``size`` more bytes fit; raises OSError."""
        while self._bytes + size > self._max_bytes:
            if self._unread_files:
                path = next(iter(self._unread_files))
                path.unlink(missing_ok=True)
                self._bytes -= self._unread_files.pop(path)
            else:
                segment = self._segments[0]
                segment.path.unlink(missing_ok=True)
                self._remove_oldest()
                self._bytes -= segment.file_bytes
                self._dropped_full += max(0, segment.end - max(segment.first, self._reader.committed))
                self._reader.commit(segment.end)

    def _remove_oldest(self) -> Segment:
        segment = self._segments.popleft()
        self._reader.forget(segment)
        self._pushes -= segment.end - segment.first
        return segment

    def _end_segment(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        self._active = None

    def _delete_newest_if_delivered(self) -> None:
        newest = self._active
        if (
            newest is not None
            and newest.end <= self._reader.committed
            and newest.size >= min(_MIN_DELETE_BYTES, self._segment_bytes)
            and self._writing.acquire(blocking=False)
        ):
            self._end_segment()
            self._writing.release()

    def _update(self) -> None:
        """Delete delivered segments, and update the statistics, after a change."""
        # This may read the disk, and find damage.
        oldest = self._reader.oldest_received_at_ns
        committed = self._reader.committed
        segments = self._segments
        while segments and segments[0].end <= committed and segments[0] is not self._active:
            self._delete(self._remove_oldest())
        self._statistics = SpoolStatistics(
            pushes=self._pushes - max(0, committed - segments[0].first) if segments else 0,
            bytes=self._bytes,
            max_bytes=self._max_bytes,
            dropped_full=self._dropped_full,
            torn_bytes=self._torn_bytes,
            set_aside_segments=len(self._set_aside) + self._reader.damaged_segments,
            lost_pushes=self._lost_pushes + self._reader.lost_pushes,
            oldest_received_at_ns=oldest,
            written_bytes=self._written_bytes,
            read_bytes=self._reader.read_bytes,
            problem=self._problem,
        )

    def _delete(self, segment: Segment) -> None:
        self._bytes -= segment.file_bytes
        try:
            if segment.damaged:
                self._keep_until_full(set_aside(segment.path), segment.file_bytes)
            else:
                segment.path.unlink(missing_ok=True)
        except OSError as error:
            self._problem = str(SpoolError.from_error(error, segment.path))
            self._keep_until_full(segment.path, segment.file_bytes)

    def _keep_until_full(self, path: Path, size: int) -> None:
        self._bytes += size - self._unread_files.pop(path, 0)
        self._unread_files[path] = size

    def _save(self) -> None:
        try:
            save_cursor(self._path, self._reader.committed)
            self._problem = None
        except OSError as error:
            self._problem = str(SpoolError.from_error(error, self._path))
        self._saved_at = time.monotonic()
        self._unsaved_commits = 0

    def _release(self) -> None:
        self._reader.close()
        if self._folder_lock is not None:
            os.close(self._folder_lock)
        self._folder_lock = None
