"""Reader for the primitive types of the Kafka protocol; also exports the writer.

Every length is checked before anything is sliced or allocated, so the cost of reading a message is
bounded by the bytes that have arrived. The number of items of each array, of the tagged fields of
each structure and of both in a whole message is bounded by :mod:`receiver.wire.bounds`.

Source: the Kafka protocol guide, "Protocol Primitive Types"; KIP-482 for compact types and tagged
fields.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from receiver.wire.bounds import ARRAYS, MAX_ITEMS, MAX_TAGGED_FIELDS
from receiver.wire.errors import BoundError, WireError
from receiver.wire.uuid import Uuid
from receiver.wire.writer import MAX_STRING_BYTES, MAX_UINT32, Buffer, TaggedFields

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_MAX_VARINT_BYTES = 5


class Reader:
    """A cursor over bytes that a peer sent.

    The ``*_view`` methods return views into the buffer. A view keeps the buffer alive, and keeps a
    ``bytearray`` from being resized. All other methods return copies. Every reading method takes
    the field's name for error messages. It raises :class:`~receiver.wire.errors.WireError` if the
    bytes are malformed, and :class:`~receiver.wire.errors.BoundError` if there are too many items.
    After an error the reader must not be used.

    Args:
        end: Where the readable part ends; the end of the buffer by default.

    Raises:
        ValueError: ``offset`` and ``end`` are not in the buffer in this order.
    """

    __slots__ = ("_buffer", "_end", "_items_left", "_offset")

    def __init__(self, buffer: Buffer, offset: int = 0, end: int | None = None) -> None:
        self._buffer = memoryview(buffer)
        limit = len(self._buffer) if end is None else end
        if not 0 <= offset <= limit <= len(self._buffer):
            raise ValueError(
                f"offset {offset} and end {limit} do not lie in a buffer of {len(self._buffer)} bytes"
            )
        self._offset = offset
        self._end = limit
        self._items_left = MAX_ITEMS

    @property
    def offset(self) -> int:
        """The cursor, in bytes from the start of the buffer."""
        return self._offset

    @property
    def remaining(self) -> int:
        """Number of bytes left to read."""
        return self._end - self._offset

    def _advance(self, size: int, expected: str) -> int:
        """Move the cursor over ``size`` bytes (0 or more) and return where they begin."""
        start = self._offset
        after = start + size
        if after > self._end:
            raise WireError(expected=expected, offset=start, found=_left(self._end - start))
        self._offset = after
        return start

    def fixed(self, layout: Struct, field: str = "fixed fields") -> tuple[Any, ...]:
        """Read several fields of fixed size at once; return a value for each.

        Args:
            layout: Their big-endian layout.
            field: Their names, for the error.
        """
        start = self._offset
        after = start + layout.size
        if after > self._end:
            raise WireError(
                expected=f"{field} ({layout.size} bytes)", offset=start, found=_left(self._end - start)
            )
        self._offset = after
        return layout.unpack_from(self._buffer, start)

    def int8(self, field: str = "int8") -> int:
        """Read a signed integer of one byte."""
        start = self._offset
        if start + 1 > self._end:
            self._advance(1, f"{field} (int8)")  # raises
        self._offset = start + 1
        value: int = _INT8.unpack_from(self._buffer, start)[0]
        return value

    def skip(self, size: int, field: str = "fixed fields") -> None:
        """Skip fields of a fixed size.

        Args:
            size: Their number of bytes, 0 or more.
            field: Their names, for the error.
        """
        self._advance(size, f"{field} ({size} bytes)")

    def int16(self, field: str = "int16") -> int:
        """Read a signed integer of two bytes."""
        start = self._offset
        if start + 2 > self._end:
            self._advance(2, f"{field} (int16)")  # raises
        self._offset = start + 2
        value: int = _INT16.unpack_from(self._buffer, start)[0]
        return value

    def int32(self, field: str = "int32") -> int:
        """Read a signed integer of four bytes."""
        start = self._offset
        if start + 4 > self._end:
            self._advance(4, f"{field} (int32)")  # raises
        self._offset = start + 4
        value: int = _INT32.unpack_from(self._buffer, start)[0]
        return value

    def int64(self, field: str = "int64") -> int:
        """Read a signed integer of eight bytes."""
        start = self._offset
        if start + 8 > self._end:
            self._advance(8, f"{field} (int64)")  # raises
        self._offset = start + 8
        value: int = _INT64.unpack_from(self._buffer, start)[0]
        return value

    def uuid(self, field: str = "uuid") -> Uuid:
        """Read (and copy) a uuid of sixteen bytes."""
        start = self._advance(16, f"{field} (uuid, 16 bytes)")
        return Uuid(bytes(self._buffer[start : start + 16]))

    def unsigned_varint(self, field: str = "unsigned varint") -> int:
        """Read an unsigned 32-bit integer in base 128, low bits first (1 to 5 bytes)."""
        buffer, offset, end = self._buffer, self._offset, self._end
        start = offset
        value = shift = 0
        while offset < end:
            byte = buffer[offset]
            offset += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > MAX_UINT32:
                    break
                self._offset = offset
                return value
            shift += 7
            if offset - start == _MAX_VARINT_BYTES:
                break
        else:
            raise WireError(expected=f"{field} (unsigned varint)", offset=start, found=_left(end - start))
        raise WireError(
            expected=f"{field} (unsigned varint of 32 bits, at most {_MAX_VARINT_BYTES} bytes)",
            offset=start,
            found="a longer one",
        )

    # Strings and bytes. A length of -1 (0 in the compact form, which holds the length plus one) is
    # null.

    def string(self, field: str = "string") -> str:
        """Read a string with a length of two bytes."""
        start = self._offset
        return self._text(start, self._not_null(start, self.int16(field), f"{field} (string)"), field)

    def nullable_string(self, field: str = "nullable string") -> str | None:
        """Read a string with a length of two bytes, or null."""
        start = self._offset
        length = self.int16(field)
        return None if length == -1 else self._text(start, length, field)

    def nullable_string_of_any_bytes(self, field: str = "nullable string") -> str | None:
        """Read a nullable string that may be invalid UTF-8, as Java does.

        Invalid bytes become U+FFFD, and a string that is too long then is cut. Every negative
        length means null, as in Kafka's request header.
        """
        start = self._offset
        begin = start + 2
        if begin > self._end:
            self.int16(field)  # raises
        self._offset = begin
        length: int = _INT16.unpack_from(self._buffer, start)[0]
        if length < 0:
            return None
        if begin + length > self._end:
            self._view(start, length, field)  # raises
        self._offset = begin + length
        data = bytes(self._buffer[begin : begin + length])
        if data.isascii():
            return data.decode("ascii")
        return data.decode(errors="replace").encode()[:MAX_STRING_BYTES].decode(errors="ignore")

    def compact_string(self, field: str = "compact string") -> str:
        """Read a string with a varint length."""
        start = self._offset
        length = self.unsigned_varint(field) - 1
        return self._text(start, self._not_null(start, length, f"{field} (compact string)"), field)

    def compact_nullable_string(self, field: str = "compact nullable string") -> str | None:
        """Read a string with a varint length, or null."""
        start = self._offset
        length = self.unsigned_varint(field) - 1
        return None if length == -1 else self._text(start, length, field)

    def bytes_view(self, field: str = "bytes") -> memoryview:
        """Read bytes with a length of four bytes, as a view."""
        start = self._offset
        return self._view(start, self._not_null(start, self.int32(field), f"{field} (bytes)"), field)

    def compact_bytes_view(self, field: str = "compact bytes") -> memoryview:
        """Read bytes with a varint length, as a view."""
        start = self._offset
        length = self.unsigned_varint(field) - 1
        return self._view(start, self._not_null(start, length, f"{field} (compact bytes)"), field)

    def compact_nullable_bytes_view(self, field: str = "compact nullable bytes") -> memoryview | None:
        """Read bytes with a varint length, as a view, or null."""
        start = self._offset
        length = self.unsigned_varint(field) - 1
        return None if length == -1 else self._view(start, length, field)

    def rest_view(self) -> memoryview:
        """Read all remaining bytes, as a view."""
        begin, self._offset = self._offset, self._end
        return self._buffer[begin : self._end]

    def since(self, offset: int) -> memoryview:
        """Return the bytes between an earlier :attr:`offset` and the cursor, as a view."""
        return self._buffer[offset : self._offset]

    # Arrays: these methods read only the length; the caller reads the items.

    def array_length(self, field: str, *, item_size: int = 1) -> int:
        """Read the number of items of an array, 0 or more (four bytes).

        Args:
            field: The array's name in Kafka's message definitions, which is its key in
                :data:`~receiver.wire.bounds.ARRAYS`.
            item_size: The fewest bytes that an item takes. A length that does not fit into the
                remaining bytes is refused, so that nothing is allocated for it.
        """
        start = self._offset
        return self._count(
            start, self._not_null(start, self.int32(field), f"{field} (array)"), field, item_size
        )

    def nullable_array_length(self, field: str, *, item_size: int = 1) -> int | None:
        """Read the length (four bytes) of an array that may be null.

        See :meth:`array_length`.
        """
        start = self._offset
        length = self.int32(field)
        return None if length == -1 else self._count(start, length, field, item_size)

    def compact_array_length(self, field: str, *, item_size: int = 1) -> int:
        """Read the varint length of an array; see :meth:`array_length`."""
        start = self._offset
        length = self.unsigned_varint(field) - 1
        return self._count(start, self._not_null(start, length, f"{field} (compact array)"), field, item_size)

    def compact_nullable_array_length(self, field: str, *, item_size: int = 1) -> int | None:
        """Read the varint length of an array that may be null.

        See :meth:`array_length`.
        """
        start = self._offset
        length = self.unsigned_varint(field) - 1
        return None if length == -1 else self._count(start, length, field, item_size)

    def tagged_fields(self, field: str = "tagged fields") -> TaggedFields:
        """Read (and copy) the tagged fields at the end of a flexible structure.

        Their order is kept and not checked, like in Kafka's own readers (KIP-482).
        """
        buffer, offset = self._buffer, self._offset
        if offset < self._end and buffer[offset] == 0:  # the usual case: none
            self._offset = offset + 1
            return ()
        count = self._fitting(offset, self.unsigned_varint(field), field, item_size=2)
        self._check_bound(offset, count, field, MAX_TAGGED_FIELDS)
        fields = []
        for _ in range(count):
            tag = self.unsigned_varint(f"{field}: tag")
            start = self._offset
            fields.append((tag, bytes(self._view(start, self.unsigned_varint(f"{field}: size"), field))))
        return tuple(fields)

    def expect_end(self, field: str = "message") -> None:
        """Check that no bytes are left; raise WireError otherwise."""
        if self._offset != self._end:
            raise WireError(
                expected=f"the end of the {field}",
                offset=self._offset,
                found=f"{self._end - self._offset} more bytes",
            )

    def _not_null(self, start: int, length: int, expected: str) -> int:
        if length == -1:
            raise WireError(expected=expected, offset=start, found="null")
        return length

    def _count(self, start: int, length: int, field: str, item_size: int) -> int:
        self._check_bound(start, self._fitting(start, length, field, item_size), field, ARRAYS[field])
        return length

    def _check_bound(self, start: int, count: int, field: str, most: int) -> None:
        self._items_left -= count
        if count > most:
            raise BoundError(expected=f"at most {most} {field}", offset=start, found=str(count))
        if self._items_left < 0:
            raise BoundError(
                expected=f"at most {MAX_ITEMS} array items and tagged fields in a message",
                offset=start,
                found=f"{MAX_ITEMS - self._items_left}, with {count} {field}",
            )

    def _fitting(self, start: int, length: int, field: str, item_size: int) -> int:
        left = self._end - self._offset
        if length < 0 or length * item_size > left:
            raise WireError(
                expected=f"{field} (a count of at most {left // item_size} items, as {_left(left)})",
                offset=start,
                found=f"a count of {length}",
            )
        return length

    def _view(self, start: int, length: int, field: str) -> memoryview:
        begin = self._offset
        if length < 0 or length > self._end - begin:
            raise WireError(
                expected=f"{field} (a length of at most {self._end - begin}, as {_left(self._end - begin)})",
                offset=start,
                found=f"a length of {length}",
            )
        self._offset = begin + length
        return self._buffer[begin : begin + length]

    def _text(self, start: int, length: int, field: str) -> str:
        if length > MAX_STRING_BYTES:
            raise WireError(
                expected=f"{field} (a string of at most {MAX_STRING_BYTES} bytes)",
                offset=start,
                found=f"a length of {length}",
            )
        view = self._view(start, length, field)
        try:
            return str(view, "utf-8")
        except UnicodeDecodeError as error:
            at = self._offset - length + error.start
        # Raised outside the handler, because the codec's error holds payload bytes and must not be
        # chained.
        raise WireError(expected=f"{field} (UTF-8)", offset=at, found="invalid UTF-8")


def _left(size: int) -> str:
    return f"{size} byte{'' if size == 1 else 's'} left"
