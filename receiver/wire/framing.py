"""Frames: where requests and responses begin and end in a stream of bytes.

Owns what is watched in each direction of a connection, and nothing of what a frame says beyond the few bytes
that decide it, and where a request's header ends. It is the path that every byte of every client takes, so it
makes no object for a frame that nobody watches: a chunk of such frames goes out as the very memory it came
in.

A request begins with its API key (int16), a response with its correlation id (int32). The walk that they
share, in :mod:`receiver.wire.frame_rewriter`, can be had from here too.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from struct import Struct
from typing import Final

from receiver.wire.errors import WireError
from receiver.wire.frame_rewriter import (
    END_OF_REQUESTS,
    LENGTH_BYTES,
    BrokenStreamError,
    FrameRewriter,
    frame,
    frame_in,
    frame_start,
)
from receiver.wire.headers import request_header_size, request_header_version

__all__ = [
    "END_OF_REQUESTS",
    "LENGTH_BYTES",
    "BrokenStreamError",
    "FrameRewriter",
    "RequestRewriter",
    "ResponseRewriter",
    "frame",
    "frame_start",
]

#: The shortest request: API key, API version, correlation id (request header v0).
_LEAST_REQUEST: Final = 8

#: The shortest response: a correlation id (response header v0).
_LEAST_RESPONSE: Final = 4

#: The longest request header: a client id has at most 32,767 bytes, and of tagged fields Kafka has none.
_MAX_HEADER: Final = 65_536

#: All that an int16 can be.
_EVERY_KEY: Final = range(-(1 << 15), 1 << 15)

_LENGTH = Struct(">i")
_REQUEST_HEAD = Struct(">ih")
_RESPONSE_HEAD = Struct(">ii")
_KEY_AND_VERSION = Struct(">hh")

# Bound once: a look-up of the attribute for every frame costs as much as the comparison after it.
_unpack_length = _LENGTH.unpack_from
_unpack_request_head = _REQUEST_HEAD.unpack_from
_unpack_response_head = _RESPONSE_HEAD.unpack_from


def _unchanged(head: bytes, length: int) -> tuple[bytes, bool]:
    return frame_start(head, length - len(head)), True


class RequestRewriter(FrameRewriter):
    """Requests from a client; those with a watched API key are replaced.

    Args:
        replace: See the base.
        replace_head: Called, while :attr:`every` is set, with the header of a request that is not watched and
            the length that its frame announced. Returns what goes out in the header's place, which begins
            with a length (see :func:`frame_start`), and whether the rest of the frame follows it as it is;
            if not, the rest is swallowed, and what goes out in its place is whole frames or nothing.
        header_version: Tells the request header version by API key and version; of a request that it does not
            know, 1, and the header is then taken to end after the client id.
        watched: The API keys that are watched.
        max_frame_bytes: See the base.
        max_watched_bytes: See the base.
    """

    __slots__ = ("_header_bytes", "_header_version", "_replace_head", "_stops_at", "_watched")

    _HEAD_BYTES = _REQUEST_HEAD.size
    _LEAST_LENGTH = _LEAST_REQUEST

    def __init__(
        self,
        replace: Callable[[bytes, int], bytes],
        *,
        replace_head: Callable[[bytes, int], tuple[bytes, bool]] = _unchanged,
        header_version: Callable[[int, int], int] = request_header_version,
        watched: frozenset[int],
        max_frame_bytes: int,
        max_watched_bytes: int,
    ) -> None:
        super().__init__(replace, max_frame_bytes=max_frame_bytes, max_watched_bytes=max_watched_bytes)
        self._watched = watched
        self._stops_at: Container[int] = watched  # the keys of frames that do not just pass
        self._replace_head = replace_head
        self._header_version = header_version
        self._header_bytes = _LEAST_REQUEST  # the least that the header at hand has

    @property
    def every(self) -> bool:
        """Whether each request's header is looked at; when set, from the next frame on."""
        return self._stops_at is _EVERY_KEY

    @every.setter
    def every(self, value: bool) -> None:
        self._stops_at = _EVERY_KEY if value else self._watched

    def passing(self, chunk: memoryview) -> int:
        """See the base; one comparison for each frame."""
        position = self._skip
        if position < 0:
            return 0
        end = len(chunk)
        last = end - 6
        if position <= last:
            stops_at = self._stops_at
            longest = self._max_frame_bytes
            frames = self.frames
            while position <= last:
                length, api_key = _unpack_request_head(chunk, position)
                if api_key in stops_at or length > longest or length < 8:
                    break
                position += length + 4
                frames += 1
            self.frames = frames
        if position >= end:
            self._skip = position - end
            return end
        self._skip = 0
        return position

    def _watches(self, head: bytearray | memoryview, offset: int = 0) -> bool:
        return _REQUEST_HEAD.unpack_from(head, offset)[1] in self._watched

    def _pass(self, chunk: memoryview, position: int, held: bytearray, out: list[memoryview | bytes]) -> int:
        """See the base; with every request looked at, once its header is whole."""
        if self._stops_at is self._watched:
            self._header_bytes = _LEAST_REQUEST
            return super()._pass(chunk, position, held, out)
        (length,) = _unpack_length(held)
        while (missing := LENGTH_BYTES + self._header_bytes - len(held)) > 0:
            held += chunk[position : position + missing]
            if position + missing > len(chunk):
                return len(chunk)
            position += missing
            self._header_bytes = self._check_header(frame_in(held), length)
        self._header_bytes = _LEAST_REQUEST
        self._held = None
        self._skip = LENGTH_BYTES + length - len(held)
        self.frames += 1
        replacement, passes = self._replace_head(frame_in(held), length)
        out.append(replacement)
        if not passes:
            self._swallow_rest()
        return position

    def _check_header(self, beginning: bytes, length: int) -> int:
        api_key, api_version = _KEY_AND_VERSION.unpack_from(beginning)
        size = request_header_size(beginning, self._header_version(api_key, api_version))
        most = min(length, _MAX_HEADER)
        if size > most:
            raise WireError(
                expected=f"a request header of at most {most} bytes", offset=0, found=f"{size} or more"
            )
        return size


