"""Metrics for pushes: good ones in every codec, and bad ones of every kind."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Final

import cramjam
import lz4.frame
import zstandard

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

#: A small push of a real client's.
OTLP: Final = (
    Path(__file__).parents[1] / "data" / "payloads" / "franz-producer-okprefix-02.bin"
).read_bytes()

#: Bytes that are no protobuf message: a field of wire type 7.
GARBAGE: Final = b"\x0f not protobuf at all"

#: A protobuf message without metrics: its one field is not in OTLP.
OTHER_MESSAGE: Final = b"\xfa\x3f\x03abc"

TELEMETRY_MAX_BYTES: Final = 1_048_576

#: Inflates to twice what the receiver takes inflated, and is small itself.
_BOMB: Final = bytes(16 * 1024 * 1024)


def xerial(data: bytes) -> bytes:
    """Snappy as Java clients frame it: a header, and blocks with their lengths."""
    block = bytes(cramjam.snappy.compress_raw(data))
    return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block


def raw_snappy(data: bytes) -> bytes:
    """Snappy as librdkafka and franz-go send it: one block and nothing else."""
    return bytes(cramjam.snappy.compress_raw(data))


def zstd(data: bytes) -> bytes:
    """zstd as clients send it: as a stream, without the content's size."""
    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


COMPRESSED: Final = {
    "gzip": (GZIP, gzip.compress(OTLP)),
    "raw snappy": (SNAPPY, raw_snappy(OTLP)),
    "snappy with the xerial header": (SNAPPY, xerial(OTLP)),
    "lz4": (LZ4, lz4.frame.compress(OTLP)),
    "zstd": (ZSTD, zstd(OTLP)),
}
#: For each codec: bytes in another format, and a truncated stream.
CORRUPT: Final = {
    "gzip garbage": (GZIP, GARBAGE),
    "gzip cut off": (GZIP, COMPRESSED["gzip"][1][:-20]),
    "snappy garbage": (SNAPPY, b"\xff" * 40),
    "snappy cut off": (SNAPPY, COMPRESSED["raw snappy"][1][:-20]),
    "xerial cut off": (SNAPPY, COMPRESSED["snappy with the xerial header"][1][:-20]),
    "lz4 garbage": (LZ4, GARBAGE),
    "lz4 cut off": (LZ4, COMPRESSED["lz4"][1][:-20]),
    "zstd garbage": (ZSTD, GARBAGE),
    "zstd cut off": (ZSTD, COMPRESSED["zstd"][1][:-20]),
}
BOMBS: Final = {
    "gzip": (GZIP, gzip.compress(_BOMB)),
    "raw snappy": (SNAPPY, raw_snappy(_BOMB)),
    "lz4": (LZ4, lz4.frame.compress(_BOMB)),
    "zstd": (ZSTD, zstd(_BOMB)),
}
