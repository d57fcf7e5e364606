"""However a stream is cut, the same bytes go out, and memory is bounded by what is watched."""

from __future__ import annotations

import contextlib
import struct

from hypothesis import given
from hypothesis import strategies as st

from receiver.wire.errors import WireError
from receiver.wire.frame_rewriter import frame, frame_start
from receiver.wire.framing import RequestRewriter, ResponseRewriter
from receiver.wire.headers import (
    RequestHeader,
    encode_request_header,
    request_header_size,
    request_header_version,
)
from tests.property.wire.strategies import tags, texts, uuids

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


#: API keys and versions with each version of the request header; of the last two only the front is
#: known.
KINDS = [(7, 0), (0, 8), (0, 13), (0, 14), (12, 5), (18, 3), (71, 1), (0, 15), (999, 0)]
TRANSLATED = frozenset({0, 12})


def header_version(api_key: int, api_version: int) -> int:
    return request_header_version(api_key, api_version, translated=TRANSLATED)


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    key, version = draw(st.sampled_from(KINDS))
    header = RequestHeader(
        api_key=key,
        api_version=version,
        correlation_id=draw(st.integers(0, 1 << 30)),
        client_id=draw(st.none() | texts),
        client_instance_id=draw(uuids),
        tagged_fields=draw(tags(flexible=True, unknown=True)),
    )
    return encode_request_header(header, header_version(key, version))


@given(headers(), st.binary(max_size=40), st.data())
def test_the_size_of_a_header_is_known_as_soon_as_it_is_there_and_never_overestimated(
    header: bytes, body: bytes, data: st.DataObject
) -> None:
    key, version = struct.unpack_from(">hh", header)
    header_is = header_version(key, version)
    assert request_header_size(header + body, header_is) == len(header)
    part = header[: data.draw(st.integers(0, len(header) - 1))]
    assert len(part) < request_header_size(part, header_is) <= len(header)


@given(
    st.lists(
        st.tuples(headers(), st.binary(max_size=60), st.sampled_from(["same", "shrunk", "grown", "dropped"])),
        max_size=8,
    ),
    cuts,
    st.integers(0, 8),
)
def test_every_header_is_read_the_same_however_it_is_cut(
    messages: list[tuple[bytes, bytes, str]], sizes: list[int], until: int
) -> None:
    """Each request's header goes to the callback until reading all headers is switched off."""
    stream, expected = b"", b""
    seen: list[tuple[bytes, str, int]] = []
    for head, body, change in messages:
        content = head + body
        stream += frame(content)
        if struct.unpack_from(">h", head)[0] in WATCHED:
            expected += replacement(content[:MAX_WATCHED], len(content))
        elif len(seen) == until:
            expected += frame(content)
        else:
            seen.append((head, change, len(content)))
            expected += {
                "same": frame(content),
                "shrunk": frame(head[:8], body),
                "grown": frame(b"more" + head, body),
                "dropped": frame(b"marker"),
            }[change]
    looked_at: list[tuple[bytes, int]] = []

    def replace_head(head: bytes, length: int) -> tuple[bytes, bool]:
        change = seen[len(looked_at)][1]
        looked_at.append((head, length))
        rewrite.reads_all_headers = len(looked_at) < until
        rest = length - len(head)
        if change == "dropped":
            return frame(b"marker"), False
        return frame_start({"same": head, "shrunk": head[:8], "grown": b"more" + head}[change], rest), True

    rewrite = RequestRewriter(
        replacement,
        replace_head=replace_head,
        header_version=header_version,
        watched=WATCHED,
        max_frame_bytes=100_000,
        max_watched_bytes=MAX_WATCHED,
    )
    rewrite.reads_all_headers = until > 0
    out = b"".join(bytes(rewrite.feed(memoryview(piece))) for piece in pieces(stream, sizes))
    assert out == expected
    assert looked_at == [(head, length) for head, _, length in seen]
    assert rewrite.frames == len(messages)
    assert rewrite.due == rewrite.held == 0


@given(requests, cuts, st.booleans())
def test_reading_every_header_changes_nothing_by_itself(
    messages: list[tuple[int, bytes]], sizes: list[int], every: bool
) -> None:
    stream = b"".join(frame(struct.pack(">hhih", key, 0, 1, -1) + body) for key, body in messages)
    outs = []
    for mode in (False, every):
        rewrite = RequestRewriter(
            replacement, watched=WATCHED, max_frame_bytes=10_000, max_watched_bytes=MAX_WATCHED
        )
        rewrite.reads_all_headers = mode
        outs.append(b"".join(bytes(rewrite.feed(memoryview(piece))) for piece in pieces(stream, sizes)))
        assert rewrite.frames == len(messages)
    assert outs[0] == outs[1]


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(8, 100), st.sampled_from(KINDS))
def test_arbitrary_headers_raise_nothing_but_a_wire_error(
    chunks: list[bytes], length: int, kind: tuple[int, int]
) -> None:
    rewrite = RequestRewriter(
        replacement,
        header_version=header_version,
        watched=WATCHED,
        max_frame_bytes=10_000,
        max_watched_bytes=MAX_WATCHED,
    )
    rewrite.reads_all_headers = True
    with contextlib.suppress(WireError):
        for chunk in (struct.pack(">ihh", length, *kind), *chunks):
            rewrite.feed(memoryview(chunk))
