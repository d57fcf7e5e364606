"""Finds the watched requests and responses in a byte stream and replaces them.

Requests are watched by API key (int16, at the start of a request) and responses by correlation id
(int32, at the start of a response). Nothing else of a frame is read, except where a request's
header ends.

Every byte of every client takes this path, so no object is created for an unwatched frame: a chunk
of unwatched frames goes out as the memory it came in. The code that both directions share is in
:mod:`receiver.wire.frame_rewriter`, and its names can be imported from here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from types import MappingProxyType
from typing import Final

from receiver.wire.errors import WireError
from receiver.wire.frame_rewriter import (
    LENGTH_BYTES,
    NONE,
    FrameRewriter,
    frame_in,
    frame_start,
)
from receiver.wire.headers import request_header_size, request_header_version
from receiver.wire.seen_versions import note_version
from receiver.wire.walk import walk_requests, walk_responses

#: The shortest request: API key, API version, correlation id (request header v0).
_LEAST_REQUEST: Final = 8

#: The shortest response: a correlation id (response header v0).
_LEAST_RESPONSE: Final = 4

#: The longest request header. A client id has at most 32,767 bytes, and Kafka has no tagged fields
#: here.
_MAX_HEADER: Final = 65_536

_NO_LIMITS: Final[Mapping[int, int]] = MappingProxyType({})

_LENGTH = Struct(">i")
_REQUEST_HEAD = Struct(">ihh")
_RESPONSE_HEAD = Struct(">ii")
_KEY_AND_VERSION = Struct(">hh")

# Bound once, because an attribute lookup for every frame costs as much as the comparison after it.
_unpack_length = _LENGTH.unpack_from
_unpack_response_head = _RESPONSE_HEAD.unpack_from


def _unchanged(head: bytes, length: int) -> tuple[bytes, bool]:
    return frame_start(head, length - len(head)), True


class RequestRewriter(FrameRewriter):
    """Rewrites requests from a client: replaces those with a watched API key.

    Args:
        replace: See the base class.
        replace_head: Called, while :attr:`reads_all_headers` is set, for each unwatched request
            with its header and the length of its frame. Returns the bytes that replace the header,
            and whether the rest of the frame follows them. If it follows, the bytes begin with a
            length (:func:`frame_start`). If not, the bytes are whole frames or nothing, and the
            rest is dropped. None: the frame is given to ``replace``, as if it were watched.
        header_version: Returns the request header version for an API key and version. For an
            unknown request it returns 1, and the header is then assumed to end after the client id.
        longest_watched: The longest request that is watched, by API key; a longer one passes.
            Other requests of watched keys are watched whatever their length.
        max_frame_bytes: See the base class.
        max_watched_bytes: See the base class.
    """

    __slots__ = (
        "_header_bytes",
        "_header_version",
        "_longest_watched",
        "_replace_head",
        "_watched_keys",
    )

    _HEAD_BYTES = _REQUEST_HEAD.size
    _LEAST_LENGTH = _LEAST_REQUEST

    def __init__(
        self,
        replace: Callable[[bytes, int], bytes],
        *,
        replace_head: Callable[[bytes, int], tuple[bytes, bool] | None] = _unchanged,
        header_version: Callable[[int, int], int] = request_header_version,
        watched: frozenset[int],
        longest_watched: Mapping[int, int] = _NO_LIMITS,
        max_frame_bytes: int,
        max_watched_bytes: int,
    ) -> None:
        super().__init__(replace, max_frame_bytes=max_frame_bytes, max_watched_bytes=max_watched_bytes)
        self._walks_requests = True
        self._watch(watched)
        self._watched_keys = watched
        self._longest_watched = longest_watched
        self._replace_head = replace_head
        self._header_version = header_version
        self._header_bytes = _LEAST_REQUEST  # lower bound of the current header's size

    @property
    def reads_all_headers(self) -> bool:
        """Whether every request's header is read, from the next frame on."""
        return self._every_key

    @reads_all_headers.setter
    def reads_all_headers(self, value: bool) -> None:
        self._every_key = bool(value)

    passing = walk_requests

    def note_versions(self, seen: memoryview) -> None:
        """Note the versions of all further requests in these bytes."""
        self._seen = seen

    def _watches(self, head: bytearray | memoryview, offset: int = 0) -> bool:
        length, api_key, version = _REQUEST_HEAD.unpack_from(head, offset)
        self.last_key = api_key
        if self._seen is not None:
            note_version(self._seen, api_key, version)
        if self._is_read:
            return True
        return api_key in self._watched_keys and length <= self._longest_watched.get(api_key, length)

    def _pass(self, chunk: memoryview, position: int, held: bytearray, out: list[memoryview | bytes]) -> int:
        """See the base class; waits for the whole header if all are read."""
        if not self._every_key:
            self._header_bytes = _LEAST_REQUEST
            return super()._pass(chunk, position, held, out)
        return self._pass_after_header(chunk, position, held, out)

    def _pass_after_header(
        self, chunk: memoryview, position: int, held: bytearray, out: list[memoryview | bytes]
    ) -> int:
        """Pass the current frame with the replacement of its header."""
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
        taken = self._replace_head(frame_in(held), length)
        if taken is None:
            self._held, self._skip = held, NONE
            self.frames -= 1  # it counts when it is complete
            self._is_read = True
            return self._hold(chunk, position, out)
        replacement, passes = taken
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
    """Rewrites responses from a broker: replaces the awaited one.

    Args:
        replace: See the base class.
        replace_correlation_id: Called at the beginning of an awaited response that is longer than
            :attr:`max_replaced_bytes`. Such a response passes with the correlation id that it
            returns.
        max_frame_bytes: See the base class.
        max_watched_bytes: See the base class.

    Attributes:
        awaited: Correlation id of the next response to replace; None if there is none.
    """

    __slots__ = ("_replace_correlation_id",)

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
        self.max_replaced_bytes = max_frame_bytes

    passing = walk_responses

    def _watches(self, head: bytearray | memoryview, offset: int = 0) -> bool:
        length, correlation_id = _unpack_response_head(head, offset)
        return bool(correlation_id == self.awaited and length <= self.max_replaced_bytes)

    def _pass(self, chunk: memoryview, position: int, held: bytearray, out: list[memoryview | bytes]) -> int:
        """See the base class; a long awaited response gets another correlation id."""
        length, correlation_id = _unpack_response_head(held)
        position = super()._pass(chunk, position, held, out)
        if correlation_id == self.awaited:
            out[-1] = _RESPONSE_HEAD.pack(length, self._replace_correlation_id())
        return position
