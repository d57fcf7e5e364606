"""Inflating: damaged compressed pushes, and damaged pushes compressed correctly.

An input's first byte is the codec, its second the limit on what comes out, as a power of two.
"""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Callable
from pathlib import Path
from random import Random

import cramjam
import lz4.frame
import zstandard

from receiver.telemetry.compression import inflate
from receiver.telemetry.errors import PushError
from tests.fuzz.mutation import Mutator
from tests.fuzz.target import Target, require

_PAYLOADS = Path(__file__).parents[2] / "data" / "payloads"
_MAX_BYTES = 8192

#: Texts of the decoders, which our errors must not contain.
_MAX_ERROR_CHARACTERS = 120


def _run(data: bytes) -> None:
    if len(data) < 3:
        return
    limit = 1 << (data[1] % 21)
    codec = data[0] % 6 - (data[0] == 255)
    try:
        inflated = inflate(codec, memoryview(data)[2:], limit)
    except PushError as error:
        require(len(str(error)) <= _MAX_ERROR_CHARACTERS, "an error as long as the bytes allow")
        return
    require(len(inflated) <= limit, f"{len(inflated)} bytes came out, and {limit} is the limit")
    # A decompressor is reused: nothing of the last push may be left in it.
    require(inflate(codec, data[2:], limit) == inflated, "the second time something else came out")
    if inflated:
        with contextlib.suppress(PushError):
            inflate(codec, data[2:], len(inflated) - 1)
            require(False, "a limit of one byte less let it through")


def _xerial(data: bytes, block: int) -> bytes:
    blocks = [
        bytes(cramjam.snappy.compress_raw(data[start : start + block]))
        for start in range(0, len(data), block)
    ]
    header = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2
    return header + b"".join(len(part).to_bytes(4, "big") + part for part in blocks)


#: Compressors by codec, with random parameters.
_COMPRESS: dict[int, tuple[Callable[[bytes, Random], bytes], ...]] = {
    0: (lambda data, _: data,),
    1: (lambda data, random: gzip.compress(data, random.randrange(10), mtime=0),),
    2: (
        lambda data, _: bytes(cramjam.snappy.compress_raw(data)),
        lambda data, random: _xerial(data, random.choice((1, 64, 1024, 32768))),
    ),
    3: (
        lambda data, random: lz4.frame.compress(
            data,
            content_checksum=random.random() < 0.5,
            block_checksum=random.random() < 0.5,
            block_linked=random.random() < 0.5,
            store_size=random.random() < 0.5,
            block_size=random.choice((4, 5)),
        ),
    ),
    4: (
        lambda data, random: zstandard.ZstdCompressor(
            level=random.choice((-5, 1, 3)),
            write_checksum=random.random() < 0.5,
            write_content_size=random.random() < 0.5,
        ).compress(data),
    ),
}


def _plain() -> list[bytes]:
    captured = sorted((path.read_bytes() for path in _PAYLOADS.glob("*.bin")), key=len)
    return [b"\n\x00", b"a" * 5000, bytes(range(256)), *captured[:4]]


def _compressed(plain: bytes, codec: int, random: Random) -> bytes:
    return random.choice(_COMPRESS[codec])(plain, random)


def _seeds() -> list[bytes]:
    random = Random(0)
    seeds = [
        bytes([codec, 20]) + _compressed(plain, codec, random)
        for codec in _COMPRESS
        for plain in _plain()
        for _ in range(3)
    ]
    # Concatenated frames, and a frame after the end of another.
    seeds += [seed + seed[2:] for seed in seeds if len(seed) < 500]
    return seeds


_PLAIN = _plain()


def _reshape(data: bytes, random: Random) -> bytes:
    """Compress damaged bytes: the checksums are right, so decoders read to the end."""
    codec = random.randrange(5)
    plain = Mutator(random, (), _MAX_BYTES).mutate(random.choice(_PLAIN), data[2:])
    parts = [_compressed(plain, codec, random)]
    while random.random() < 0.2:
        parts.append(_compressed(plain[: random.randrange(200)], codec, random))
    return bytes([codec, random.randrange(21)]) + b"".join(parts)


_TOKENS = (
    b"\x1f\x8b\x08",
    b"\x82SNAPPY\x00",
    b"\x04\x22\x4d\x18",
    b"\x28\xb5\x2f\xfd",
    b"\x50\x2a\x4d\x18",  # a skippable frame, of lz4 and of zstd
    b"\xfe\xff\x01\x00",
    b"\x00\x00\x00\x00",
)

TARGET = Target(
    name="codecs",
    run=_run,
    seeds=_seeds,
    tokens=_TOKENS,
    reshape=_reshape,
    max_bytes=_MAX_BYTES,
    # A zstd window of 8 MiB, and the output twice while its chunks are joined.
    max_memory=24 << 20,
    brief=40_000,
)
