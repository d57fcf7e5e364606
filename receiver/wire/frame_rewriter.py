"""The walk over the frames of a stream, whichever the direction.

A frame is an int32 length and as many bytes. This module owns their lengths, and what is kept of a frame
until it can be replaced. It must not know what is in one: which frames pass is the directions' to say, in
:mod:`receiver.wire.framing`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from struct import Struct
from typing import Final

from receiver.wire.errors import WireError

__all__ = [
    "END_OF_REQUESTS",
    "LENGTH_BYTES",
    "BrokenStreamError",
    "FrameRewriter",
    "frame",
    "frame_in",
    "frame_start",
]

#: Bytes of the length before each frame.
LENGTH_BYTES: Final = 4

#: Of ``_skip``: everything passes from here on, or nothing of what comes next does.
_ENDLESS: Final = 1 << 62
_NONE: Final = -1

_LENGTH = Struct(">i")

#: What no broker reads on from: the length -1. It answers what came before, and closes.
END_OF_REQUESTS: Final = b"\xff\xff\xff\xff"


class BrokenStreamError(WireError):
    """A stream that can't be read on from; nothing of it passes any more.

    Attributes:
        before: What goes out of the frames in front of the broken one.
    """

    def __init__(self, error: WireError, *, before: bytes) -> None:
        super().__init__(expected=error.expected, offset=error.offset, found=error.found)
        self.before = before


def frame(*parts: bytes) -> bytes:
    """Return the parts as one frame: their length (int32) and their bytes."""
    body = b"".join(parts)
    return _LENGTH.pack(len(body)) + body


def frame_start(beginning: bytes, rest: int) -> bytes:
    """Return the beginning of a frame: its length (int32) and its first bytes, with so many to follow."""
    return _LENGTH.pack(len(beginning) + rest) + beginning


def frame_in(held: bytearray) -> bytes:
    """Return what is there of a frame without its length, copied once: it may be a push of a megabyte."""
    with memoryview(held) as view:
        return bytes(view[LENGTH_BYTES:])


class FrameRewriter(ABC):
    """One direction of a connection, with every watched frame replaced.

    Args:
        replace: Called with a watched frame (without its length) and the length it announced; returns
            the bytes that go out in its place. The frame is cut to ``max_watched_bytes``: where it is
            shorter than its length, the rest was swallowed.
        max_frame_bytes: Longest frame that may be announced.
        max_watched_bytes: Most that is kept of a watched frame.

    Attributes:
        frames: How many frames have begun; a watched one counts from when it is handed over.
    """

    __slots__ = (
        "_held",
        "_max_frame_bytes",
        "_max_watched_bytes",
        "_over",
        "_passes",
        "_replace",
        "_skip",
        "_swallow",
        "frames",
    )

    _HEAD_BYTES: int
    _LEAST_LENGTH: int

    def __init__(
        self, replace: Callable[[bytes, int], bytes], *, max_frame_bytes: int, max_watched_bytes: int
    ) -> None:
        self.frames = 0
        self._replace = replace
        self._max_frame_bytes = max_frame_bytes
        self._max_watched_bytes = max_watched_bytes
        # An incomplete head, or a watched frame that is still arriving; made only when there is one, as
        # most connections are idle most of the time.
        self._held: bytearray | None = None
        self._skip = 0  # bytes to come of a frame that passes; _NONE while what comes does not just pass
        self._swallow = 0  # bytes to come of a watched frame that are not kept
        self._over = False  # whether the rest of the stream is looked at no more
        self._passes = True  # and what becomes of it then

    @property
    def due(self) -> int:
        """How many more bytes can be taken without beginning another frame; 0 between two frames."""
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
    def held(self) -> int:
        """How many bytes are kept of a frame that is not whole yet; 0 while nobody watches it."""
        return len(self._held) if self._held is not None else 0

    def stop_watching(self) -> None:
        """Let everything from here on pass as it is, without a look at its frames."""
        self._over = True
        self._skip = _NONE if self._held else _ENDLESS

    def stop_passing(self) -> None:
        """Let nothing from here on pass."""
        self._over = True
        self._passes = False
        self._skip = _NONE

    def feed(self, chunk: memoryview) -> memoryview | bytes:
        """Take what arrived and return what goes out: the chunk itself where nobody watches any of it.

        This is :meth:`passing` and :meth:`rewrite` together; a hot loop calls them itself.

        Raises:
            BrokenStreamError: A length that no frame can have, or a watched frame that can't be read.
        """
        passed = self.passing(chunk)
        return chunk if passed == len(chunk) else self.rewrite(chunk, passed)

    @abstractmethod
    def passing(self, chunk: memoryview) -> int:
        """Take the beginning of what arrived and return how many bytes of it go out as they are.

        Where that is less than all, :meth:`rewrite` has to take the rest.
        """

    @abstractmethod
    def _watches(self, head: bytearray | memoryview, offset: int = 0) -> bool:
        """Whether the frame with this head is watched."""

    def rewrite(self, chunk: memoryview, position: int) -> bytes:
        """Take the rest of a chunk of which the bytes before ``position`` pass; return what goes out of all.

        Raises:
            BrokenStreamError: A length that no frame can have, or a watched frame that can't be read.
        """
        out: list[memoryview | bytes] = [chunk[:position]]
        end = len(chunk)
        if self._over and self._passes and self._held is not None:
            # Nobody watches any more, and the head of a frame was still waiting for its rest.
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
        """Take more of the frame at hand; hand it on once its kind (or, if watched, its whole) is there."""
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
            self._skip = _NONE
        if len(held) < self._HEAD_BYTES:
            taken = min(self._HEAD_BYTES - len(held), len(chunk) - position)
            held += chunk[position : position + taken]
            position += taken
            if len(held) >= LENGTH_BYTES:
                self._check_length(held)
            if len(held) < self._HEAD_BYTES:
                return position
        length = self._check_length(held)
        if not self._watches(held):
            return self._pass(chunk, position, held, out)
        kept = LENGTH_BYTES + min(length, self._max_watched_bytes)
        taken = max(0, min(kept - len(held), len(chunk) - position))
        held += chunk[position : position + taken]
        position += taken
        if len(held) >= kept:
            self._swallow = LENGTH_BYTES + length - len(held)
            if not self._swallow:
                out.append(self._deliver(held))
        return position

    def _pass(self, _chunk: memoryview, position: int, held: bytearray, out: list[memoryview | bytes]) -> int:
        """Let the frame at hand pass, of which at least the head is there; return where its rest begins."""
        (length,) = _LENGTH.unpack_from(held)
        self.frames += 1
        out.append(bytes(held))
        self._held = None
        self._skip = LENGTH_BYTES + length - len(held)
        return position

    def _swallow_rest(self) -> None:
        """Let nothing more of the frame at hand pass, unless the rest of the stream was decided about."""
        if self._skip > 0 and not self._over:
            self._swallow = self._skip
            self._skip = _NONE

    def _deliver(self, held: bytearray) -> bytes:
        self._held = None
        self._skip = 0
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
