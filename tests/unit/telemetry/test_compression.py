"""Inflating with the five codecs: clients' data, damaged data, and bombs."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import lz4.frame
import pytest
import zstandard

from receiver.telemetry.compression import CODECS, inflate
from receiver.telemetry.errors import NotInflatableError, TooLargeError, UnknownCodecError
from receiver.wire import k72_push_telemetry
from receiver.wire.primitives import Reader
from tests.unit.telemetry.parts import JAVA_PRODUCER, payload
from tests.unit.telemetry.zstd_parts import rle_frame
from tests.unit.wire.corpus import Captured, decode_header, load

TEXT = payload(JAVA_PRODUCER)
LIMIT = 1 << 20
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)

PUSHES = [frame for frame in load() if frame.key == 72 and frame.is_request]


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def xerial_snappy(data: bytes, block: int = 4000) -> bytes:
    blocks = [raw_snappy(data[start : start + block]) for start in range(0, len(data), block)]
    return XERIAL_HEADER + b"".join(struct.pack(">i", len(item)) + item for item in blocks)


def streamed_zstd(data: bytes) -> bytes:
    """Compress as clients do: the frame has no content size."""
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(data) + stream.flush()


COMPRESSORS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "none": (0, bytes),
    "gzip": (1, gzip.compress),
    "raw snappy": (2, raw_snappy),
    "xerial snappy": (2, xerial_snappy),
    "lz4": (3, lz4.frame.compress),
    "lz4, linked blocks": (3, lambda data: lz4.frame.compress(data, block_linked=True, block_size=4)),
    "lz4, with checksums": (
        3,
        lambda data: lz4.frame.compress(data, content_checksum=True, block_checksum=True),
    ),
    "zstd": (4, zstandard.ZstdCompressor(write_checksum=True).compress),
    "zstd, streamed": (4, streamed_zstd),
}
BY_NAME = pytest.mark.parametrize("name", COMPRESSORS)


@pytest.mark.parametrize("frame", PUSHES, ids=lambda frame: frame.file)
def test_captured_pushes_inflate(frame: Captured) -> None:
    reader = Reader(frame.data)
    decode_header(reader, frame)
    request = k72_push_telemetry.decode_request(reader, frame.version)
    assert request.metrics is not None
    inflated = inflate(request.compression_type, request.metrics, LIMIT)
    if frame.label.startswith("franz"):
        assert inflated == b"\n\x12\x12\x10\n\x0e\n\x03kgo\x12\x07v1.22.2"
    else:
        assert len(inflated) in (len(TEXT), len(payload("ck-producer-star-01")))
        assert b"org.apache.kafka.producer." in inflated


def test_every_codec_was_captured() -> None:
    assert {frame.decoded["compression"] for frame in PUSHES if frame.decoded} == set(CODECS.values())


@BY_NAME
@pytest.mark.parametrize("size", [0, 1, 100, len(TEXT)])
def test_round_trip_at_exactly_the_limit(name: str, size: int) -> None:
    codec, compress = COMPRESSORS[name]
    compressed = compress(TEXT[:size])
    for data in (compressed, memoryview(compressed)):
        if data or codec == 0:
            assert inflate(codec, data, max(size, 1)) == TEXT[:size]
            if size:
                with pytest.raises(TooLargeError, match=f"more than {size - 1} bytes"):
                    inflate(codec, data, size - 1)


@pytest.mark.parametrize("name", [name for name in COMPRESSORS if name != "none"])
def test_truncated_data_is_refused(name: str) -> None:
    codec, compress = COMPRESSORS[name]
    compressed = compress(TEXT)
    # Xerial's framing has no end marker: a cut between two blocks gives a shorter text.
    between_blocks = set()
    if name == "xerial snappy":
        position = len(XERIAL_HEADER)
        while position < len(compressed):
            between_blocks.add(position)
            position += 4 + struct.unpack_from(">i", compressed, position)[0]
    for end in set(range(len(compressed))) - between_blocks:
        with pytest.raises(NotInflatableError):
            inflate(codec, compressed[:end], LIMIT)
    for end in between_blocks:
        assert TEXT.startswith(inflate(codec, compressed[:end], LIMIT))


@pytest.mark.parametrize("name", [name for name in COMPRESSORS if name != "none"])
@pytest.mark.parametrize("tail", [b"x", b"\x00", b"\x00" * 8, b"garbage that is no frame"])
def test_trailing_bytes_are_refused(name: str, tail: bytes) -> None:
    codec, compress = COMPRESSORS[name]
    if name == "xerial snappy" and not tail.strip(b"\x00"):
        tail = tail[:3]
    with pytest.raises((NotInflatableError, TooLargeError)):
        inflate(codec, compress(TEXT) + tail, LIMIT)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("data", [b"\xff", b"\xff" * 40, b"{}", TEXT, bytes(100)])
def test_data_of_another_format_is_refused(codec: int, data: bytes) -> None:
    with pytest.raises((NotInflatableError, TooLargeError)):
        inflate(codec, data, LIMIT)


@pytest.mark.parametrize("name", ["gzip", "lz4", "zstd", "zstd, streamed"])
def test_concatenated_parts_are_one_text(name: str) -> None:
    codec, compress = COMPRESSORS[name]
    assert inflate(codec, compress(TEXT) + compress(b"") + compress(b"end"), LIMIT) == TEXT + b"end"
    assert inflate(codec, compress(b"a") * 64, LIMIT) == b"a" * 64
    with pytest.raises(NotInflatableError, match="more than 64 parts"):
        inflate(codec, compress(b"a") * 65, LIMIT)
    with pytest.raises(TooLargeError):
        inflate(codec, compress(TEXT) * 3, 3 * len(TEXT) - 1)


@pytest.mark.parametrize("size", [1 << 17, (1 << 17) + 1, 1 << 20, (1 << 20) + 1, 3_000_000])
@pytest.mark.parametrize("name", ["zstd", "zstd, streamed", "lz4", "gzip", "raw snappy", "xerial snappy"])
def test_texts_of_many_blocks(name: str, size: int) -> None:
    codec, compress = COMPRESSORS[name]
    text = (TEXT * (size // len(TEXT) + 1))[:size]
    compressed = compress(text)
    assert inflate(codec, compressed, size) == text
    with pytest.raises(TooLargeError):
        inflate(codec, compressed, size - 1)


@pytest.mark.parametrize("codec", [-1, 5, 127, -128])
def test_another_codec_is_unknown(codec: int) -> None:
    with pytest.raises(UnknownCodecError, match=f"compression type {codec} is unknown"):
        inflate(codec, b"x", LIMIT)


def test_a_checksum_that_is_wrong_is_refused() -> None:
    for name in ("gzip", "lz4, with checksums", "zstd"):
        codec, compress = COMPRESSORS[name]
        damaged = bytearray(compress(TEXT))
        damaged[-5 if name == "gzip" else -1] ^= 1
        with pytest.raises(NotInflatableError):
            inflate(codec, bytes(damaged), LIMIT)


def test_a_forged_snappy_preamble_is_refused() -> None:
    claims = b"\xff\xff\xff\xff\x0f" + raw_snappy(b"abc")[1:]
    with pytest.raises(TooLargeError):
        inflate(2, claims, LIMIT)
    with pytest.raises(TooLargeError):
        inflate(2, XERIAL_HEADER + struct.pack(">i", len(claims)) + claims, LIMIT)
    with pytest.raises(NotInflatableError):
        inflate(2, b"\xff\xff\xff\xff\xff\x0f", LIMIT)
    with pytest.raises(NotInflatableError):
        inflate(2, b"\x05" + raw_snappy(b"abc")[1:], LIMIT)
    with pytest.raises(NotInflatableError):
        inflate(2, XERIAL_HEADER + struct.pack(">i", -1) + b"abc", LIMIT)


def test_a_zstd_window_is_bounded() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    with pytest.raises(TooLargeError, match="window of more than 8388608 bytes"):
        inflate(4, stream.compress(b"short") + stream.flush(), LIMIT)
    # The decompressor that refused can be used again.
    assert inflate(4, streamed_zstd(TEXT), LIMIT) == TEXT


def test_too_many_blocks_are_refused_quickly() -> None:
    empty_block = struct.pack("<I", 0)[:3]
    frame = b"\x28\xb5\x2f\xfd\x00\x58" + empty_block * 300_000 + b"\x01\x00\x00"
    xerial = XERIAL_HEADER + (struct.pack(">i", 1) + b"\x00") * 200_000
    members = gzip.compress(b"") * 50_000
    started = time.process_time()
    for codec, data in ((4, frame), (2, xerial), (1, members)):
        with pytest.raises(NotInflatableError, match="has more than"):
            inflate(codec, data, 8 << 20)
    assert time.process_time() - started < 1


# Ten gigabytes of zeros each, as real compressors make them. They are put together from one piece
# of their output, because compressing so much takes a minute.
TEN_GB = 10 << 30


def gzip_bomb() -> bytes:
    piece = 1 << 20
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    start = stream.compress(bytes(piece)) + stream.flush(zlib.Z_FULL_FLUSH)
    again = stream.compress(bytes(piece)) + stream.flush(zlib.Z_FULL_FLUSH)
    return start + again * (TEN_GB // piece)


def lz4_bomb() -> bytes:
    piece = 4 << 20
    frame: bytes = lz4.frame.compress(bytes(piece), block_size=7, block_linked=False, store_size=False)
    return frame[:7] + frame[7:-4] * (TEN_GB // piece) + frame[-4:]


def xerial_bomb() -> bytes:
    block = raw_snappy(bytes(1 << 20))
    return XERIAL_HEADER + (struct.pack(">i", len(block)) + block) * 100


BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip": (1, gzip_bomb),
    "lz4": (3, lz4_bomb),
    "xerial": (2, xerial_bomb),
    "zstd": (4, lambda: rle_frame(TEN_GB)),
    "zstd, compressed": (4, lambda: streamed_zstd(bytes(1 << 30))),
}


MEASURE = """
import sys, time
from pathlib import Path
from receiver.telemetry.compression import TooLargeError, inflate

