"""Pushes of an attacker: small on the wire and large in memory, costly to read, or many series.

Owns their bytes. No bomb is ever held inflated here: each is put together from one piece of a
compressor's output.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import cramjam
import lz4.frame
import zstandard

from receiver.settings.model import TelemetrySettings

MAX_BYTES: Final = TelemetrySettings().max_bytes

_MIB: Final = 1 << 20
_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_NAN: Final = b"\x21" + struct.pack("<d", float("nan"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The Metrics field of a push.

    Attributes:
        codec: what it is compressed with.
        compressed: its bytes.
        inflated_bytes: what they inflate to.
    """

    codec: str
    compressed: bytes
    inflated_bytes: int

    @property
    def note(self) -> str:
        """Both sizes and their ratio as text."""
        size = len(self.compressed)
        return f"{size:,} bytes inflate to {self.inflated_bytes:,}: {self.inflated_bytes / size:,.0f} : 1"


def bombs() -> Mapping[str, Payload]:
    """Return the strongest bomb of each codec that has room in a push; the keys are the codecs."""
    return {codec: make() for codec, make in _BOMBS.items()}


def _gzip() -> Payload:
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    start = stream.compress(bytes(_MIB)) + stream.flush(zlib.Z_FULL_FLUSH)
    again = stream.compress(bytes(_MIB)) + stream.flush(zlib.Z_FULL_FLUSH)
    return _repeated("gzip", start, _MIB, again, _MIB)


def _snappy() -> Payload:
    block = bytes(cramjam.snappy.compress_raw(bytes(_MIB)))
    return _repeated("snappy", _XERIAL_HEADER, 0, struct.pack(">i", len(block)) + block, _MIB)


def _lz4() -> Payload:
    block = 4 * _MIB
    frame = lz4.frame.compress(bytes(block), block_size=7, block_linked=False, store_size=False)
    return _repeated("lz4", frame[:7], 0, frame[7:-4], block)


def _zstd() -> Payload:
    # RFC 8878, section 3.1.1.2: a run-length block is four bytes for 128 KiB.
    block = 128 << 10
    run = struct.pack("<I", block << 3 | 1 << 1)[:3] + b"\x00"
    return _repeated("zstd", b"\x28\xb5\x2f\xfd\x00\x58", 0, run, block)


_BOMBS: Final[Mapping[str, Callable[[], Payload]]] = {
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}


def _repeated(codec: str, start: bytes, start_inflated: int, again: bytes, again_inflated: int) -> Payload:
    count = (MAX_BYTES - len(start)) // len(again)
    return Payload(
        codec=codec,
        compressed=start + again * count,
        inflated_bytes=start_inflated + again_inflated * count,
    )


def empty_metrics(*, inflated_bytes: int, metrics: int) -> Payload:
    """Return a valid push of empty metrics, one of which has a value that has to be taken out.

    Args:
        inflated_bytes: its size.
        metrics: how many; as many more bytes as are needed are in the last one's name.
    """
    empty = b"\x12\x00" * (metrics - 1)
    # What is wrapped around them, and the name's own tag and length, take fewer bytes than this.
    name = b"a" * max(1, inflated_bytes - len(empty) - 64)
    return _push(b"", empty + _not_a_number(name))


def entity_keys(*, inflated_bytes: int) -> Payload:
    """Return a valid push whose EntityRef has as many empty keys as fit.

    Few messages and many strings: each is two bytes on the wire, and an object once it is parsed.
    """
    # Resource.entity_refs.id_keys; see opentelemetry-proto, common.proto.
    keys = b"\x1a\x00" * ((inflated_bytes - 96) // 2)
    return _push(_field(0x0A, _field(0x1A, keys)), _not_a_number(b"a"))


def exclamations(*, inflated_bytes: int) -> Payload:
    """Return a valid push whose metric name repeats ``!``, the tag of a double."""
    return _push(b"", _not_a_number(_NAN[:1] * (inflated_bytes - 96)))


def long_name(*, inflated_bytes: int) -> Payload:
    """Return a valid push of one metric with a name as long as the push has room for.

    It costs little to read and as much as any push to store.
    """
    return _push(b"", _field(0x12, _field(0x0A, b"a" * (inflated_bytes - 96)) + _GAUGE))


def many_series(*, series: int) -> Payload:
    """Return a valid push of as many metrics, each a series of its own."""
    return _push(
        b"", b"".join(_field(0x12, _field(0x0A, b"a%x" % number) + _GAUGE) for number in range(series))
    )


def _not_a_number(name: bytes) -> bytes:
    """A metric with a value that has to be taken out, in its ScopeMetrics."""
    return _field(0x12, _field(0x0A, name) + _field(0x2A, _field(0x0A, _NAN)))


def _push(resource: bytes, metrics: bytes) -> Payload:
    data = _field(0x0A, resource + _field(0x12, metrics))
    return Payload(
        codec="zstd", compressed=zstandard.ZstdCompressor().compress(data), inflated_bytes=len(data)
    )


def _field(tag: int, body: bytes) -> bytes:
    length = bytearray()
    size = len(body)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes([tag]) + bytes(length) + body


#: Metric.gauge with one data point, as_double 1.0.
_GAUGE: Final = _field(0x2A, _field(0x0A, b"\x21" + struct.pack("<d", 1.0)))
