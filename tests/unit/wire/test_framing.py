"""Walking over frames: which pass, which are replaced, and which are malformed."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable

import pytest

from receiver.wire.errors import WireError
from receiver.wire.frame_rewriter import BrokenStreamError, frame, frame_start
from receiver.wire.framing import RequestRewriter, ResponseRewriter
from receiver.wire.walk import PURE_PYTHON, compiled

WATCHED = 18


def request(api_key: int, body: bytes = b"", correlation_id: int = 7) -> bytes:
    return frame(struct.pack(">hhi", api_key, 0, correlation_id), body)


def rewriter(seen: list[tuple[bytes, int]] | None = None, **bounds: int) -> RequestRewriter:
    def replace(held: bytes, length: int) -> bytes:
        if seen is not None:
            seen.append((held, length))
        return b"<%d>" % length

    return RequestRewriter(
        replace,
        watched=frozenset({WATCHED}),
        max_frame_bytes=bounds.get("max_frame_bytes", 1000),
        max_watched_bytes=bounds.get("max_watched_bytes", 1000),
    )


def every(replace_head: Callable[[bytes, int], tuple[bytes, bool]]) -> RequestRewriter:
    rewrite = RequestRewriter(
        lambda _held, length: b"<%d>" % length,
        replace_head=replace_head,
        watched=frozenset({WATCHED}),
        max_frame_bytes=100_000,
        max_watched_bytes=1000,
    )
    rewrite.reads_all_headers = True
    return rewrite


def fed(rewrite: RequestRewriter | ResponseRewriter, *chunks: bytes) -> bytes:
    return b"".join(bytes(rewrite.feed(memoryview(chunk))) for chunk in chunks)


def test_whole_unwatched_frames_are_not_copied() -> None:
    chunk = memoryview(request(0, b"a") + request(1, b"bb"))
    assert rewriter().feed(chunk) is chunk


def test_a_chunk_that_ends_inside_a_frame_is_not_copied() -> None:
    rewrite = rewriter()
    frames = request(0, b"a" * 100)
    for piece in (frames[:20], frames[20:50], frames[50:]):
        chunk = memoryview(piece)
        assert rewrite.feed(chunk) is chunk
    assert rewrite.due == 0


@pytest.mark.parametrize(
    "chunk",
    [
        request(WATCHED, b"abc"),
        request(0) + request(WATCHED, b"abc"),
        request(WATCHED, b"abc") + request(0),
        request(0) + request(WATCHED, b"abc") + request(1, b"x" * 50) + request(WATCHED) + request(2),
    ],
)
def test_watched_frames_are_replaced_however_the_bytes_arrive(chunk: bytes) -> None:
    whole = fed(rewriter(), chunk)
    assert b"<" in whole
    assert fed(rewriter(), *(chunk[i : i + 1] for i in range(len(chunk)))) == whole
    for cut in range(len(chunk)):
        assert fed(rewriter(), chunk[:cut], chunk[cut:]) == whole


def test_a_watched_frame_is_handed_over_without_its_length() -> None:
    seen: list[tuple[bytes, int]] = []
    fed(rewriter(seen), request(WATCHED, b"abc"))
    assert seen == [(request(WATCHED, b"abc")[4:], 11)]


def test_of_a_watched_frame_that_is_too_long_only_its_beginning_is_kept() -> None:
    long = request(WATCHED, b"x" * 500)
    for pieces in ([long + request(0)], [bytes([b]) for b in long + request(0)]):
        seen: list[tuple[bytes, int]] = []
        out = fed(rewriter(seen, max_watched_bytes=20), *pieces)
        assert out == b"<508>" + request(0)
        assert seen == [(long[4:24], 508)]


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 7, 1001, 2**31 - 1])
def test_an_invalid_request_length_is_an_error(length: int) -> None:
    with pytest.raises(WireError, match=f"a frame length from 8 to 1000.*found {length}"):
        fed(rewriter(), struct.pack(">ihhi", length, 0, 0, 0))


def test_a_wrong_length_is_refused_before_more_arrives() -> None:
    rewrite = rewriter()
    with pytest.raises(WireError):
        fed(rewrite, struct.pack(">i", 2**31 - 1))


def test_due_is_the_number_of_bytes_to_the_end_of_the_frame() -> None:
    frames = request(0, b"a" * 10) + request(WATCHED, b"b" * 10)
    rewrite = rewriter()
    position = 0
    while position < len(frames):
        size = rewrite.due or 1
        fed(rewrite, frames[position : position + size])
        position += size
        if position == len(request(0, b"a" * 10)):
            assert rewrite.due == 0
    assert position == len(frames)
    assert rewrite.due == 0


def test_held_is_the_size_of_an_incomplete_watched_frame() -> None:
    long = request(WATCHED, b"x" * 500)
    rewrite = rewriter(max_watched_bytes=20)
    fed(rewrite, request(0, b"a" * 10)[:15])
    assert rewrite.held == 0
    fed(rewrite, request(0, b"a" * 10)[15:], long[:10])
    assert rewrite.held == 10
    fed(rewrite, long[10:-1])
    assert rewrite.held == 24
    fed(rewrite, long[-1:])
    assert rewrite.held == 0


def test_frames_are_not_read_after_watching_stops() -> None:
    def replace(_held: bytes, _length: int) -> bytes:
        rewrite.stop_watching()
        return b"<>"

    rewrite = RequestRewriter(
        replace,
        watched=frozenset({WATCHED}),
        max_frame_bytes=100,
        max_watched_bytes=100,
    )
    assert (
        fed(rewrite, request(WATCHED) + b"anything" * 30, b"at all") == b"<>" + b"anything" * 30 + b"at all"
    )


def test_the_first_header_can_be_read_alone() -> None:
    seen: list[tuple[bytes, int]] = []

    def replace_head(head: bytes, length: int) -> tuple[bytes, bool]:
        seen.append((head, length))
        rewrite.reads_all_headers = False
        return frame_start(head, length - len(head)), True

    rewrite = every(replace_head)
    produce = request(0, b"\x00\x02me" + b"records" * 10)
    assert fed(rewrite, produce[:9]) == b""
    assert (rewrite.held, rewrite.due) == (9, len(produce) - 9)
    assert fed(rewrite, produce[9:20], produce[20:] + request(1)) == produce + request(1)
    assert seen == [(produce[4:16], len(produce) - 4)]
    chunk = memoryview(request(0))
    assert rewrite.feed(chunk) is chunk


def test_a_request_can_be_replaced_without_buffering_it() -> None:
    rewrite = every(lambda _head, _length: (b"<marker>", False))
    produce = request(0, b"\xff\xff" + b"records" * 10)
    assert fed(rewrite, produce[:30]) == b"<marker>"
    assert (rewrite.held, rewrite.due) == (0, len(produce) - 30)
    assert fed(rewrite, produce[30:] + request(WATCHED), request(2, b"\xff\xff")) == b"<8><marker>"
    assert rewrite.frames == 3


def test_passing_can_stop_after_a_request() -> None:
    def replace_head(_head: bytes, _length: int) -> tuple[bytes, bool]:
        rewrite.stop_passing()
        return b"<last>", False

    rewrite = every(replace_head)
    assert fed(rewrite, request(0, b"\xff\xffrecords") + request(1), request(2)) == b"<last>"


@pytest.mark.parametrize(
    ("header", "length", "problem"),
    [
        ("0000 0000 00000007 ffff", 9, "a request header of at most 9 bytes.*found 10 or more"),
        ("0000 0000 00000007 7fff", 1000, "a request header of at most 1000 bytes.*found 32777 or more"),
        ("0000 0009 00000007 ffff 01 05 ffffff7f", 99_999, "at most 65536 bytes.*found 268435471 or more"),
        ("0000 0009 00000007 ffff ff01", 1000, "at most 64 tagged fields in a request header.*found a count"),
        ("0000 0009 00000007 ffff ffffffffff", 1000, "tagged fields .unsigned varint of 32 bits"),
    ],
)
def test_a_malformed_request_header_is_an_error(header: str, length: int, problem: str) -> None:
    chunk = struct.pack(">i", length) + bytes.fromhex(header)
    for pieces in ([chunk], [bytes([b]) for b in chunk]):
        rewrite = every(lambda _head, _length: (b"", True))
        with pytest.raises(WireError, match=problem):
            fed(rewrite, *pieces)


def response(correlation_id: int, body: bytes = b"") -> bytes:
    return frame(struct.pack(">i", correlation_id), body)


def test_responses_pass_while_none_is_awaited() -> None:
    rewrite = ResponseRewriter(lambda _held, _length: b"!", max_frame_bytes=1000, max_watched_bytes=100)
    chunk = memoryview(response(1) + response(2, b"abc"))
    assert rewrite.feed(chunk) is chunk


def test_the_awaited_response_is_replaced_and_the_next_one_is_awaited_at_once() -> None:
    awaited = [5, 9]

    def replace(held: bytes, _length: int) -> bytes:
        awaited.pop(0)
        rewrite.awaited = awaited[0] if awaited else None
        return b"<%d>" % struct.unpack_from(">i", held)[0]

    stream = response(1) + response(5, b"a") + response(5, b"b") + response(9) + response(9)
    expected = response(1) + b"<5>" + response(5, b"b") + b"<9>" + response(9)
    for pieces in ([stream], [stream[i : i + 1] for i in range(len(stream))]):
        awaited[:] = [5, 9]
        rewrite = ResponseRewriter(replace, max_frame_bytes=1000, max_watched_bytes=100)
        rewrite.awaited = 5
        assert fed(rewrite, *pieces) == expected


def test_a_response_shorter_than_a_correlation_id_is_an_error() -> None:
    rewrite = ResponseRewriter(lambda _held, _length: b"", max_frame_bytes=1000, max_watched_bytes=100)
    with pytest.raises(WireError, match=r"from 4 to 1000.*found 3"):
        fed(rewrite, struct.pack(">ii", 3, 0))


def pieces_of(stream: bytes) -> list[list[bytes]]:
    return [
        [stream],
        *([stream[:cut], stream[cut:]] for cut in range(len(stream))),
        [bytes([b]) for b in stream],
    ]


def test_every_request_is_counted_once_however_the_bytes_arrive() -> None:
    stream = request(0, b"abc") + request(WATCHED, b"x") + request(1) + request(WATCHED) + request(2, b"yz")
    for pieces in pieces_of(stream):
        rewrite = rewriter()
        fed(rewrite, *pieces)
        assert rewrite.frames == 5


@pytest.mark.parametrize("awaits", [False, True])
def test_every_response_is_counted_once_however_the_bytes_arrive(awaits: bool) -> None:
    stream = (
        response(1, b"abcdefgh") + response(2) + response(3, b"x") + response(4) + response(5) + response(4)
    )
    for pieces in pieces_of(stream):
        rewrite = ResponseRewriter(lambda held, _: frame(held), max_frame_bytes=99, max_watched_bytes=99)
        rewrite.awaited = 4 if awaits else None
        assert fed(rewrite, *pieces) == stream
        assert rewrite.frames == 6


@pytest.mark.parametrize(("longest", "kept"), [(9, True), (10, False)])
def test_an_awaited_response_over_the_bound_passes_with_another_correlation_id(
    longest: int, kept: bool
) -> None:
    stream = response(1) + response(5, b"abcdef") + response(2, b"x")
    for pieces in pieces_of(stream):
        rewrite = ResponseRewriter(
            lambda _held, _length: b"!",
            replace_correlation_id=lambda: 8,
            max_frame_bytes=99,
            max_watched_bytes=99,
        )
        rewrite.awaited = 5
        rewrite.max_replaced_bytes = longest
        middle = response(8, b"abcdef") if kept else b"!"
        assert fed(rewrite, *pieces) == response(1) + middle + response(2, b"x")


def test_the_bytes_that_are_held_when_watching_stops_go_out_before_the_rest() -> None:
    rewrite = rewriter()
    begun = request(WATCHED, b"abc")
    assert fed(rewrite, begun[:5]) == b""
    rewrite.stop_watching()
    assert fed(rewrite, begun[5:], b"\xff\xff\xff\xff", b"anything") == begun + b"\xff\xff\xff\xffanything"
    assert (rewrite.held, rewrite.due) == (0, 0)


def test_an_error_has_its_offset_and_the_bytes_before_it() -> None:
    rewrite = rewriter()
    with pytest.raises(BrokenStreamError) as caught:
        fed(rewrite, request(0) + request(WATCHED) + struct.pack(">ihhi", 3, 0, 0, 0))
    assert (caught.value.offset, caught.value.before) == (0, request(0) + b"<8>")
    assert fed(rewrite, request(0)) == b""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler")
def test_the_walk_is_compiled_where_there_is_a_compiler() -> None:
    assert (compiled is None) == bool(os.environ.get(PURE_PYTHON))
