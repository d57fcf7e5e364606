"""Framing for connections on which the addresses of brokers are replaced.

``receiver/native/_speedups.c`` passes the usual requests and responses as the rewriters here do, if
they share the table of pending requests. It leaves all others to them.

Each request whose response names brokers goes to the broker under a correlation id that the session
chooses, so that its response is known. Of these requests only the beginning is read. Of their
responses, short ones are replaced as a whole (:class:`~receiver.wire.framing.ResponseRewriter`).
Long ones are walked over, and only their ends are kept (:mod:`receiver.wire.node_endpoints`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from receiver.wire import api_keys, k00_produce, k10_find_coordinator
from receiver.wire.errors import WireError
from receiver.wire.field_walk import TAGGED_FIELDS, Fields, FieldWalk
from receiver.wire.frame_rewriter import LENGTH_BYTES, frame_in
from receiver.wire.framing import RequestRewriter, ResponseRewriter
from receiver.wire.header_versions import FIRST_WITH_HEADER_V3, LATEST
from receiver.wire.named_addresses import CONTROLLER_KEYS, NAMED_AT_END, NAMED_INSIDE
from receiver.wire.seen_versions import note_version
from receiver.wire.walk import WATCHED_KEYS

#: The longest end of a response that is kept: some ten thousand brokers.
_MAX_END_BYTES: Final = 1_048_576

_HEAD = Struct(">iI")
_HEAD_AND_ID = Struct(">iIi")
_RESPONSE_HEAD = Struct(">ii")
_CORRELATION_ID = Struct(">i")
_unpack_head_and_id = _HEAD_AND_ID.unpack_from
_unpack_response_head = _RESPONSE_HEAD.unpack_from
_write_correlation_id = _CORRELATION_ID.pack_into

#: Offset of the correlation id in the frame of a request, and in that of a response.
_REQUEST_ID_AT: Final = 8
_RESPONSE_ID_AT: Final = 4
_KEY_AND_VERSION = Struct(">hh")


def _word(api_key: int, version: int) -> int:
    """Return API key and version as the unsigned integer that a request begins with."""
    return api_key << 16 | version


_TRACKED: Final = frozenset(_word(*api) for api in NAMED_AT_END | NAMED_INSIDE)
_PRODUCE: Final = frozenset(_word(api_keys.PRODUCE, version) for version in k00_produce.SUPPORTED_VERSIONS)


def _with_header_v3(api_key: int) -> int:
    return _word(api_key, FIRST_WITH_HEADER_V3[api_key])


# KIP-1313's version has the body of the version before.
#: Requests that are read up to their acknowledgements.
_READ_TO_ACKS: Final = _PRODUCE | {_with_header_v3(api_keys.PRODUCE)}

#: Requests that are read up to the length of their list of keys.
_WITH_KEYS: Final = frozenset(
    _word(api_keys.FIND_COORDINATOR, version) for version in k10_find_coordinator.WITH_COORDINATORS
)
_READ_TO_COUNT: Final = _WITH_KEYS | {_with_header_v3(api_keys.FIND_COORDINATOR)}

#: Requests that pass unread because their responses name no broker.
_PASSING: Final = (
    frozenset(
        _word(key, version)
        for key, latest in LATEST.items()
        if key not in CONTROLLER_KEYS
        for version in range(latest + 1)
    )
    - _TRACKED
)
_NOTHING: Final[frozenset[int]] = frozenset()

#: Requests that get their correlation id in place. Only a Produce request may have no response, so
#: it is looked at. Only a FindCoordinator request decides by itself how long it takes to rewrite
#: its response.
_TRACKED_IN_PLACE: Final = _TRACKED - _PRODUCE - _WITH_KEYS

#: What C does with a request: it passes, it is tracked in place, or it is a Produce request. C
#: tracks what costs little: the other responses are decoded.
_PASSES_IN_C, _TRACKED_IN_C, _PRODUCE_IN_C = 1, 2, 3
_WORDS_TRACKED_IN_C: Final = frozenset(_word(*api) for api in NAMED_AT_END)

#: Versions that C knows of each key.
_VERSIONS_IN_C: Final = 32


@functools.cache
def _kinds(passes: frozenset[int], tracked: frozenset[int], looked_at: frozenset[int]) -> bytes:
    """Return what C does with each request, by API key and version; 0: nothing."""
    kinds = bytearray(WATCHED_KEYS * _VERSIONS_IN_C)
    for words, kind in (
        (tracked & _WORDS_TRACKED_IN_C, _TRACKED_IN_C),
        (looked_at, _PRODUCE_IN_C),
        (passes, _PASSES_IN_C),
    ):
        for word in words:
            kinds[(word >> 16) * _VERSIONS_IN_C + (word & 0xFFFF)] = kind
    return bytes(kinds)


def names_brokers(api_key: int, version: int) -> bool:
    """Return whether the response to a request may name brokers.

    Raises:
        WireError: The request is not in Kafka 4.4, or only controllers send it. Its response may
            hold addresses where nobody expects them.
    """
    word = _word(api_key, version)
    if word in _TRACKED:
        return True
    if word in _PASSING:
        return False
    raise WireError(
        expected="an API key and version that the gateway offers",
        offset=0,
        found=f"{api_keys.api_name(api_key)} version {version}",
    )


class AddressedRequests(RequestRewriter):
    """Rewrites requests on a connection on which addresses are replaced.

    Every request that is neither watched nor known to have a response without addresses is given to
    ``replace_head``, with the beginning that :meth:`_check_header` demands, or to ``track``.

    Args:
        track: Called with API key, version and correlation id of a request whose response names
            brokers. Returns the correlation id that the broker gets, which is then written into the
            chunk, so chunks must be writable. None if the request has to be given to
            ``replace_head``.
    """

    __slots__ = ("_looked_at", "_passes_unread", "_track", "_tracked", "_unwatched")

    _HEAD_BYTES = _HEAD.size

    def __init__(
        self,
        replace: Callable[[bytes, int], bytes],
        *,
        track: Callable[[int, int, int], int | None],
        watched: frozenset[int],
        **arguments: Any,
    ) -> None:
        super().__init__(replace, watched=watched, **arguments)
        self._track = track
        self._unwatched = frozenset(word for word in _PASSING if word >> 16 not in watched)
        self.reads_all_headers = False

    @property
    def reads_all_headers(self) -> bool:
        """See the base class."""
        return self._passes_unread is _NOTHING

    @reads_all_headers.setter
    def reads_all_headers(self, value: bool) -> None:
        self._passes_unread = _NOTHING if value else self._unwatched
        self._tracked = _NOTHING if value else _TRACKED_IN_PLACE
        self._looked_at = _NOTHING if value else _PRODUCE
        self._kinds = _kinds(self._passes_unread, self._tracked, self._looked_at)

    def stop_tracking(self) -> None:
        """Pass the requests whose responses name brokers, from the next frame on."""
        more = frozenset(word for word in _TRACKED if word >> 16 not in self._watched_keys)
        self._unwatched |= more
        self.reads_all_headers = self.reads_all_headers

    def passing(self, chunk: memoryview) -> int:
        """See the base class.

        A request whose response names brokers gets its correlation id.
        """
        position = self._skip
        if position < 0:
            return 0
        end = len(chunk)
        last = end - _HEAD_AND_ID.size
        passes, tracked, looked_at = self._passes_unread, self._tracked, self._looked_at
        longest = self._max_frame_bytes
        frames = self.frames
        word, seen = (self.last_key & 0xFFFF) << 16, self._seen
        while position <= last:
            length, word, correlation_id = _unpack_head_and_id(chunk, position)
            if length > longest or length < 8:
                break
            if seen is not None:
                note_version(seen, word >> 16, word & 0xFFFF)
            if word not in passes:
                acks: int | None = 1
                if word in looked_at:
                    after = position + 4 + length
                    acks = k00_produce.look_for_acks(chunk, position + 4, min(after, end))
                    if acks is None:
                        break
                elif word not in tracked:
                    break
                if acks:
                    forwarded = self._track(word >> 16, word & 0xFFFF, correlation_id)
                    if forwarded is None:
                        break
                    _write_correlation_id(chunk, position + _REQUEST_ID_AT, forwarded)
            position += length + 4
            frames += 1
        self.frames = frames
        key = word >> 16
        self.last_key = key - ((key & 0x8000) << 1)  # an int16
        if position >= end:
            self._skip = position - end
            return end
        self._skip = 0
        return position

    def _pass(self, chunk: memoryview, position: int, held: bytearray, out: list[memoryview | bytes]) -> int:
        """See the base class.

        Does what :meth:`passing` does for a head that arrives in pieces.
        """
        _, word = _HEAD.unpack_from(held)
        if word in self._passes_unread:
            return super()._pass(chunk, position, held, out)
        if word in self._tracked:
            missing = max(0, _HEAD_AND_ID.size - len(held))
            held += chunk[position : position + missing]
            if position + missing > len(chunk):
                return len(chunk)
            position += missing
            length, _, correlation_id = _HEAD_AND_ID.unpack_from(held)
            forwarded = self._track(word >> 16, word & 0xFFFF, correlation_id)
            if forwarded is not None:
                _write_correlation_id(held, _REQUEST_ID_AT, forwarded)
                return super()._pass(chunk, position, held, out)
            self._header_bytes = self._check_header(frame_in(held), length)
        return self._pass_after_header(chunk, position, held, out)

    def _check_header(self, beginning: bytes, length: int) -> int:
        """See the base class; the beginning of some bodies is read too."""
        size = super()._check_header(beginning, length)
        word = _word(*_KEY_AND_VERSION.unpack_from(beginning))
        if size > len(beginning):
            return size
        if word in _READ_TO_ACKS:
            size = k00_produce.size_to_acks(beginning, size)
        elif word in _READ_TO_COUNT:
            size = k10_find_coordinator.count_size(beginning, size)
        if size > length:
            name = api_keys.api_name(word >> 16)
            raise WireError(
                expected=f"a {name} request of at least {size} bytes", offset=0, found=str(length)
            )
        return size


@dataclass(frozen=True, slots=True)
class LongResponse:
    """How to rewrite a response that is too long to be kept."""

    correlation_id: int
    """The correlation id for the client."""
    fields: Fields
    """The fields of its body before its end."""
    plain_end: bytes
    """The end of a response that names no broker. It passes."""
    replace_end: Callable[[bytes], bytes]
    """Returns the end for the client, in as many bytes."""


class AddressedResponses(ResponseRewriter):
    """Rewrites responses on a connection on which addresses are replaced.

    Args:
        replace: See the base class.
        take_plain: Called with a chunk and where an awaited response begins in it and ends, without
            its length; the end may be missing. Returns the correlation id with which the response
            passes, if nothing else of it changes. It is written into the chunk, so chunks must be
            writable.
        long_response: Called at the beginning of an awaited response that is longer than
            :attr:`max_replaced_bytes`. Returns how to rewrite it, or only the correlation id with
            which it passes.
        edit: Called with what has arrived of an awaited response that is not complete, without its
            length. Returns whether that was work.
    """

    __slots__ = (
        "_edit",
        "_edits",
        "_end",
        "_error",
        "_left",
        "_long",
        "_long_response",
        "_take_plain",
        "_walk",
    )

    def __init__(
        self,
        replace: Callable[[bytes, int], bytes],
        *,
        take_plain: Callable[[memoryview, int, int], int | None],
        long_response: Callable[[], LongResponse | int],
        edit: Callable[[memoryview], bool],
        **arguments: Any,
    ) -> None:
        super().__init__(replace, **arguments)
        self._edit = edit
        self._edits = False  # whether the current response is work while it arrives
        self._take_plain = take_plain
        self._long_response = long_response
        self._long: LongResponse | None = None
        self._walk: FieldWalk | None = None
        self._end = bytearray()
        self._error: WireError | None = None  # of a long response
        self._left = 0  # bytes still to come of the long response

    @property
    def due(self) -> int:
        """See the base class."""
        return 0 if self._over else self._left or super().due

    @property
    def idle_bytes(self) -> int:
        """See the base class; the fields of a long response are walked over."""
        if self._edits:
            return 0
        return super().idle_bytes if self._walk is None else self._walk.skipped

    def passing(self, chunk: memoryview) -> int:
        """See the base class; passes responses that name no broker, with the client's ids."""
        position = self._skip
        if position < 0:
            if self._walk is None or self._over:
                return 0
            position = self._passing_long(self._walk, chunk, 0)
            if self._skip < 0:
                return position
        end = len(chunk)
        last = end - _RESPONSE_HEAD.size
        frames = self.frames
        while position <= last:
            length, correlation_id = _unpack_response_head(chunk, position)
            if correlation_id == self.awaited:
                after = position + 4 + length
                own = self._take_plain(chunk, position + 4, after)
                if own is not None:
                    _write_correlation_id(chunk, position + _RESPONSE_ID_AT, own)
                elif length <= self.max_replaced_bytes:
                    break
                else:
                    _write_correlation_id(chunk, position + _RESPONSE_ID_AT, self._begin_long(length))
                    if self._walk is not None:
                        position = self._passing_long(self._walk, chunk, position + _RESPONSE_HEAD.size)
                        if self._skip < 0:
                            self.frames = frames + 1
                            return position
                        frames += 1
                        continue
            elif length < 4:
                break
            position += length + 4
            frames += 1
        self.frames = frames
        if position >= end:
            self._skip = position - end
            return end
        self._skip = 0
        return position

    def _begin_long(self, length: int) -> int:
        """Take a response that is not kept; return the correlation id for the client."""
        long = self._long_response()
        if isinstance(long, int):
            return long
        self._long = long
        self._left = length + 4 - _RESPONSE_HEAD.size
        self._walk = FieldWalk((TAGGED_FIELDS, *long.fields), self._left)
        self._skip = -1
        return long.correlation_id

    def _passing_long(self, walk: FieldWalk, chunk: memoryview, position: int) -> int:
        """Pass the fields of a long response, and its end if that is plain.

        Returns:
            How far the chunk passes; :attr:`_skip` is 0 if that is the response's end.
        """
        begin, end = position, min(len(chunk), position + self._left)
        try:
            position += walk.skip(end - position)
            if position < end and not walk.done:
                position = walk.feed(chunk[:end], position)
        except WireError as error:
            self._error = error  # `rewrite` raises it
            return begin
        self._left -= position - begin
        long = self._long
        if long is not None and walk.done and not self._end and self._left == end - position:
            if chunk[position:end] == long.plain_end:
                self._left = self._skip = 0
                self._walk = self._long = None
                return end
        elif not self._left:
            self._error = WireError(expected="the fields of a response", offset=walk.offset, found="its end")
            return begin
        return position

    def _hold(self, chunk: memoryview, position: int, out: list[memoryview | bytes]) -> int:
        if self._error is not None:
            raise self._error
        walk, long = self._walk, self._long
        if walk is None or long is None:
            position = super()._hold(chunk, position, out)
            self._edits = self._held is not None and self._edit_held(self._held)
            return position
        end = min(len(chunk), position + self._left)
        self._end += chunk[position:end]
        self._left -= end - position
        if self._left + len(self._end) > _MAX_END_BYTES:
            raise WireError(
                expected=f"at most {_MAX_END_BYTES} bytes behind the partitions",
                offset=walk.offset,
                found=str(self._left + len(self._end)),
            )
        if not self._left:
            out.append(long.replace_end(bytes(self._end)))
            self._end = bytearray()
            self._walk = self._long = None
            self._skip = 0
        return end

    def _edit_held(self, held: bytearray) -> bool:
        if len(held) < self._HEAD_BYTES or not self._watches(held):
            return False
        with memoryview(held) as whole, whole[LENGTH_BYTES:] as response:
            return self._edit(response)

    def _pass(self, chunk: memoryview, position: int, held: bytearray, out: list[memoryview | bytes]) -> int:
        length, correlation_id = _RESPONSE_HEAD.unpack_from(held)
        if correlation_id != self.awaited:
            return super()._pass(chunk, position, held, out)
        out.append(_RESPONSE_HEAD.pack(length, self._begin_long(length)))
        self.frames += 1
        self._held = None
        if self._walk is None:
            self._skip = 4 + length - len(held)
        return position
