"""Writes INVALID_REQUEST for each entry of a refused request (KIP-1313).

Knows every response that has error codes only for topics, partitions, groups or resources. The
answer names each entry of the request, as Kafka's own error responses do.

A layout describes a body, up to the last list that is needed, in all versions of Kafka 4.4 and the
one that KIP-1313 adds. In a request:

==============  ===============================================================================
word            field
==============  ===============================================================================
``4``           so many bytes
``s``           a string, perhaps null
``b``           bytes, perhaps null
``acks``        Produce's acknowledgements
``[ ... ]``     a list of structures
``( ... )``     a list of single values
``=4``, ``=[``  a field, or a list, that the answer repeats
``<[ ... ]``    a repeated list whose entries are themselves lists, which follow one another
``|[ ... ]``    a list whose entries go to the list before it, unless it has them
==============  ===============================================================================

In a response, ``=`` and ``[ ... ]`` are the next repeated field or list, and ``=2`` is the second
of its structure. ``null`` is a null string, ``text`` an empty one, ``list`` an empty list, ``eeee``
the error code, and everything else is bytes. The tagged fields at the end of each structure are not
written down.

A word or the beginning of a list may end with its versions, as in Kafka's schemas: ``s@9+``,
``=[@0-7``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

from receiver.wire import api_keys
from receiver.wire.errors import WireError
from receiver.wire.header_versions import FIRST_FLEXIBLE, FIRST_WITH_HEADER_V3
from receiver.wire.primitives import Reader
from receiver.wire.writer import Writer

#: Most entries that are read of a request. They take some two milliseconds.
MAX_ENTRIES: Final = 1_024

_ACKS: Final = "acks"
_PARTITIONS: Final = "[ = [ = eeee ] ]"
_GROUPS: Final = "00000000 [ eeee 00 = 01 00000000 00000000 01 01 80000000 ]"
_RESULTS: Final = "00000000 [ = eeee null ]"
_RESOURCES: Final = "00000000 [ eeee null = = ]"
_SHARE_PARTITIONS: Final = "[ = [ = eeee 00 ] ]"

# By API key: the first version, and the layouts of the request and of the response.
_LAYOUTS: Final = {
    # Produce
    0: (
        3,
        "s acks 4 =[ =s@0-12 =16@13+ =[ =4 b ] ]",
        f"[ = [ = eeee {'ff' * 16} {'ff' * 8}@5+ list@8+ null@8+ ] ] 00000000",
    ),
    # Fetch
    1: (
        4,
        "4 4 4 4 1 =[ =s =[ =4 8 8@5+ 4 ] ]",
        f"00000000 [ = [ = eeee {'ff' * 16} {'ff' * 8}@5+ list 00000000 ] ]",
    ),
    # ListOffsets
    2: (
        1,
        "4 1@2+ =[ =s =[ =4 4@4+ 8 ] ]",
        f"00000000@2+ [ = [ = eeee {'ff' * 16} ffffffff@4+ ] ]",
    ),
    # Metadata
    3: (
        0,
        "=[ =16@10+ =s ]",
        "00000000@3+ list null@2+ ffffffff@1+"
        " [ eeee =@0-9 =2@10+ =1@10+ 00@1+ list 80000000@8+ ] 80000000@8-10",
    ),
    # OffsetCommit
    8: (
        2,
        "s 4 s 8@0-4 s@7+ =[ =s@0-9 =16@10+ =[ =4 8 4@6+ s ] ]",
        f"00000000@3+ {_PARTITIONS}",
    ),
    # OffsetFetch
    9: (
        1,
        "s@0-7 =[@0-7 =s =( =4 ) ] =[@8+ =s s@9+ 4@9+ [ s@0-9 16@10+ ( 4 ) ] ]",
        f"[@0-7 = [ = {'ff' * 8} text eeee ] ] 00000000@8+ [@8+ = list eeee ]",
    ),
    10: (4, "1 =( =s )", "00000000 [ = ffffffff text ffffffff eeee null ]"),  # FindCoordinator
    # DescribeGroups
    15: (
        0,
        "=( =s )",
        "00000000@1+ [ eeee null@6+ = text text text list 80000000@3+ ]",
    ),
    # CreateTopics
    19: (
        2,
        "=[ =s 4 2 [ 4 ( 4 ) ] [ s s ] ]",
        f"00000000 [ = {'00' * 16}@7+ eeee null ffffffffffff@5+ list@5+ ]",
    ),
    # DeleteTopics
    20: (1, "=(@0-5 =s ) =[@6+ =s =16 ]", "00000000 [ = =@6+ eeee null@5+ ]"),
    21: (0, "=[ =s =[ =4 8 ] ]", f"00000000 [ = [ = {'ff' * 8} eeee ] ]"),  # DeleteRecords
    # OffsetForLeaderEpoch
    23: (2, "4@3+ =[ =s =[ =4 4 4 ] ]", f"00000000 [ = [ eeee = {'ff' * 12} ] ]"),
    24: (0, "s 8 2 =[ =s =( =4 ) ]", f"00000000 {_PARTITIONS}"),  # AddPartitionsToTxn
    27: (1, "=[ =8 2 1 =[ =s =( =4 ) ] 4 1@2+ ]", f"[ = {_PARTITIONS} ]"),  # WriteTxnMarkers
    # TxnOffsetCommit
    28: (
        0,
        "s s 8 2 4@3+ s@3+ s@3+ =[ =s@0-5 =16@6+ =[ =4 8 4@2+ s ] ]",
        f"00000000 {_PARTITIONS}",
    ),
    30: (1, "=[ 1 s 1 s s 1 1 ]", "00000000 [ eeee null ]"),  # CreateAcls
    31: (1, "=[ 1 s 1 s s 1 1 ]", "00000000 [ eeee null list ]"),  # DeleteAcls
    32: (1, "=[ =1 =s ( s ) ]", "00000000 [ eeee null = = list ]"),  # DescribeConfigs
    33: (0, "=[ =1 =s [ s s ] ]", _RESOURCES),  # AlterConfigs
    34: (1, "<[ s =[ =s =( =4 ) ] ]", f"00000000 {_PARTITIONS}"),  # AlterReplicaLogDirs
    37: (0, "=[ =s 4 [ ( 4 ) ] ]", _RESULTS),  # CreatePartitions
    42: (0, "=( =s )", "00000000 [ = eeee null@3+ ]"),  # DeleteGroups
    43: (0, "=[ =s =( =4 ) ]", "00000000 [ = [ = eeee null ] ]"),  # ElectLeaders
    44: (0, "=[ =1 =s [ s 1 s ] ]", _RESOURCES),  # IncrementalAlterConfigs
    49: (0, "=[ =[ =s =s ] [ s 8 1 ] ]", "00000000 [ eeee null [ = = ] ]"),  # AlterClientQuotas
    51: (0, "=[ =s 1 ] |[ =s 1 4 b b ]", _RESULTS),  # AlterUserScramCredentials
    61: (0, "=[ =s =( =4 ) ]", "00000000 [ = [ = eeee 00 01 ] ]"),  # DescribeProducers
    65: (0, "=( =s )", f"00000000 [ eeee = 01 {'00' * 22} 01 ]"),  # DescribeTransactions
    69: (0, "=( =s )", _GROUPS),  # ConsumerGroupDescribe
    # DescribeTopicPartitions
    75: (0, "=[ =s ]", f"00000000 [ eeee = {'00' * 16} 00 01 80000000 ] ff"),
    77: (1, "=( =s )", _GROUPS),  # ShareGroupDescribe
    83: (0, "s =[ =16 =[ =4 4 8 ] ]", _SHARE_PARTITIONS),  # InitializeShareGroupState
    84: (0, "s =[ =16 =[ =4 4 ] ]", f"[ = [ = eeee 00 {'00' * 12} 01 ] ]"),  # ReadShareGroupState
    # WriteShareGroupState
    85: (0, "s =[ =16 =[ =4 4 4 8 4@1+ [ 8 8 1 2 ] ] ]", _SHARE_PARTITIONS),
    86: (0, "s =[ =16 =[ =4 ] ]", _SHARE_PARTITIONS),  # DeleteShareGroupState
    # ReadShareGroupStateSummary
    87: (0, "s =[ =16 =[ =4 4 ] ]", f"[ = [ = eeee 00 {'00' * 16} ffffffff@1+ ] ]"),
    # StreamsGroupDescribe
    89: (
        0,
        "=( =s )",
        "00000000 [ eeee 00 = 01 00000000 00000000 ff 01 80000000 ff@1+ 0000@1+ ]",
    ),
    90: (0, "=[ =s [ s ( 4 ) ] ]", "00000000 [ = 01 eeee 00 ]"),  # DescribeShareGroupOffsets
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _List:
    """A list of a request or of a response."""

    fields: tuple[_Field, ...]
    mark: str  # nothing, =, < or |
    is_plain: bool  # of single values, without tagged fields


#: A word of a layout, or a list.
_Field: TypeAlias = "str | _List"
#: A repeated field as it was encoded, or the repeated fields of each entry of a list.
_Value: TypeAlias = "bytes | list[list[_Value]]"


def _parsed(words: Iterator[str], version: int) -> tuple[_Field, ...]:
    """Read the words of a version up to the end of a list."""
    fields: list[_Field] = []
    for marked in words:
        word, _, versions = marked.partition("@")
        if word in {"]", ")"}:
            break
        field: _Field = word
        if word[-1] in "[(":
            field = _List(fields=_parsed(words, version), mark=word[:-1], is_plain=word[-1] == "(")
        first, _, last = versions.rstrip("+").partition("-")
        if not versions or int(first) <= version <= int(last or version):
            fields.append(field)
    return tuple(fields)


@cache  # one entry for each known version
def _layouts(api_key: int, version: int) -> tuple[tuple[_Field, ...], tuple[_Field, ...]]:
    _, request, response = _LAYOUTS[api_key]
    return _parsed(iter(request.split()), version), _parsed(iter(response.split()), version)


def has_entries(api_key: int, api_version: int) -> bool:
    """Return whether responses have error codes only for entries."""
    if api_key not in _LAYOUTS:
        return False
    first, _, _ = _LAYOUTS[api_key]
    return first <= api_version <= FIRST_WITH_HEADER_V3[api_key]


def error_entries(api_key: int, api_version: int, body: Reader, error_code: int) -> bytes:
    """Write the body of a response with an error code for each entry of a request.

    Args:
        api_version: Its version, one that :func:`has_entries`.

    Raises:
        WireError: The body is malformed, has too many entries, or is that of a Produce request
            without a response. The connection has to be closed.
    """
    request, response = _layouts(api_key, api_version)
    is_flexible = api_version >= FIRST_FLEXIBLE[api_key]
    values = _Request(api_keys.api_name(api_key), body, is_flexible=is_flexible).read(request)
    writer = _Response((error_code & 0xFFFF).to_bytes(2, "big"), is_flexible=is_flexible)
    writer.write(response, values)
    return writer.take()


class _Request:
    """Reads the repeated fields of one request."""

    def __init__(self, name: str, reader: Reader, *, is_flexible: bool) -> None:
        self._name = name
        self._reader = reader
        self._is_flexible = is_flexible
        self._left = MAX_ENTRIES

    def read(self, fields: Sequence[_Field]) -> list[_Value]:
        """Read some fields; return those that are repeated."""
        values: list[_Value] = []
        for field in fields:
            if isinstance(field, _List):
                self._read_list(field, values)
            elif field.startswith("="):
                start = self._reader.offset
                self._skip(field[1:])
                values.append(bytes(self._reader.since(start)))
            else:
                self._skip(field)
        return values

    def _read_list(self, field: _List, values: list[_Value]) -> None:
        entries = self._entries(field)
        if field.mark == "=":
            values.append(entries)
        elif field.mark == "<":
            values.append([inner for (lists,) in entries if isinstance(lists, list) for inner in lists])
        elif field.mark == "|" and isinstance(before := values[-1], list):
            values[-1] = list({repr(entry): entry for entry in (*before, *entries)}.values())

    def _entries(self, field: _List) -> list[list[_Value]]:
        reader = self._reader
        if self._is_flexible:
            count = reader.compact_nullable_array_length("Entries") or 0
        else:
            count = reader.nullable_array_length("Entries") or 0
        if count > self._left:
            raise WireError(
                expected=f"at most {MAX_ENTRIES} entries of a refused {self._name} request",
                offset=reader.offset,
                found="more",
            )
        self._left -= count
        entries = []
        for _ in range(count):
            entries.append(self.read(field.fields))
            if self._is_flexible and not field.is_plain:
                reader.tagged_fields(f"{self._name}'s tagged fields")
        return entries

    def _skip(self, word: str) -> None:
        reader = self._reader
        if word in {"s", "b"}:
            reader.skip(max(0, self._length(word)))
        elif word != _ACKS:
            reader.skip(int(word))
        elif reader.int16("Acks") == 0:
            raise WireError(expected="acks that have a response", offset=reader.offset, found="0")

    def _length(self, word: str) -> int:
        reader, field = self._reader, f"{self._name}'s string"
        if self._is_flexible:
            return reader.unsigned_varint(field) - 1
        return reader.int16(field) if word == "s" else reader.int32(field)


class _Response:
    """Writes one response.

    Args:
        error: The error code, encoded.
        is_flexible: Whether the version has compact types and tagged fields.
    """

    def __init__(self, error: bytes, *, is_flexible: bool) -> None:
        self._writer = Writer()
        self._is_flexible = is_flexible
        self._words = {
            "eeee": error,
            "null": b"\0" if is_flexible else b"\xff\xff",
            "text": b"\1" if is_flexible else bytes(2),
            "list": b"\1" if is_flexible else bytes(4),
        }

    def take(self) -> bytes:
        return self._writer.take()

    def write(self, fields: Sequence[_Field], values: Sequence[_Value]) -> None:
        writer, following = self._writer, iter(values)
        for field in fields:
            if isinstance(field, _List):
                self._write_list(field, next(following))
            elif field.startswith("="):
                value = values[int(field[1:]) - 1] if field[1:] else next(following)
                writer.raw(value if isinstance(value, bytes) else b"")
            else:
                writer.raw(self._words.get(field) or bytes.fromhex(field))
        if self._is_flexible:
            writer.tagged_fields(())

    def _write_list(self, field: _List, entries: _Value) -> None:
        if self._is_flexible:
            self._writer.compact_array_length(len(entries))
        else:
            self._writer.array_length(len(entries))
        for entry in entries:
            if isinstance(entry, list):
                self.write(field.fields, entry)
