"""Reads a spool's segments in order, and tracks which pushes are committed.

Owns the position of the next push to read and of the first uncommitted push. Finds and marks
damage; deletes nothing. Not thread-safe: the spool holds its lock during every call.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass

from receiver.host.push_format import PushFormatError, decode_push
from receiver.host.spool.frame import (
    FILE_HEADER,
    HEADER_BYTES,
    FrameError,
    FrameHeader,
    parse_header,
    split_body,
)
from receiver.host.spool.segment import SHORTAGES, Segment
from receiver.host.spool.values import Position, Spooled


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """A frame that was read and is not fully committed."""

    segment: Segment
    offset: int
    header: FrameHeader


class SpoolReader:
    """The reading side of a spool.

    Args:
        segments: The segments, oldest first. The spool changes the deque.

    Attributes:
        committed: All pushes with a lower number are delivered or deleted.
    """

    def __init__(self, segments: deque[Segment], number: int) -> None:
        self._segments = segments
        self.committed = number
        self.read_bytes = 0
        self.lost_pushes = 0
        self.damaged_segments = 0
        self._number = number
        self._ahead: deque[Spooled] = deque()
        self._loaded: deque[_Loaded] = deque()
        self._segment: Segment | None = None
        self._descriptor: int | None = None
        self._offset = 0
        # Damage below this number is counted already; a rewind meets it again.
        self._counted_to = 0

    @property
    def oldest_received_at_ns(self) -> int | None:
        """The oldest receive time in the frame of the first uncommitted push."""
        if not self._loaded:
            self._load()
        return self._loaded[0].header.oldest_received_at_ns if self._loaded else None

    def read(self, max_items: int, max_bytes: int) -> list[Spooled]:
        """Return the next pushes; see :meth:`Spool.read`."""
        batch: list[Spooled] = []
        room = max_bytes
        while len(batch) < max_items and (self._ahead or self._load()):
            room -= len(self._ahead[0].push.payload.data)
            if batch and room < 0:
                break
            batch.append(self._ahead.popleft())
            self._number = batch[-1].position + 1
        return batch

    def rewind(self) -> None:
        """Go back to the first uncommitted push."""
        if self._loaded:
            self._go_to(self._loaded[0].segment, self._loaded[0].offset)
        self._ahead.clear()
        self._loaded.clear()
        self._number = self.committed

    def commit(self, number: int) -> None:
        """Mark everything below a number as delivered or deleted."""
        self.committed = max(self.committed, number)
        self._number = max(self._number, self.committed)
        while self._ahead and self._ahead[0].position < self._number:
            self._ahead.popleft()
        while self._loaded and self._loaded[0].header.end <= self.committed:
            self._loaded.popleft()
        if not self._loaded:
            # The pushes in between could not be read.
            self.committed = self._number

    def forget(self, segment: Segment) -> None:
        """Close the file of a deleted segment, because an open file keeps its disk space."""
        if segment is self._segment:
            self.close()

    def close(self) -> None:
        """Close the current file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
        self._segment = None

    def _load(self) -> bool:
        """Load the next frame with unread pushes; return False if there is none now."""
        while not self._ahead and (segment := self._segment_to_read()) is not None:
            offset = self._offset
            if offset >= segment.size:
                # The last push of the segment could not be read.
                self._skip_to(segment.end)
                continue
            # If the header is unreadable, skip the rest of the segment.
            self._offset, end = segment.size, segment.end
            try:
                header = parse_header(self._pread(segment, offset, HEADER_BYTES))
                self._offset, end = offset + header.frame_bytes, header.end
                if end <= self._number:
                    continue
                body = self._pread(segment, offset + HEADER_BYTES, header.body_bytes)
                self._decode(segment, header, split_body(header, body))
                if self._ahead:
                    self._loaded.append(_Loaded(segment=segment, offset=offset, header=header))
            except (FrameError, OSError, MemoryError) as error:
                if isinstance(error, MemoryError) or (
                    isinstance(error, OSError) and error.errno in SHORTAGES
                ):
                    self._ahead.clear()
                    self._offset = offset
                    return False
                self._count_lost(segment, self._number, end)
                self._skip_to(end)
        return bool(self._ahead)

    def _decode(self, segment: Segment, header: FrameHeader, records: list[memoryview]) -> None:
        for number, record in enumerate(records, header.first):
            if number < self._number:
                continue
            try:
                self._ahead.append(Spooled(position=Position(number), push=decode_push(record)))
            except PushFormatError:
                self._count_lost(segment, number, number + 1)
        if not self._ahead:
            self._skip_to(header.end)

    def _segment_to_read(self) -> Segment | None:
        current = self._segment
        if current is None or current.end <= self._number:
            current = next((segment for segment in self._segments if segment.end > self._number), None)
            if current is not None and current is not self._segment:
                self._go_to(current, len(FILE_HEADER))
        return current

    def _go_to(self, segment: Segment, offset: int) -> None:
        if segment is not self._segment:
            self.close()
        self._segment = segment
        self._offset = offset

    def _pread(self, segment: Segment, offset: int, size: int) -> bytes:
        if self._descriptor is None:
            self._descriptor = os.open(segment.path, os.O_RDONLY)
        data = os.pread(self._descriptor, size, offset)
        self.read_bytes += len(data)
        return data

    def _count_lost(self, segment: Segment, start: int, end: int) -> None:
        self.lost_pushes += max(0, end - max(start, self._counted_to))
        self._counted_to = max(self._counted_to, end)
        if not segment.damaged:
            segment.damaged = True
            self.damaged_segments += 1

    def _skip_to(self, number: int) -> None:
        self._number = max(self._number, number)
        if not self._loaded:
            self.committed = self._number
