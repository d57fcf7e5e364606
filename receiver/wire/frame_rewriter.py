"""Walks over the frames of a byte stream and replaces watched frames.

A frame is an int32 length and that many bytes. This module checks lengths and buffers a watched
frame until it is complete. Which frames are watched is decided by the subclasses in
:mod:`receiver.wire.framing`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from struct import Struct
from typing import Final

from receiver.wire.errors import WireError
from receiver.wire.walk import Walk

#: Bytes of the length before each frame.
LENGTH_BYTES: Final = 4

#: Values of ``_skip``: all further bytes pass, or `rewrite` has to handle the next bytes.
_ENDLESS: Final = 1 << 62
NONE: Final = -1

_LENGTH = Struct(">i")

#: The frame length -1, at which a broker answers all earlier requests and then closes the
#: connection.
END_OF_REQUESTS: Final = b"\xff\xff\xff\xff"


class BrokenStreamError(WireError):
    """A malformed stream, of which no further byte passes.

    Attributes:
        before: The bytes to send for the frames before the malformed one.
    """

    def __init__(self, error: WireError, *, before: bytes) -> None:
        super().__init__(expected=error.expected, offset=error.offset, found=error.found)
        self.before = before


def frame(*parts: bytes) -> bytes:
    """Return the parts as one frame: their length (int32) and their bytes."""
    body = b"".join(parts)
    return _LENGTH.pack(len(body)) + body


def frame_start(beginning: bytes, rest: int) -> bytes:
    """Return the length (int32) and first bytes of a frame with ``rest`` more bytes."""
    return _LENGTH.pack(len(beginning) + rest) + beginning


def frame_in(held: bytearray) -> bytes:
    """Return a buffered frame without its length, copied only once."""
    with memoryview(held) as view:
        return bytes(view[LENGTH_BYTES:])


class FrameRewriter(Walk, ABC):
    """Rewrites one direction of a connection: replaces every watched frame.

    Args:
        replace: Called with a watched frame (without its length) and its announced length. Returns
            the bytes that go out in its place. The frame is cut to ``max_watched_bytes``, so it may
            be shorter than its announced length; its remaining bytes are dropped.
        max_frame_bytes: Longest frame that may be announced.
        max_watched_bytes: Most bytes to keep of a watched frame.

    Attributes:
        frames: Number of frames that have begun. A watched frame counts when ``replace`` is called.
    """

    __slots__ = (
        "_held",
        "_is_read",
        "_max_watched_bytes",
        "_over",
        "_passes",
        "_replace",
        "_swallow",
    )

    _HEAD_BYTES: int
    _LEAST_LENGTH: int

    def __init__(
        self, replace: Callable[[bytes, int], bytes], *, max_frame_bytes: int, max_watched_bytes: int
    ) -> None:
        self.frames = 0
        self.last_key = -1
        self.awaited = None
        self._every_key = False
        self._walks_requests = False
        self._seen = None
        self._replace = replace
        self._max_frame_bytes = max_frame_bytes
        self._max_watched_bytes = max_watched_bytes
        # An incomplete head or an incomplete watched frame. None otherwise, because most
        # connections are idle most of the time.
        self._held: bytearray | None = None
        self._skip = 0  # bytes still to pass of the current frame; NONE while bytes are held or dropped
        self._swallow = 0  # bytes still to drop of a watched frame
        self._is_read = False  # whether the current frame is replaced although it is not watched
        self._over = False  # whether frames are no longer watched
        self._passes = True  # whether bytes pass then

    @property
    def due(self) -> int:
        """Bytes still to come of the current frame; 0 between two frames."""
        if self._over:
            return 0
        if self._skip > 0 or self._swallow:
            return self._swallow or self._skip
        held = self._held
        if not held:
            return 0
        if len(held) < self._HEAD_BYTES:
            return self._HEAD_BYTES - len(held)
        length: int = _LENGTH.unpack_from(held)[0]
        return LENGTH_BYTES + length - len(held)

    @property
    def idle_bytes(self) -> int:
        """Bytes to come that cost little: the rest of a frame that passes or is kept."""
        return self._skip if self._skip > 0 else self.due

    @property
    def held(self) -> int:
        """Bytes that are buffered of an incomplete frame; 0 if it is not watched."""
        return len(self._held) if self._held is not None else 0

    def share(self, table: object) -> None:
        """Let C pass what needs nothing else than correlation ids.

        Args:
            table: The compiled ``PendingTable`` of the connection, of which :attr:`awaited` follows
                then.
        """
        self._table = table

    def stop_watching(self) -> None:
        """Pass all further bytes unchanged, without reading frames."""
        self._over = True
        self._skip = NONE if self._held else _ENDLESS

    def stop_passing(self) -> None:
        """Drop all further bytes."""
        self._over = True
        self._passes = False
        self._skip = NONE

    def end(self) -> None:
        """Forget an incomplete frame, because no further bytes come."""
        self._held = None
        self.stop_passing()

    def feed(self, chunk: memoryview) -> memoryview | bytes:
        """Take the next bytes and return the bytes to send.

        These are the chunk itself if no frame is watched. This is :meth:`passing` and
        :meth:`rewrite` together. Hot loops call the two directly.

        Raises:
            BrokenStreamError: A frame length is out of range, or a watched frame is malformed.
        """
        passed = self.passing(chunk)
        return chunk if passed == len(chunk) else self.rewrite(chunk, passed)

    @abstractmethod
    def passing(self, chunk: memoryview) -> int:
        """Return how many bytes at the beginning of the chunk pass unchanged.

        If these are not all, :meth:`rewrite` has to be called with the chunk and that number.
        """

    @abstractmethod
    def _watches(self, head: bytearray | memoryview, offset: int = 0) -> bool:
        """Return whether the frame with this head is watched."""

    def rewrite(self, chunk: memoryview, position: int) -> bytes:
        """Return the bytes to send for a chunk that passes unchanged to ``position``.

        Raises:
            BrokenStreamError: A frame length is out of range, or a watched frame is malformed.
        """
        out: list[memoryview | bytes] = [chunk[:position]]
        end = len(chunk)
        if self._over and self._passes and self._held is not None:
            # Watching has stopped while the head of a frame was incomplete.
            out = [bytes(self._held), chunk]
            self._held = None
            self._skip = _ENDLESS
            return b"".join(out)
        try:
            while position < end and not self._over:
                if self._swallow:
                    swallowed = min(self._swallow, end - position)
                    self._swallow -= swallowed
                    position += swallowed
                    if not self._swallow:
                        self._skip = 0
                        if self._held is not None:
                            out.append(self._deliver(self._held))
                else:
                    position = self._hold(chunk, position, out)
                passed = self.passing(chunk[position:])
                out.append(chunk[position : position + passed])
                position += passed
        except WireError as error:
            self.stop_passing()
            raise BrokenStreamError(error, before=b"".join(out)) from error
        return b"".join(out)

    def _hold(self, chunk: memoryview, position: int, out: list[memoryview | bytes]) -> int:
        """Buffer more of the current frame; pass or replace it when complete."""
        held = self._held
        if held is None:
            if len(chunk) - position >= self._HEAD_BYTES:
                length = self._check_length(chunk, position)
                after = position + LENGTH_BYTES + length
                if (
                    after <= len(chunk)
                    and length <= self._max_watched_bytes
                    and self._watches(chunk, position)
                ):
                    self._skip = 0
                    self.frames += 1
                    out.append(self._replace(bytes(chunk[position + LENGTH_BYTES : after]), length))
                    return after
            held = self._held = bytearray()
            self._skip = NONE
        if len(held) < self._HEAD_BYTES:
            size = min(self._HEAD_BYTES - len(held), len(chunk) - position)
            held += chunk[position : position + size]
            position += size
            if len(held) >= LENGTH_BYTES:
                self._check_length(held)
            if len(held) < self._HEAD_BYTES:
                return position
        length = self._check_length(held)
        if not self._watches(held):
            return self._pass(chunk, position, held, out)
        kept = LENGTH_BYTES + min(length, self._max_watched_bytes)
        size = max(0, min(kept - len(held), len(chunk) - position))
        held += chunk[position : position + size]
        position += size
        if len(held) >= kept:
            self._swallow = LENGTH_BYTES + length - len(held)
            if not self._swallow:
                out.append(self._deliver(held))
        return position

    def _pass(self, _chunk: memoryview, position: int, held: bytearray, out: list[memoryview | bytes]) -> int:
        """Pass the current frame, whose head is complete; return where its rest begins."""
        (length,) = _LENGTH.unpack_from(held)
        self.frames += 1
        out.append(bytes(held))
        self._held = None
        self._skip = LENGTH_BYTES + length - len(held)
        return position

    def _swallow_rest(self) -> None:
        """Drop the rest of the current frame, unless watching has stopped."""
        if self._skip > 0 and not self._over:
            self._swallow = self._skip
            self._skip = NONE

    def _deliver(self, held: bytearray) -> bytes:
        self._held = None
        self._skip = 0
        self._is_read = False
        self.frames += 1
        (length,) = _LENGTH.unpack_from(held)
        return self._replace(frame_in(held), length)

    def _check_length(self, head: bytearray | memoryview, offset: int = 0) -> int:
        length: int = _LENGTH.unpack_from(head, offset)[0]
        if not self._LEAST_LENGTH <= length <= self._max_frame_bytes:
            raise WireError(
                expected=f"a frame length from {self._LEAST_LENGTH} to {self._max_frame_bytes}",
                offset=0,
                found=str(length),
            )
        return length
