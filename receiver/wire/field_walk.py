"""Walks over a flexible message that arrives in pieces, and keeps nothing.

A message is described by a tuple of fields (:data:`Fields`). The cost is per field, not per byte:
records and strings are skipped by their length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from receiver.wire.errors import WireError


@dataclass(frozen=True, slots=True)
class Array:
    """A compact array, which may be null."""

    item: Fields


#: Compact bytes, records or a compact string; each may be null.
DATA: Final = -1

#: Tagged fields.
TAGGED_FIELDS: Final = -2

#: A number of bytes, :data:`DATA`, :data:`TAGGED_FIELDS`, or an array.
Field: TypeAlias = "int | Array"

#: The fields of a message or of an item, in order.
Fields: TypeAlias = tuple[Field, ...]

# One tagged field: its tag, which is read as the length of nothing, and its bytes.
_TAG: Final = -3
_SIZED: Final = -4
_TAGGED_FIELD: Final[Fields] = (_TAG, _SIZED)

_MAX_VARINT_BITS: Final = 35
_MAX_UINT32: Final = 0xFFFFFFFF


class FieldWalk:
    """A walk over the fields of one message, from its beginning.

    Args:
        size: Bytes of the message. No field may end after them.

    Attributes:
        offset: Bytes of the message that have been walked over.
    """

    __slots__ = (
        "_field",
        "_fields",
        "_items",
        "_outer",
        "_shift",
        "_size",
        "_skip",
        "_value",
        "done",
        "offset",
    )

    def __init__(self, fields: Fields, size: int) -> None:
        self._fields = fields
        self._field = 0
        self._items = 1  # items left of the current array, this one included
        self._outer: list[tuple[Fields, int, int]] = []
        self._size = size
        self._skip = 0
        self._value = 0  # the beginning of a varint that is incomplete
        self._shift = 0
        self.offset = 0
        self.done = False

    def feed(self, data: bytes | memoryview, position: int = 0) -> int:
        """Walk over the next bytes of the message.

        Args:
            position: Where they begin.

        Returns:
            Where the fields end in ``data``, or the length of ``data`` if they go on.

        Raises:
            WireError: A length does not fit into the message, or a varint is too long.
        """
        begin, end = position, len(data)
        fields, field, skip = self._fields, self._field, self._skip
        while True:
            if skip:
                if skip > end - position:
                    skip -= end - position
                    position = end
                    break
                position += skip
                skip = 0
            while field == len(fields):
                self._items -= 1
                if self._items:
                    field = 0
                elif self._outer:
                    fields, field, self._items = self._outer.pop()
                else:
                    self.done = True
                    break
            if self.done:
                break
            kind = fields[field]
            if isinstance(kind, int) and kind >= 0:
                field += 1
                skip = self._checked(kind, position - begin)
                continue
            # Everything else begins with a varint.
            if position == end:
                break
            value = data[position]
            position += 1
            if value >= 0x80 or self._shift:
                value = self._value | (value & 0x7F) << self._shift
                if data[position - 1] >= 0x80:
                    self._value = value
                    self._shift += 7
                    if self._shift == _MAX_VARINT_BITS:
                        raise self._error("a varint of at most 5 bytes", "a longer one", position - begin)
                    continue
                if value > _MAX_UINT32:
                    raise self._error("a varint of 32 bits", "a longer one", position - begin)
                self._value = self._shift = 0
            field += 1
            if isinstance(kind, Array):
                item = kind.item
                value -= 1
                if value > 0:
                    self._checked(value, position - begin)  # an item has a byte or more
                    self._outer.append((fields, field, self._items))
                    fields, field, self._items = item, 0, value
            elif kind == DATA:
                if value:
                    skip = self._checked(value - 1, position - begin)
            elif kind == _SIZED:
                skip = self._checked(value, position - begin)
            elif kind == TAGGED_FIELDS and value:
                self._checked(value, position - begin)
                self._outer.append((fields, field, self._items))
                fields, field, self._items = _TAGGED_FIELD, 0, value
        self._fields, self._field, self._skip = fields, field, skip
        self.offset += position - begin
        return position

    @property
    def skipped(self) -> int:
        """Bytes still to come of the field that is being skipped."""
        return self._skip

    def skip(self, count: int) -> int:
        """Walk over at most ``count`` bytes of the field that is being skipped, if any.

        Returns how many they were.
        """
        count = min(count, self._skip)
        self._skip -= count
        self.offset += count
        return count

    def _checked(self, length: int, walked: int) -> int:
        left = self._size - self.offset - walked
        if length > left:
            raise self._error(f"a length or count of at most {left}", str(length), walked)
        return length

    def _error(self, expected: str, found: str, walked: int) -> WireError:
        return WireError(expected=expected, offset=self.offset + walked, found=found)