class ResponseRewriter(FrameRewriter):
    """Responses from a broker; the one with the awaited correlation id is replaced.

    Args:
        replace: See the base.
        replace_correlation_id: Called at the beginning of a watched response that is longer than
            :attr:`replaces_up_to`; returns the correlation id with which it passes, as it is otherwise.
        max_frame_bytes: See the base.
        max_watched_bytes: See the base.

    Attributes:
        awaited: Correlation id of the next response that is watched; None while none is.
        replaces_up_to: The longest that this response may be to be replaced.
    """

    __slots__ = ("_replace_correlation_id", "awaited", "replaces_up_to")

    _HEAD_BYTES = _RESPONSE_HEAD.size
    _LEAST_LENGTH = _LEAST_RESPONSE

    def __init__(
        self,
        replace: Callable[[bytes, int], bytes],
        *,
        replace_correlation_id: Callable[[], int] = int,
        max_frame_bytes: int,
        max_watched_bytes: int,
    ) -> None:
        super().__init__(replace, max_frame_bytes=max_frame_bytes, max_watched_bytes=max_watched_bytes)
        self._replace_correlation_id = replace_correlation_id
        self.awaited: int | None = None
        self.replaces_up_to = max_frame_bytes

    def passing(self, chunk: memoryview) -> int:
        """See the base; lengths alone while no response is awaited."""
        position = self._skip
        if position < 0:
            return 0
        end = len(chunk)
        last = end - 8
        if position <= last:
            awaited = self.awaited
            frames = self.frames
            if awaited is None:
                while position <= last:
                    (length,) = _unpack_length(chunk, position)
                    if length < 4:
                        break
                    position += length + 4
                    frames += 1
            else:
                while position <= last:
                    length, correlation_id = _unpack_response_head(chunk, position)
                    if correlation_id == awaited or length < 4:
                        break
                    position += length + 4
                    frames += 1
            self.frames = frames
        if position >= end:
            self._skip = position - end
            return end
        self._skip = 0
        return position

    def _watches(self, head: bytearray | memoryview, offset: int = 0) -> bool:
        length, correlation_id = _unpack_response_head(head, offset)
        return bool(correlation_id == self.awaited and length <= self.replaces_up_to)

    def _pass(self, chunk: memoryview, position: int, held: bytearray, out: list[memoryview | bytes]) -> int:
        """See the base; what is too long to be replaced passes with another correlation id."""
        length, correlation_id = _unpack_response_head(held)
        position = super()._pass(chunk, position, held, out)
        if correlation_id == self.awaited:
            out[-1] = _RESPONSE_HEAD.pack(length, self._replace_correlation_id())
        return position
