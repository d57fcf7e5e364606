"""The walk over the frames of a stream: compiled where it can be.

``receiver/native/_speedups.c`` does in C what every byte of every client takes: this walk, and the
pump that moves chunks (:mod:`receiver.gateway.connection.direction`). The extension is optional.
The Python is its fallback and what it is tested against. :data:`PURE_PYTHON` forces it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from receiver.wire.seen_versions import note_version

#: The environment variable that leaves the compiled data path out.
PURE_PYTHON: Final = "KAFKA_TELEMETRY_PURE_PYTHON"

#: API keys that can be watched, from 0.
WATCHED_KEYS: Final = 128

#: All values of an int16.
_EVERY_KEY: Final = range(-(1 << 15), 1 << 15)

_LENGTH = Struct(">i")
_REQUEST_HEAD = Struct(">ihh")
_RESPONSE_HEAD = Struct(">ii")

# Bound once, because an attribute lookup for every frame costs as much as the comparison after it.
_unpack_length = _LENGTH.unpack_from
_unpack_request_head = _REQUEST_HEAD.unpack_from
_unpack_response_head = _RESPONSE_HEAD.unpack_from


def _load() -> Any:
    if os.environ.get(PURE_PYTHON):
        return None
    try:
        from receiver.native import _speedups
    except ImportError:  # not built
        return None
    return _speedups


#: The extension; None: Python walks and moves.
compiled: Final[Any] = _load()

#: What walks and moves, for people: ``compiled`` or ``python``.
DATA_PATH: Final = "python" if compiled is None else "compiled"


class PythonWalk:
    """What the walk knows of a stream."""

    __slots__ = (
        "_every_key",
        "_kinds",
        "_max_frame_bytes",
        "_seen",
        "_skip",
        "_table",
        "_walks_requests",
        "_watched",
        "awaited",
        "frames",
        "last_key",
        "max_replaced_bytes",
    )

    _every_key: bool  # whether no request passes
    _kinds: bytes  # for C, where addresses are replaced
    _max_frame_bytes: int
    _seen: memoryview | None  # notes the versions of requests
    _skip: int  # bytes still to pass of the current frame; negative: the next ones do not
    _table: Any  # the same: what is awaited
    _walks_requests: bool
    awaited: int | None
    """Correlation id of the response that does not pass; None if there is none."""
    frames: int
    """Number of frames that have begun."""
    last_key: int
    """API key of the latest request that was looked at."""
    max_replaced_bytes: int
    """The longest response that is replaced as a whole."""

    def _watch(self, keys: Iterable[int]) -> None:
        """Let the requests with these API keys not pass.

        Raises:
            ValueError: An API key is out of range.
        """
        self._watched = frozenset(keys)
        for key in self._watched:
            if not 0 <= key < WATCHED_KEYS:
                raise ValueError(f"API key {key} can't be watched: 0 to {WATCHED_KEYS - 1} can")

    def passing(self, chunk: memoryview) -> int:
        """Return how many bytes at the beginning of the chunk are of frames that pass."""
        return self.pass_requests(chunk) if self._walks_requests else self.pass_responses(chunk)

    def pass_requests(self, chunk: memoryview) -> int:
        """Compare the API key and the length of each request, and note its version."""
        position = self._skip
        if position < 0:
            return 0
        end = len(chunk)
        last = end - 8
        if position <= last:
            stops_at = _EVERY_KEY if self._every_key else self._watched
            longest = self._max_frame_bytes
            frames, seen = self.frames, self._seen
            while position <= last:
                length, api_key, version = _unpack_request_head(chunk, position)
                if api_key in stops_at or length > longest or length < 8:
                    break
                if seen is not None:
                    note_version(seen, api_key, version)
                position += length + 4
                frames += 1
            self.frames = frames
            self.last_key = api_key
        if position >= end:
            self._skip = position - end
            return end
        self._skip = 0
        return position

    def pass_responses(self, chunk: memoryview) -> int:
        """Compare the length of each response, and the correlation id if one is awaited."""
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


if TYPE_CHECKING or compiled is None:
    Walk = PythonWalk
    walk_requests = PythonWalk.pass_requests
    walk_responses = PythonWalk.pass_responses
else:
    Walk = compiled.Walk
    walk_requests = walk_responses = Walk.passing
