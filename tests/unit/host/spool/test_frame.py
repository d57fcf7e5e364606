"""Frames that no spool writes."""

from __future__ import annotations

import struct
import tracemalloc

import google_crc32c
import pytest
import zstandard

from receiver.host.spool.frame import HEADER_BYTES, FrameError, parse_header, split_body


def header(body: bytes, *, raw_bytes: int, codec: int = 1, pushes: int = 1, size: int | None = None) -> bytes:
    fields = struct.pack(
        "<IIIIQqI",
        len(body) if size is None else size,
        raw_bytes,
        codec,
        pushes,
        0,
        0,
        google_crc32c.value(body),
    )
    return fields + struct.pack("<I", google_crc32c.value(fields))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "header of 0 bytes"),
        (bytes(HEADER_BYTES), "checksum"),
        (header(b"", raw_bytes=1 << 27), "134217728 inflated"),
        (header(b"12345", raw_bytes=4), "invalid body of 5 bytes, 4 inflated"),
        (header(b"1234", raw_bytes=4, pushes=0), "pushes: 0 in"),
        (header(b"1234", raw_bytes=4, pushes=2), "pushes: 2 in 4 bytes"),
        (header(b"1234", raw_bytes=4, codec=2), "codec 2"),
    ],
)
def test_a_header_of_what_no_spool_writes_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(FrameError, match=problem):
        parse_header(data)


@pytest.mark.parametrize(
    ("body", "raw_bytes", "codec", "pushes", "problem"),
    [
        (b"\x01\0\0\0abc", 7, 0, 1, "the pushes have 5 bytes, but the body has 7"),
        (b"\xff\xff\xff\xffabc", 7, 0, 1, "the pushes have 4294967299 bytes"),
        (b"\x03\0\0\0abcdefg", 11, 0, 2, "the pushes have"),
        (b"\x04\0\0\0abcd", 8, 0, 2, "ends before its last push"),
        (b"no zstd frame", 100, 1, 1, "can't be inflated"),
        (zstandard.compress(bytes(100)), 99, 1, 1, "size 100 in the body, but 99"),
        (zstandard.compress(bytes(100))[:-2], 100, 1, 1, "can't be inflated"),
        (zstandard.compress(bytes(100)) + b"more", 100, 1, 1, "can't be inflated"),
    ],
)
def test_a_body_that_is_not_what_its_header_says_is_refused(
    body: bytes, raw_bytes: int, codec: int, pushes: int, problem: str
) -> None:
    parsed = parse_header(header(body, raw_bytes=raw_bytes, codec=codec, pushes=pushes))
    with pytest.raises(FrameError, match=problem):
        split_body(parsed, body)


def test_a_forged_length_takes_no_memory() -> None:
    large = 256 << 20
    writer = zstandard.ZstdCompressor(level=1).compressobj(size=large)
    body = b"".join(writer.compress(bytes(1 << 20)) for _ in range(256)) + writer.flush()
    parsed = parse_header(header(body, raw_bytes=1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(FrameError, match="inflated size"):
            split_body(parsed, body)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
