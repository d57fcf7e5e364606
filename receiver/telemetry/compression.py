"""Inflates pushes under bounds on size and time (KIP-714, "Compression").

At most one chunk more than the limit comes out, whatever goes in, and no decompressor gets a window
larger than the bound.

Compression types: 0 none, 1 gzip, 2 snappy (raw, or in xerial's framing as Java clients send it), 3
lz4 (its frame format), 4 zstd. Several gzip members, lz4 frames or zstd frames in a row are one
text.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import cramjam
import lz4.frame
import zstandard

from receiver.telemetry.errors import NotInflatableError, PushError, TooLargeError, UnknownCodecError

#: KIP-714's compression types by name.
CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
CODEC_NAMES: Final = {codec: name for name, codec in CODECS.items()}

# Bytes that a decompressor returns at a time, and gets at a time.
_CHUNK: Final = 1 << 18
_PIECE: Final = 1 << 16
# The maximum number of members or frames, each of which costs a new decompressor. Clients send one.
_MAX_FRAMES: Final = 64
# Blocks in one push, plus one for every 4 KiB of the limit. Clients' blocks hold 32 KiB and more.
_MIN_BLOCKS: Final = 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = len(_XERIAL_MAGIC) + 8

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
# RFC 8878, section 3.1.1.1.2: decoders should support 8 MiB; zstd's levels up to 19 need no more.
_ZSTD_WINDOW: Final = 1 << 23
# RFC 8878, section 3.1.1.2: a block holds at most 128 KiB, so these blocks hold at most 1 MiB.
_ZSTD_BLOCKS_AT_A_TIME: Final = 8

# The first bytes of metrics in each codec. Those of a MetricsData are the tag of its one field.
_MAGIC: Final = (
    (b"\x0a", CODECS["none"]),
    (b"\x1f\x8b", CODECS["gzip"]),
    (_ZSTD_MAGIC, CODECS["zstd"]),
    (b"\x04\x22\x4d\x18", CODECS["lz4"]),
)

_UINT32_BE = struct.Struct(">I")

# A new decompression context takes longer than inflating a small push. A call removes a context and
# puts it back, so that no two calls share one.
_ZSTD_IDLE: deque[zstandard.ZstdDecompressor] = deque(maxlen=2)


def sniff(data: bytes | memoryview) -> int:
    """Return the codec of metrics by their first bytes, if its name got lost.

    Raw snappy has none of its own, so it is what is left. Kafka 3.7 loses the type.
    """
    first = bytes(data[:4])
    return next((codec for magic, codec in _MAGIC if first.startswith(magic)), CODECS["snappy"])


def inflate(codec: int, data: bytes | memoryview, limit: int) -> bytes:
    """Inflate a push, which is not empty, to at most ``limit`` bytes.

    Raises:
        UnknownCodecError: The codec is none of the five.
        TooLargeError: The result is larger, or zstd needs a window of more than 8 MiB.
        NotInflatableError: The bytes are truncated, damaged, or followed by others.

    Source: KIP-714, "Compression"; Kafka's ``CompressionType``; RFC 1952, RFC 8878, the lz4 frame
    format.
    """
    inflater = _INFLATERS.get(codec)
    if inflater is None:
        raise UnknownCodecError(f"compression type {codec} is unknown")
    chunks: list[bytes] = []
    try:
        inflater(data, limit, chunks)
    except PushError as error:
        error.inflated_bytes += sum(map(len, chunks))
        raise
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _none(data: bytes | memoryview, limit: int, chunks: list[bytes]) -> None:
    if len(data) > limit:
        raise _too_large(limit)
    chunks.append(bytes(data))


class _Gzip:
    """Adapts zlib's decompressor of one gzip member to the interface of lz4's."""

    __slots__ = ("_zlib",)

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    def decompress(self, data: bytes | memoryview, max_length: int) -> bytes:
        return self._zlib.decompress(data or self._zlib.unconsumed_tail, max_length)


def _framed(
    name: str, decompressor: Callable[[], Any], data: bytes | memoryview, limit: int, chunks: list[bytes]
) -> None:
    room = limit
    position = 0
    try:
        for _ in range(_MAX_FRAMES):
            frame = decompressor()
            needs_input = True
            while not frame.eof:
                # In pieces, because decompressors copy unused input.
                piece = data[position : position + _PIECE] if needs_input else b""
                if needs_input and not piece:
                    raise NotInflatableError(f"the {name} data is truncated")
                position += len(piece)
                max_length = min(room + 1, _CHUNK)
                chunk = frame.decompress(piece, max_length=max_length)
                needs_input = len(chunk) < max_length and frame.needs_input
                chunks.append(chunk)
                room -= len(chunk)
                if room < 0:
                    raise _too_large(limit)
            position -= len(frame.unused_data or b"")
            if position == len(data):
                return
    except (zlib.error, RuntimeError) as error:
        raise NotInflatableError(f"the bytes are no {name} data") from error
    raise NotInflatableError(f"the {name} data has more than {_MAX_FRAMES} parts")


def _snappy(data: bytes | memoryview, limit: int, chunks: list[bytes]) -> None:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        chunks.append(_snappy_block(data, limit, limit))
        return
    room = limit
    max_blocks = _MIN_BLOCKS + limit // 4096
    for block in _xerial_blocks(data):
        if len(chunks) == max_blocks:
            raise NotInflatableError(f"the snappy data has more than {max_blocks} blocks")
        chunk = _snappy_block(block, room, limit)
        room -= len(chunk)
        chunks.append(chunk)


def _xerial_blocks(data: bytes | memoryview) -> Iterator[bytes | memoryview]:
    """Walk snappy-java's stream: a 16-byte header, then blocks with a length each."""
    position = _XERIAL_HEADER_BYTES
    if len(data) < position:
        raise NotInflatableError("the snappy data is truncated")
    while position < len(data):
        if len(data) - position < _UINT32_BE.size:
            raise NotInflatableError("the snappy data is truncated")
        (size,) = _UINT32_BE.unpack_from(data, position)
        position += _UINT32_BE.size
        if size > len(data) - position:
            raise NotInflatableError("the snappy data is truncated")
        yield data[position : position + size]
        position += size


