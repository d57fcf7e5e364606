"""The segment log: what is appended, read, committed, and goes at the bound.

Owns the folder with its lock, the order of writes, and the bound. Knows no plugin; has no thread; writes no
log: what a caller should say is in :class:`Recovery`, :class:`SpoolStatistics` and :class:`SpoolError`.

A segment file's name is the number of its first push. Numbers only grow; the cursor is the number of the
first push that is not known to be delivered. A spool that is opened begins a new segment, so that nothing is
ever appended to what a crash left.
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

__all__ = ["Spool"]

# Of this many bytes at once a frame is made: enough for pushes to share what they repeat.
_FRAME_BYTES: Final = 1 << 20
# The segment that is written is deleted at this size once it is delivered; below, that is not worth the work.
_WORTH_DELETING: Final = 1 << 20
_SEGMENTS: Final = 4
_SAVE_EVERY_S: Final = 1.0
_SAVE_AT_THE_END_S: Final = 0.1
_SAVE_EVERY: Final = 256


class Spool:
    """A bounded log of pushes in a folder.

    One thread appends, one reads, rewinds and commits; any may ask for :attr:`statistics`, which never waits.

    Args:
        path: The folder; it is made when it is not there.
        max_bytes: Most bytes of segment files, at least 4096.
        segment_bytes: Size at which a segment is ended and the next begun; a quarter of ``max_bytes`` when
            that is less. A single :meth:`append` may be larger.
    """

    def __init__(self, path: Path, *, max_bytes: int, segment_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._segment_bytes = min(segment_bytes, max_bytes // _SEGMENTS)
        self._compressor = zstandard.ZstdCompressor(level=1)
        # Held while something is written, which may take long; always taken before the other.
        self._writing = threading.Lock()
        # Held for everything below.
        self._lock = threading.Lock()
        self._folder_lock: int | None = None
        self._reset(0)

    @property
    def statistics(self) -> SpoolStatistics:
        """One consistent look, as of the last call that changed something; never waits."""
        return self._statistics

    def open(self) -> Recovery:
        """Take the folder, and find what is in it.

        Returns:
            What was found, and what of it is damaged.

        Raises:
            SpoolError: The disk refuses, the system lacks files or memory, or another spool has the folder.
        """
        with self._writing, self._lock:
            if self._folder_lock is not None:
                raise SpoolError(self._path, "the spool is open already")
            try:
                self._folder_lock = lock_folder(self._path)
                self._reset(load_cursor(self._path))
                self._recover()
                self._settle()
            except SpoolError:
                self._release()
                raise
            except (OSError, MemoryError) as error:
                self._release()
                raise SpoolError.of(error, self._path) from error
            return Recovery(
                pushes=self._statistics.pushes,
                bytes=self._statistics.bytes,
                torn_bytes=self._torn_bytes,
                set_aside=tuple(self._set_aside),
                lost_pushes=self._statistics.lost_pushes,
            )

    def append(self, pushes: Sequence[Push]) -> None:
        """Put pushes at the end; they are on disk when it returns.

        The oldest segments make room at the bound, counted. So goes what of these pushes is alone over the
        bound, or over :data:`~receiver.host.spool.frame.MAX_PUSH_BYTES`.

        Raises:
            SpoolError: The disk refuses, or the spool is closed. None of the pushes is in the spool; more can
                be appended once the disk has room again.
        """
        with self._writing:
            if self._folder_lock is None:
                raise SpoolError(self._path, "the spool is closed")
            frames = encode_frames(
                [push for push in pushes if len(push.payload.data) <= MAX_PUSH_BYTES],
                first=self._next,
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
                raise SpoolError.of(error, self._path) from error
            with self._lock:
                self._dropped_full += len(pushes) - sum(frame.end - frame.first for frame in frames)
                self._settle()

    def read(self, max_items: int, max_bytes: int) -> list[Spooled]:
        """Return the oldest pushes that were not read since :meth:`open` or :meth:`rewind`, in order.

        Args:
            max_items: Most pushes.
            max_bytes: Most OTLP bytes of them together, unless a single push is larger.

        Returns:
            The pushes; none when there is none, the spool is closed, or the system lacks files or memory.
        """
        with self._lock:
            if self._folder_lock is None:
                return []
            taken = self._reader.read(max_items, max_bytes)
            self._settle()
            return taken

    def rewind(self) -> None:
        """Read again from the first push that is not committed."""
        with self._lock:
            if self._folder_lock is not None:
                self._reader.rewind()
                self._settle()

    def commit(self, position: Position) -> None:
        """Take everything up to a push, and that push, for delivered.

        Segments that are delivered are deleted. The cursor follows within about a second, or 256 commits, or
        a tenth of a second where everything is delivered: what was delivered since comes again after a crash.
        What the disk refuses of this is told by :attr:`SpoolStatistics.problem` and tried again. A closed
        spool ignores it.

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
            # Behind the last push nobody commits any more, perhaps for hours.
            every_s = _SAVE_AT_THE_END_S if position + 1 == self._next else _SAVE_EVERY_S
            if self._unsaved_commits >= _SAVE_EVERY or time.monotonic() - self._saved_at >= every_s:
                self._save()
            self._settle()

    def check(self) -> None:
        """Find out whether the disk takes anything, which the cursor is written for.

        Raises:
            SpoolError: It refuses, or the spool is closed.
        """
        with self._lock:
            if self._folder_lock is None:
                raise SpoolError(self._path, "the spool is closed")
            try:
                save_cursor(self._path, self._reader.committed)
            except OSError as error:
                raise SpoolError.of(error, self._path) from error

    def close(self) -> None:
        """Write the cursor and give the folder back; waits for an :meth:`append` that is under way."""
        with self._writing, self._lock:
            if self._folder_lock is None:
                return
            self._end_segment()
            self._save()
            self._settle()
            self._release()

    def _reset(self, number: int) -> None:
        self._segments: deque[Segment] = deque()
        # Files of which nothing is to be read any more, with their sizes: the first to go for room.
        self._leftovers: dict[Path, int] = {}
        self._reader = SpoolReader(self._segments, number)
        self._writer: SegmentWriter | None = None
        self._active: Segment | None = None
        self._next = number
        self._bytes = 0
        self._held = 0
        self._dropped_full = 0
        self._torn_bytes = 0
        self._set_aside: list[str] = []
        self._lost_pushes = 0
        self._written_bytes = 0
        self._problem: str | None = None
        self._saved_at = time.monotonic()
        self._unsaved_commits = 0
        self._settle()

    def _recover(self) -> None:
        paths, set_aside_before = find_files(self._path)
        for path in set_aside_before:
            self._keep_for_now(path, path.stat().st_size)
        lost_from: int | None = None  # up to the next segment that can be read
        # All before anything is changed: what can't be read for now must be found as it was the next time.
        scanned = [(path, scan(path, newest=path is paths[-1])) for path in paths]
        for path, segment in scanned:
            if segment is None:
                self._set_aside.append(path.name)
                kept = set_aside(path)
                self._keep_for_now(kept, kept.stat().st_size)
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
                self._keep_for_now(set_aside(path), segment.file_bytes)
            else:
                path.unlink()
        self._make_room(0)

    def _add(self, segment: Segment) -> None:
        before = self._segments[-1] if self._segments else None
        if before is not None and before.end > segment.first:
            # Numbers were given twice, as what could not be read once can be read now.
            self._held -= before.end - segment.first
            before.end = segment.first
        self._segments.append(segment)
        self._held += segment.end - segment.first
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
                    # The name may be taken, and what could not be undone is found by the next open.
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
            self._held += frames[-1].end - segment.end
            self._written_bytes += file_bytes - segment.file_bytes
            segment.size = segment.file_bytes = file_bytes
            self._next = segment.end = frames[-1].end

    def _make_room(self, size: int) -> None:
        """Delete the oldest files until so many bytes more are within the bound; raises OSError."""
        while self._bytes + size > self._max_bytes:
            if self._leftovers:
                path = next(iter(self._leftovers))
                path.unlink(missing_ok=True)
                self._bytes -= self._leftovers.pop(path)
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
        self._held -= segment.end - segment.first
        return segment

    def _end_segment(self) -> None:
        """Append no more to the newest segment."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        self._active = None

    def _delete_newest_if_delivered(self) -> None:
        newest = self._active
        if (
            newest is not None
            and newest.end <= self._reader.committed
            and newest.size >= min(_WORTH_DELETING, self._segment_bytes)
            and self._writing.acquire(blocking=False)
        ):
            self._end_segment()
            self._writing.release()

    def _settle(self) -> None:
        """Take the consequences of what changed: delivered segments go, and the numbers follow."""
        # This may read, and find damage.
        oldest = self._reader.oldest_received_at_ns
        committed = self._reader.committed
        segments = self._segments
        while segments and segments[0].end <= committed and segments[0] is not self._active:
            self._delete(self._remove_oldest())
        self._statistics = SpoolStatistics(
            pushes=self._held - max(0, committed - segments[0].first) if segments else 0,
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
                self._keep_for_now(set_aside(segment.path), segment.file_bytes)
            else:
                segment.path.unlink(missing_ok=True)
        except OSError as error:
            self._problem = str(SpoolError.of(error, segment.path))
            self._keep_for_now(segment.path, segment.file_bytes)

    def _keep_for_now(self, path: Path, size: int) -> None:
        self._bytes += size - self._leftovers.pop(path, 0)
        self._leftovers[path] = size

    def _save(self) -> None:
        try:
            save_cursor(self._path, self._reader.committed)
            self._problem = None
        except OSError as error:
            self._problem = str(SpoolError.of(error, self._path))
        self._saved_at = time.monotonic()
        self._unsaved_commits = 0

    def _release(self) -> None:
        self._reader.close()
        if self._folder_lock is not None:
            os.close(self._folder_lock)
        self._folder_lock = None
