"""Encodes and decodes frames: pushes that are written all or not at all.

Owns the format of a frame and of a segment file's header. Does no I/O.

A segment file begins with :data:`FILE_HEADER`, whose last four bytes are the version. Frames
follow, each with a header and a body. The header has, little-endian, the body's stored length, its
inflated length, the codec, the number of pushes, the number of the first push, the oldest receive
time, the body's CRC-32C, and the CRC-32C of all these fields. The body has for each push four bytes
with its length, and the push (:mod:`receiver.host.push_format`). The body is a zstd frame if that
is shorter.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import google_crc32c
import zstandard

from receiver.host.push_format import encode_push
from receiver.plugin import Push

#: The first bytes of a segment file.
FILE_HEADER: Final = b"KCTSPOOL" + (1).to_bytes(4, "little")
#: The most OTLP bytes of a push that can be spooled.
MAX_PUSH_BYTES: Final = 64 << 20

# 4 MiB for the rest of a push: strings from request headers, certificates and settings.
_MAX_RAW_BYTES: Final = MAX_PUSH_BYTES + (4 << 20)
_FIELDS: Final = struct.Struct("<IIIIQqI")
_CRC: Final = struct.Struct("<I")
_LENGTH: Final = struct.Struct("<I")
_NONE: Final = 0
_ZSTD: Final = 1
# Our compression level 1 uses a window of 512 KiB; a much larger window is not from a spool.
_MAX_WINDOW: Final = 8 << 20

#: Size of a frame's header.
HEADER_BYTES: Final = _FIELDS.size + _CRC.size


class FrameError(ValueError):
    """The bytes are no valid frame; the text gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameHeader:
    """A frame's header."""

    body_bytes: int
    """The body's stored length."""
    raw_bytes: int
    """The body's inflated length."""
    compressed: bool
    """Whether the body is a zstd frame."""
    pushes: int
    """The number of pushes, at least 1."""
    first: int
    """The number of the first push."""
    oldest_received_at_ns: int
    """The oldest receive time of the pushes."""
    body_crc: int
    """CRC-32C of the stored body."""

    @property
    def frame_bytes(self) -> int:
        """The size of the whole frame."""
        return HEADER_BYTES + self.body_bytes

    @property
    def end(self) -> int:
        """The number of the last push plus one."""
        return self.first + self.pushes


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """An encoded frame."""

    first: int
    """The number of its first push."""
    end: int
    """The number of its last push plus one."""
    data: bytes


def encode_frames(
    pushes: Sequence[Push], *, first: int, raw_bytes: int, compressor: zstandard.ZstdCompressor
) -> list[Frame]:
    """Encode pushes as the fewest frames of a maximum size.

    Args:
        pushes: The pushes, none longer than :data:`MAX_PUSH_BYTES`.
        first: The number of the first push; the others follow.
        raw_bytes: The most bytes of a frame before compression, unless a single push is longer.
        compressor: A compressor that writes the content's size.
    """
    frames: list[Frame] = []
    records: list[bytes] = []
    size = 0
    oldest = 0
    for push in pushes:
        record = encode_push(push)
        if records and size + _LENGTH.size + len(record) > raw_bytes:
            frames.append(_encode(records, first, oldest, compressor))
            first = frames[-1].end
            records = []
            size = 0
        received_at_ns = push.context.received_at_ns
        oldest = min(oldest, received_at_ns) if records else received_at_ns
        records.append(record)
        size += _LENGTH.size + len(record)
    if records:
        frames.append(_encode(records, first, oldest, compressor))
    return frames


def _encode(records: list[bytes], first: int, oldest: int, compressor: zstandard.ZstdCompressor) -> Frame:
    raw = b"".join(part for record in records for part in (_LENGTH.pack(len(record)), record))
    body, codec = compressor.compress(raw), _ZSTD
    if len(body) >= len(raw):
        body, codec = raw, _NONE
    crc = google_crc32c.value(body)
    fields = _FIELDS.pack(len(body), len(raw), codec, len(records), first, oldest, crc)
    header = fields + _CRC.pack(google_crc32c.value(fields))
    return Frame(first=first, end=first + len(records), data=header + body)


def parse_header(data: bytes) -> FrameHeader:
    """Decode a frame's header.

    Raises:
        FrameError: The header is malformed, or no spool writes such a frame.
    """
    if len(data) != HEADER_BYTES:
        raise FrameError(f"header of {len(data)} bytes: expected {HEADER_BYTES}")
    fields = data[: _FIELDS.size]
    if google_crc32c.value(fields) != _CRC.unpack_from(data, _FIELDS.size)[0]:
        raise FrameError("wrong checksum of the header")
    body_bytes, raw_bytes, codec, pushes, first, oldest, body_crc = _FIELDS.unpack(fields)
    if raw_bytes > _MAX_RAW_BYTES or body_bytes > raw_bytes:
        raise FrameError(f"invalid body of {body_bytes} bytes, {raw_bytes} inflated")
    if not 0 < pushes <= raw_bytes // _LENGTH.size:
        raise FrameError(f"invalid number of pushes: {pushes} in {raw_bytes} bytes")
    if codec not in (_NONE, _ZSTD):
        raise FrameError(f"unsupported codec {codec} (supported: {_NONE}, {_ZSTD})")
    return FrameHeader(
        body_bytes=body_bytes,
        raw_bytes=raw_bytes,
        compressed=codec == _ZSTD,
        pushes=pushes,
        first=first,
        oldest_received_at_ns=oldest,
        body_crc=body_crc,
    )


def split_body(header: FrameHeader, body: bytes) -> list[memoryview]:
    """Check and inflate a frame's body, and return the bytes of each push.

    Raises:
        FrameError: The body does not match the header.
    """
    if len(body) != header.body_bytes:
        raise FrameError(f"the body is truncated: {len(body)} of {header.body_bytes} bytes")
    if google_crc32c.value(body) != header.body_crc:
        raise FrameError("wrong checksum of the body")
    raw = memoryview(_inflate(header, body) if header.compressed else body)
    records: list[memoryview] = []
    at = 0
    for _ in range(header.pushes):
        start = at + _LENGTH.size
        if start > len(raw):
            raise FrameError("the body ends before its last push")
        at = start + _LENGTH.unpack_from(raw, at)[0]
        records.append(raw[start:at])
    if at != len(raw):
        raise FrameError(f"the pushes have {at} bytes, but the body has {len(raw)}")
    return records


def _inflate(header: FrameHeader, body: bytes) -> bytes:
    try:
        # zstandard allocates the size in the zstd frame, whatever limit it is given.
        size = zstandard.frame_content_size(body)
        if size != header.raw_bytes:
            raise FrameError(f"inflated size {size} in the body, but {header.raw_bytes} in the header")
        context = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        return context.decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise FrameError(f"the body can't be inflated: {error}") from error
