"""The API keys in an ApiVersions response, found and edited by bytes.

A gateway edits every client's ApiVersions response, and a broker's features and tags behind the API keys are
not its business: so the entries are located, not decoded. All have the same size unless one has tagged
fields, which none has yet, so one unpacking gives all the keys.

This module owns the places of the entries. It must not be used but by :mod:`receiver.wire.k18_api_versions`.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from receiver.wire.error_codes import ErrorCode
from receiver.wire.primitives import Reader, Writer

__all__ = ["ENTRY", "FIRST_FLEXIBLE", "RANGE", "EntryTable", "body_version"]

#: The first version with compact arrays and tagged fields.
FIRST_FLEXIBLE: Final = 3

#: An entry without its tagged fields: API key, lowest and highest version.
ENTRY: Final = Struct(">hhh")

#: The lowest and the highest version, two bytes into the entry.
RANGE: Final = Struct(">hh")

# More entries than this are walked: the layouts of all counts together must not take more than some 100 kB.
_MOST_AT_ONCE = 256
_NO_TAGS = b"\0"


class EntryTable:
    """Where the entries of a response's API keys are in its bytes.

    Attributes:
        error_code: The response's error code.
        keys: The API keys in the response's order; none where the array is null.

    Args:
        body: A response's body.
        version: The API version that was asked for.

    Raises:
        WireError: The body is none up to the end of its API keys.
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
        #: Where each entry ends, or None where all have the same size: no tagged fields, as in practice.
        self._ends: list[int] | None = None
        # An entry without tagged fields ends with a zero, the number of them.
        tag_counts = body[first + ENTRY.size : first + count * self._size : self._size]
        if count <= _MOST_AT_ONCE and not (self._flexible and tag_counts.strip(_NO_TAGS)):
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
        """Tell where the entry at a position begins; the position after the last gives the entries' end."""
        if self._ends is None:
            return self._entries_at + position * self._size
        return self._ends[position - 1] if position else self._entries_at

    def find(self, key: int, position: int = 0) -> int | None:
        """Tell the position of the first entry with this key, from a position on."""
        try:
            return self.keys.index(key, position)
        except ValueError:
            return None

    def insert(self, edited: bytearray, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Insert entries for keys that are not there yet, and correct the count."""
        count = len(self.keys)
        ascending = sorted(self.keys) == list(self.keys)
        # From the highest place down, so that the places below stay where they are.
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
    """Lay out the keys alone of so many entries of one size; a broker's count hardly ever changes."""
    return Struct(">" + f"h{size - 2}x" * count)


def body_version(error_code: int, version: int) -> int:
    """Tell in which version a response's body is written.

    Args:
        error_code: The response's error code.
        version: The API version that was asked for.

    Returns:
        0 for UNSUPPORTED_VERSION, whatever was asked for; else the version.

    Source: KIP-511, "ApiVersions Request/Response Handling".
    """
    return 0 if error_code == ErrorCode.UNSUPPORTED_VERSION else version
