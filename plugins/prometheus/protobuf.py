"""Encodes the protobuf fields of remote write."""

from __future__ import annotations

from typing import Final

_UINT64: Final = (1 << 64) - 1


def varint(number: int) -> bytes:
    """Encode an integer; negative ones as 64-bit two's complement."""
    if 0 <= number < len(_SHORT):
        return _SHORT[number]
    number &= _UINT64
    encoded = bytearray()
    while number >= 128:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


#: Cache for nearly all lengths and symbol references.
_SHORT: list[bytes] = []
_SHORT += [varint(number) for number in range(2_048)]


def zigzag(number: int) -> int:
    """Map a ``sint64`` to the integer that its varint encodes."""
    return number << 1 if number >= 0 else (-number << 1) - 1


def delimited(tag: bytes, content: bytes) -> bytes:
    """Encode a length-delimited field: its tag, the content's length, the content."""
    return tag + varint(len(content)) + content