def high_water_mark():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

codec, limit = int(sys.argv[1]), int(sys.argv[2])
bomb = Path(sys.argv[3]).read_bytes()
before = high_water_mark()
started = time.process_time()
try:
    inflate(codec, bomb, limit)
except TooLargeError:
    print(time.process_time() - started, high_water_mark() - before)
"""


def measure(codec: int, bomb: bytes, limit: int, folder: Path) -> tuple[float, int]:
    """Inflate in a new process; return CPU seconds, and the growth of its memory in bytes.

    The high-water mark of a process does not go down: a bomb made there would hide what inflating
    it takes.
    """
    path = folder / "bomb"
    path.write_bytes(bomb)
    command = [sys.executable, "-c", MEASURE, str(codec), str(limit), str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, grown = run.stdout.split()
    return float(seconds), int(grown)


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_cost_no_more_than_the_limit(name: str, tmp_path: Path) -> None:
    codec, make = BOMBS[name]
    limit = 8 << 20
    seconds, grown = measure(codec, make(), limit, tmp_path)
    assert seconds < 0.5
    # The limit, one chunk, and the decompressor's own memory: a zstd window of up to 8 MiB, lz4
    # blocks of 4 MiB.
    assert limit / 2 < grown < limit + (16 << 20)


def test_bombs_inflate_to_their_stated_size() -> None:
    assert len(gzip_bomb()) < TEN_GB / 900
    inflated = zlib.decompressobj(31).decompress(gzip_bomb(), 3 << 20)
    assert inflated == bytes(3 << 20)
    assert lz4.frame.LZ4FrameDecompressor().decompress(lz4_bomb(), max_length=9 << 20) == bytes(9 << 20)
    with zstandard.ZstdDecompressor().stream_reader(rle_frame(TEN_GB)) as reader:
        assert reader.read(3 << 20) == bytes(3 << 20)
    assert inflate(4, rle_frame(3 << 20), 3 << 20) == bytes(3 << 20)
