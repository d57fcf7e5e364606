"""Writes and reads message bodies by Kafka's definitions, as trees of Python values.

A struct is a dictionary of its version's fields. Under :data:`UNKNOWN_TAGS` it has the tagged
fields that the definition does not know, as pairs of a tag and its bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from tests.fuzz.differential.schemas import Field, Struct

Tree: TypeAlias = dict[str, Any]

UNKNOWN_TAGS: Final = "unknown tags"

_FIXED: Final[Mapping[str, struct.Struct]] = {
    "bool": struct.Struct(">?"),
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
    "uuid": struct.Struct(">16s"),
}
_INT8, _INT16, _INT32 = (_FIXED[name] for name in ("int8", "int16", "int32"))


class MalformedError(Exception):
    """Bytes that are not the message that they should be."""


def uvarint(value: int) -> bytes:
    """Write an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tagged_fields(fields: list[tuple[int, bytes]]) -> bytes:
    """Write tagged fields in the order of their tags."""
    parts = [uvarint(tag) + uvarint(len(value)) + value for tag, value in sorted(fields)]
    return uvarint(len(parts)) + b"".join(parts)


def encode(message: Struct, tree: Tree, version: int, *, flexible: bool) -> bytes:
    """Write a message.

    Args:
        message: Its definition.
        tree: Its values; tagged fields may be missing.
        version: The version to write.
        flexible: Whether the version has compact types and tagged fields.
    """
    plain, tagged = message.of(version)
    out = [_encode_field(field, tree[field.name], version, flexible) for field in plain]
    if flexible:
        fields = list(tree.get(UNKNOWN_TAGS, ()))
        fields += [
            (field.tag, _encode_field(field, tree[field.name], version, flexible))
            for field in tagged
            if field.tag is not None and field.name in tree
        ]
        out.append(tagged_fields(fields))
    return b"".join(out)


def _encode_field(field: Field, value: Any, version: int, flexible: bool) -> bytes:
    if not field.is_array:
        return _encode_value(field, value, version, flexible)
    if value is None:
        return _length(-1, flexible)
    items = [_encode_item(field, item, version, flexible) for item in value]
    return _length(len(items), flexible) + b"".join(items)


def _encode_item(field: Field, value: Any, version: int, flexible: bool) -> bytes:
    if field.struct is not None:
        return encode(field.struct, value, version, flexible=flexible)
    return _encode_value(field, value, version, flexible)


def _encode_value(field: Field, value: Any, version: int, flexible: bool) -> bytes:
    fixed = _FIXED.get(field.kind)
    if fixed is not None:
        return fixed.pack(value)
    if field.struct is not None:
        if version not in field.nullable:
            return encode(field.struct, value, version, flexible=flexible)
        if value is None:
            return _INT8.pack(-1)
        return _INT8.pack(1) + encode(field.struct, value, version, flexible=flexible)
    if value is None:
        return _length(-1, flexible, short=field.kind == "string")
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
    return _length(len(data), flexible, short=field.kind == "string") + data


def _length(length: int, flexible: bool, *, short: bool = False) -> bytes:
    if flexible:
        return uvarint(length + 1)
    return (_INT16 if short else _INT32).pack(length)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise MalformedError(f"{size} bytes at offset {self.at} of {len(self.data)}")
        self.at += size
        return self.data[self.at - size : self.at]

    def fixed(self, kind: struct.Struct) -> Any:
        return kind.unpack(self.take(kind.size))[0]

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise MalformedError(f"an endless varint at offset {self.at}")

    def length(self, flexible: bool, *, short: bool = False) -> int:
        if flexible:
            return self.uvarint() - 1
        return int(self.fixed(_INT16 if short else _INT32))


def decode(message: Struct, data: bytes, version: int, *, flexible: bool) -> Tree:
    """Read a whole message.

    Raises:
        MalformedError: The bytes are not this message, or there are more of them, or they would be
            written in another way.
    """
    reader = _Reader(data)
    tree = _decode(message, reader, version, flexible)
    if reader.at != len(data):
        raise MalformedError(f"{len(data) - reader.at} bytes behind the message")
    if encode(message, tree, version, flexible=flexible) != data:
        raise MalformedError("the same values have other bytes")
    return tree


def _decode(message: Struct, reader: _Reader, version: int, flexible: bool) -> Tree:
    plain, tagged = message.of(version)
    tree: Tree = {field.name: _decode_field(field, reader, version, flexible) for field in plain}
    if not flexible:
        return tree
    known = {field.tag: field for field in tagged}
    unknown = []
    for _ in range(reader.uvarint()):
        tag = reader.uvarint()
        value = reader.take(reader.uvarint())
        if tag in known:
            inner = _Reader(value)
            tree[known[tag].name] = _decode_field(known[tag], inner, version, flexible)
            if inner.at != len(value):
                raise MalformedError(f"bytes behind tagged field {tag}")
        else:
            unknown.append((tag, value))
    if unknown:
        tree[UNKNOWN_TAGS] = unknown
    return tree


def _decode_field(field: Field, reader: _Reader, version: int, flexible: bool) -> Any:
    if not field.is_array:
        return _decode_value(field, reader, version, flexible)
    length = reader.length(flexible)
    if length < 0:
        return None
    if (message := field.struct) is not None:
        return [_decode(message, reader, version, flexible) for _ in range(length)]
    return [_decode_value(field, reader, version, flexible) for _ in range(length)]


def _decode_value(field: Field, reader: _Reader, version: int, flexible: bool) -> Any:
    fixed = _FIXED.get(field.kind)
    if fixed is not None:
        return reader.fixed(fixed)
    if field.struct is not None:
        if version in field.nullable and reader.fixed(_INT8) < 0:
            return None
        return _decode(field.struct, reader, version, flexible)
    length = reader.length(flexible, short=field.kind == "string")
    if length < 0:
        return None
    data = reader.take(length)
    return data.decode("utf-8", "surrogateescape") if field.kind == "string" else data
