"""However a stream is cut, the same bytes go out, and memory is bounded by what is watched."""

from __future__ import annotations

import contextlib
import struct

from hypothesis import given
from hypothesis import strategies as st

from receiver.wire.errors import WireError
from receiver.wire.framing import RequestRewriter, ResponseRewriter, frame

WATCHED = frozenset({18, 71})
MAX_WATCHED = 64

requests = st.lists(
    st.tuples(st.sampled_from([0, 1, 3, 18, 71, -1, 999]), st.binary(max_size=120)), max_size=8
)
cuts = st.lists(st.integers(min_value=1, max_value=40), min_size=1, max_size=200)


def replacement(held: bytes, length: int) -> bytes:
    return b"[" + held + b"|%d]" % length


def pieces(stream: bytes, sizes: list[int]) -> list[bytes]:
    found, position = [], 0
    for size in sizes:
        found.append(stream[position : position + size])
        position += size
    found.append(stream[position:])
    return found


@given(requests, cuts)
def test_requests_are_rewritten_alike_however_they_are_cut(
    messages: list[tuple[int, bytes]], sizes: list[int]
) -> None:
    stream, expected = b"", b""
    for number, (key, body) in enumerate(messages):
        content = struct.pack(">hhi", key, 0, number) + body
        stream += frame(content)
        expected += replacement(content[:MAX_WATCHED], len(content)) if key in WATCHED else frame(content)
    rewrite = RequestRewriter(
        replacement, watched=WATCHED, max_frame_bytes=10_000, max_watched_bytes=MAX_WATCHED
    )
    out = b"".join(bytes(rewrite.feed(memoryview(piece))) for piece in pieces(stream, sizes))
    assert out == expected
    assert rewrite.due == 0


@given(st.lists(st.tuples(st.integers(-3, 3), st.binary(max_size=60)), max_size=10), cuts, st.integers(-3, 3))
def test_responses_are_rewritten_alike_however_they_are_cut(
    messages: list[tuple[int, bytes]], sizes: list[int], awaited: int
) -> None:
    stream = b"".join(frame(struct.pack(">i", key), body) for key, body in messages)
    outs = []
    for chunks in ([stream], pieces(stream, sizes)):
        rewrite = ResponseRewriter(replacement, max_frame_bytes=10_000, max_watched_bytes=MAX_WATCHED)
        rewrite.awaited = awaited
        outs.append(b"".join(bytes(rewrite.feed(memoryview(chunk))) for chunk in chunks))
    assert outs[0] == outs[1]


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_arbitrary_bytes_raise_nothing_but_a_wire_error(chunks: list[bytes]) -> None:
    rewrite = RequestRewriter(
        replacement, watched=WATCHED, max_frame_bytes=10_000, max_watched_bytes=MAX_WATCHED
    )
    with contextlib.suppress(WireError):
        for chunk in chunks:
            rewrite.feed(memoryview(chunk))