def _snappy_block(block: bytes | memoryview, room: int, limit: int) -> bytes:
    # The preamble has the inflated size, and the decoder allocates it before it reads on.
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise NotInflatableError("the bytes are no snappy data")
    if size > room:
        raise _too_large(limit)
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        # The decoder does not say how much it inflated.
        raise NotInflatableError("the bytes are no snappy data", inflated_bytes=size) from error


def _zstd(data: bytes | memoryview, limit: int, chunks: list[bytes]) -> None:
    try:
        context = _ZSTD_IDLE.pop()
    except IndexError:
        context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    try:
        _zstd_frames(context, data, limit, chunks)
    except zstandard.ZstdError as error:
        if "too much memory" in str(error):
            raise TooLargeError(f"wants a zstd window of more than {_ZSTD_WINDOW} bytes") from error
        raise NotInflatableError("the bytes are no zstd data") from error
    finally:
        _ZSTD_IDLE.append(context)


def _zstd_frames(
    context: zstandard.ZstdDecompressor, data: bytes | memoryview, limit: int, chunks: list[bytes]
) -> None:
    room = limit
    position = 0
    for _ in range(_MAX_FRAMES):
        frame = context.decompressobj()
        for end in _zstd_cuts(data, position, _MIN_BLOCKS + limit // 4096):
            chunk = frame.decompress(data[position:end])
            position = end
            chunks.append(chunk)
            room -= len(chunk)
            if room < 0:
                raise _too_large(limit)
        if not frame.eof:
            raise NotInflatableError("the bytes are no zstd data")
        if position == len(data):
            return
    raise NotInflatableError(f"the zstd data has more than {_MAX_FRAMES} parts")


def _zstd_cuts(data: bytes | memoryview, start: int, max_blocks: int) -> Iterator[int]:
    """Yield the ends of a frame's pieces, each of which inflates to few blocks.

    zstandard has no bound on its output, clients send no content size, and four bytes may inflate
    to 128 KiB. The walk also finds the end of the frame, so a truncated frame is detected.
    """
    position, checksum = _zstd_header(data, start)
    for count in range(1, max_blocks + 1):
        header = data[position : position + 3]
        if len(header) < 3:
            raise NotInflatableError("the zstd data is truncated")
        block = header[0] | header[1] << 8 | header[2] << 16
        # RFC 8878, section 3.1.1.2: a run-length block (type 1) has one byte, whatever its
        # size field.
        position += 3 + (1 if (block >> 1) & 3 == 1 else block >> 3)
        last = block & 1
        if last:
            position += checksum
        if position > len(data):
            raise NotInflatableError("the zstd data is truncated")
        if last or count % _ZSTD_BLOCKS_AT_A_TIME == 0:
            yield position
        if last:
            return
    raise NotInflatableError(f"the zstd data has more than {max_blocks} blocks")


def _zstd_header(data: bytes | memoryview, start: int) -> tuple[int, int]:
    """Return the first block's start and the checksum's size (RFC 8878, 3.1.1.1)."""
    if len(data) - start < 5:
        raise NotInflatableError("the zstd data is truncated")
    if data[start : start + 4] != _ZSTD_MAGIC:
        raise NotInflatableError("the bytes are no zstd data")
    descriptor = data[start + 4]
    single_segment = descriptor >> 5 & 1
    content_size = (single_segment, 2, 4, 8)[descriptor >> 6]
    dictionary_id = (0, 1, 2, 4)[descriptor & 3]
    return start + 5 + (1 - single_segment) + dictionary_id + content_size, 4 if descriptor & 4 else 0


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"inflates to more than {limit} bytes")


_INFLATERS: Final[dict[int, Callable[[bytes | memoryview, int, list[bytes]], None]]] = {
    0: _none,
    1: partial(_framed, "gzip", _Gzip),
    2: _snappy,
    3: partial(_framed, "lz4", lz4.frame.LZ4FrameDecompressor),
    4: _zstd,
}
