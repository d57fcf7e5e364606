"""Writer for the primitive types of the Kafka protocol.

Source: the Kafka protocol guide, "Protocol Primitive Types"; KIP-482 for compact types and tagged
fields.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from receiver.wire.uuid import Uuid

#: Types that a message can be read from.
Buffer = bytes | bytearray | memoryview

#: Unknown tagged fields in the order of arrival: pairs of tag and raw bytes.
TaggedFields = tuple[tuple[int, bytes], ...]

#: The longest string in bytes; Kafka refuses longer ones in the compact form too.
MAX_STRING_BYTES: Final = 0x7FFF

#: The greatest unsigned varint.
MAX_UINT32: Final = 0xFFFFFFFF

_MAX_INT32 = 0x7FFFFFFF
_INT16 = Struct(">h")
_INT32 = Struct(">i")


class Writer:
    """Appends the fields of a message to a buffer.

    A value that its type cannot hold raises ``ValueError`` (a string or count that is too long),
    ``OverflowError`` or ``struct.error`` (an integer out of range). This is a mistake of the
    caller, never of the peer.
    """

    __slots__ = ("_out",)

    def __init__(self) -> None:
        self._out = bytearray()

    def __len__(self) -> int:
        return len(self._out)

    def take(self) -> bytes:
        """Return a copy of the bytes written so far."""
        return bytes(self._out)

    def fixed(self, layout: Struct, *values: object) -> None:
        """Append several fields of fixed size at once."""
        self._out += layout.pack(*values)

    def raw(self, value: Buffer) -> None:
        """Append bytes that are encoded already."""
        self._out += value

    def int8(self, value: int) -> None:
        """Append a signed integer of one byte."""
        self._out += value.to_bytes(1, "big", signed=True)

    def int16(self, value: int) -> None:
        """Append a signed integer of two bytes."""
        self._out += _INT16.pack(value)

    def int32(self, value: int) -> None:
        """Append a signed integer of four bytes."""
        self._out += _INT32.pack(value)

    def boolean(self, value: bool) -> None:  # noqa: FBT001 - the value to write, not a switch
        """Append a boolean of one byte."""
        self._out.append(1 if value else 0)

    def uuid(self, value: Uuid) -> None:
        """Append a uuid of sixteen bytes."""
        if len(value) != 16:
            raise ValueError(f"a uuid has 16 bytes, not {len(value)}")
        self._out += value

    def unsigned_varint(self, value: int) -> None:
        """Append an unsigned 32-bit integer in base 128, in as few bytes as possible."""
        if not 0 <= value <= MAX_UINT32:
            raise ValueError(f"{value} is not an unsigned integer of 32 bits")
        while value > 0x7F:
            self._out.append(value & 0x7F | 0x80)
            value >>= 7
        self._out.append(value)

    def string(self, value: str) -> None:
        """Append a string with a length of two bytes."""
        encoded = _encoded(value)
        self._out += _INT16.pack(len(encoded))
        self._out += encoded

    def nullable_string(self, value: str | None) -> None:
        """Append a string with a length of two bytes, or null."""
        if value is None:
            self._out += b"\xff\xff"
        else:
            self.string(value)

    def compact_string(self, value: str) -> None:
        """Append a string with a varint length."""
        encoded = _encoded(value)
        self.unsigned_varint(len(encoded) + 1)
        self._out += encoded

    def compact_nullable_string(self, value: str | None) -> None:
        """Append a string with a varint length, or null."""
        if value is None:
            self._out.append(0)
        else:
            self.compact_string(value)

    def bytes_field(self, value: bytes) -> None:
        """Append bytes with a length of four bytes."""
        self._out += _INT32.pack(len(value))
        self._out += value

    def compact_bytes_field(self, value: bytes) -> None:
        """Append bytes with a varint length."""
        self.unsigned_varint(len(value) + 1)
        self._out += value

    def array_length(self, length: int | None) -> None:
        """Append the length of an array (four bytes), or null."""
        self._out += _INT32.pack(-1 if length is None else _checked_length(length))

    def compact_array_length(self, length: int | None) -> None:
        """Append the varint length of an array, or null."""
        self.unsigned_varint(0 if length is None else _checked_length(length) + 1)

    def tagged_fields(self, fields: TaggedFields) -> None:
        """Append tagged fields; the caller orders them by ascending tag (KIP-482)."""
        if not fields:
            self._out.append(0)
            return
        self.unsigned_varint(len(fields))
        for tag, value in fields:
            self.unsigned_varint(tag)
            self.unsigned_varint(len(value))
            self._out += value


def _encoded(value: str) -> bytes:
    encoded = value.encode()
    if len(encoded) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(encoded)} bytes is longer than the protocol's {MAX_STRING_BYTES}")
    return encoded


def _checked_length(length: int) -> int:
    if not 0 <= length <= _MAX_INT32:
        raise ValueError(f"{length} is not a valid array length")
    return length
