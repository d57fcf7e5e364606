"""Locates the API keys in an ApiVersions response and edits them as bytes.

Every client's ApiVersions response is edited, but the broker's features after the API keys are not
needed, so the entries are located and not decoded. Without tagged fields (no broker sends any) all
entries have the same size, and one unpacking gives all keys.

Only :mod:`receiver.wire.k18_api_versions` may use this module.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from receiver.wire.error_codes import ErrorCode
from receiver.wire.primitives import Reader
from receiver.wire.writer import Writer

#: The first version with compact arrays and tagged fields.
FIRST_FLEXIBLE: Final = 3

#: An entry without its tagged fields: API key, lowest and highest version.
ENTRY: Final = Struct(">hhh")

#: The lowest and the highest version, two bytes into the entry.
RANGE: Final = Struct(">hh")

# More entries than this are read one by one, to keep the cached layouts below 100 kB.
_MAX_UNPACKED_AT_ONCE = 256
_NO_TAGS = b"\0"


class EntryTable:
    """The places of the API key entries in a response body.

    Attributes:
        keys: The API keys in the response's order; empty if the array is null.
    """

    __slots__ = ("_count_at", "_ends", "_entries_at", "_flexible", "_size", "error_code", "keys")

    def __init__(self, body: bytes, version: int) -> None:
        reader = Reader(body)
        self.error_code = reader.int16("ErrorCode")
        self._flexible = body_version(self.error_code, version) >= FIRST_FLEXIBLE
        self._size = ENTRY.size + self._flexible
        self._count_at = reader.offset
        if self._flexible:
            count = reader.compact_nullable_array_length("ApiKeys", item_size=self._size) or 0
        else:
            count = reader.nullable_array_length("ApiKeys", item_size=self._size) or 0
        first = self._entries_at = reader.offset
        #: The API keys in the body's order.
        self.keys: Sequence[int]
        #: Where each entry ends; None if all have the same size because none has tagged fields.
        self._ends: list[int] | None = None
        # An entry without tagged fields ends with their count, a zero byte.
        tag_counts = body[first + ENTRY.size : first + count * self._size : self._size]
        if count <= _MAX_UNPACKED_AT_ONCE and not (self._flexible and tag_counts.strip(_NO_TAGS)):
            self.keys = _keys_layout(count, self._size).unpack_from(body, first)
        else:
            self._walk(reader, count)

    def _walk(self, reader: Reader, count: int) -> None:
        keys, self._ends = [], []
        for _ in range(count):
            keys.append(reader.fixed(ENTRY, "ApiKey, MinVersion and MaxVersion")[0])
            if self._flexible:
                reader.tagged_fields("ApiKey's tagged fields")
            self._ends.append(reader.offset)
        self.keys = keys

    def start(self, position: int) -> int:
        """Return where the entry at a position begins, or where the last one ends."""
        if self._ends is None:
            return self._entries_at + position * self._size
        return self._ends[position - 1] if position else self._entries_at

    def find(self, key: int, position: int = 0) -> int | None:
        """Return the first position at or after ``position`` with this key, or None."""
        try:
            return self.keys.index(key, position)
        except ValueError:
            return None

    def insert(self, edited: bytearray, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Insert entries for keys that are not listed yet, and update the count."""
        count = len(self.keys)
        ascending = sorted(self.keys) == list(self.keys)
        # From the end to the beginning, so that the offsets of earlier entries stay valid.
        for key in sorted(ranges, reverse=True):
            position = bisect(self.keys, key) if ascending else count
            at = self.start(position)
            edited[at:at] = ENTRY.pack(key, *ranges[key]) + bytes(self._flexible)
        total = count + len(ranges)
        writer = Writer()
        if self._flexible:
            writer.compact_array_length(total)
        else:
            writer.array_length(total)
        edited[self._count_at : self._entries_at] = writer.take()


@lru_cache(maxsize=16)
def _keys_layout(count: int, size: int) -> Struct:
    """Return the layout of ``count`` keys; a broker's count rarely changes."""
    return Struct(">" + f"h{size - 2}x" * count)


def body_version(error_code: int, version: int) -> int:
    """Return a response body's version: 0 for UNSUPPORTED_VERSION (KIP-511)."""
    return 0 if error_code == ErrorCode.UNSUPPORTED_VERSION else version
