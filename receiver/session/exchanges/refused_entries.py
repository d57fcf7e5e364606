"""Writes INVALID_REQUEST for each entry of a refused request (KIP-1313).

Knows every RPC whose response has error codes only for topics, partitions, groups or resources. The
answer names each entry of the request, as Kafka's own error responses do.

A layout describes what the version after Kafka 4.4's has in its body, up to the last list that is
needed. In a request:

==============  ===============================================================================
word            field
==============  ===============================================================================
``4``           so many bytes
``s``           a string or bytes, perhaps null
``acks``        Produce's acknowledgements
``[ ... ]``     a list of structures
``( ... )``     a list of single values
``=4``, ``=[``  a field, or a list, that the answer repeats
``<[ ... ]``    a repeated list whose entries are themselves lists, which follow one another
``|[ ... ]``    a list whose entries go to the list before it, unless it has them
==============  ===============================================================================

In a response, ``=`` and ``[ ... ]`` are the next repeated field or list, ``eeee`` is the error
code, and everything else is bytes. The tagged fields at the end of each structure are not written
down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from receiver.wire import api_keys
from receiver.wire.errors import WireError
from receiver.wire.primitives import Reader
from receiver.wire.writer import Writer

#: Most entries that are read of a request. They take some two milliseconds.
MAX_ENTRIES: Final = 1_024

_ACKS: Final = "acks"
_TOPICS_AND_PARTITIONS: Final = "00000000 [ = [ = eeee ] ]"
_GROUPS: Final = "00000000 [ eeee 00 = 01 00000000 00000000 01 01 80000000 ]"
_RESOURCES: Final = "00000000 [ eeee 00 = = ]"
_SHARE_PARTITIONS: Final = "[ = [ = eeee 00 ] ]"

# By API key: the layouts of the request and of the response.
_LAYOUTS: Final = {
    # Produce
    0: ("s acks 4 =[ =16 =[ =4 s ] ]", f"[ = [ = eeee {'ff' * 24} 01 00 ] ] 00000000"),
    2: ("4 1 =[ =s =[ =4 4 8 ] ]", f"00000000 [ = [ = eeee {'ff' * 20} ] ]"),  # ListOffsets
    8: ("s 4 s s =[ =16 =[ =4 8 4 s ] ]", _TOPICS_AND_PARTITIONS),  # OffsetCommit
    9: ("=[ =s s 4 [ 16 ( 4 ) ] ]", "00000000 [ = 01 eeee ]"),  # OffsetFetch
    10: ("1 =( =s )", "00000000 [ = ffffffff 01 ffffffff eeee 00 ]"),  # FindCoordinator
    15: ("=( =s )", "00000000 [ eeee 00 = 01 01 01 01 80000000 ]"),  # DescribeGroups
    # CreateTopics
    19: ("=[ =s 4 2 [ 4 ( 4 ) ] [ s s ] ]", f"00000000 [ = {'00' * 16} eeee 00 ffffffff ffff 01 ]"),
    20: ("=[ =s =16 ]", "00000000 [ = = eeee 00 ]"),  # DeleteTopics
    21: ("=[ =s =[ =4 8 ] ]", f"00000000 [ = [ = {'ff' * 8} eeee ] ]"),  # DeleteRecords
    23: ("4 =[ =s =[ =4 4 4 ] ]", f"00000000 [ = [ eeee = {'ff' * 12} ] ]"),  # OffsetForLeaderEpoch
    27: ("=[ =8 2 1 =[ =s =( =4 ) ] 4 1 ]", "[ = [ = [ = eeee ] ] ]"),  # WriteTxnMarkers
    28: ("s s 8 2 4 s s =[ =16 =[ =4 8 4 s ] ]", _TOPICS_AND_PARTITIONS),  # TxnOffsetCommit
    30: ("=[ 1 s 1 s s 1 1 ]", "00000000 [ eeee 00 ]"),  # CreateAcls
    31: ("=[ 1 s 1 s s 1 1 ]", "00000000 [ eeee 00 01 ]"),  # DeleteAcls
    32: ("=[ =1 =s ( s ) ]", "00000000 [ eeee 00 = = 01 ]"),  # DescribeConfigs
    33: ("=[ =1 =s [ s s ] ]", _RESOURCES),  # AlterConfigs
    34: ("<[ s =[ =s =( =4 ) ] ]", _TOPICS_AND_PARTITIONS),  # AlterReplicaLogDirs
    37: ("=[ =s 4 [ ( 4 ) ] ]", "00000000 [ = eeee 00 ]"),  # CreatePartitions
    42: ("=( =s )", "00000000 [ = eeee 00 ]"),  # DeleteGroups
    44: ("=[ =1 =s [ s 1 s ] ]", _RESOURCES),  # IncrementalAlterConfigs
    49: ("=[ =[ =s =s ] [ s 8 1 ] ]", "00000000 [ eeee 00 [ = = ] ]"),  # AlterClientQuotas
    51: ("=[ =s 1 ] |[ =s 1 4 s s ]", "00000000 [ = eeee 00 ]"),  # AlterUserScramCredentials
    61: ("=[ =s =( =4 ) ]", "00000000 [ = [ = eeee 00 01 ] ]"),  # DescribeProducers
    65: ("=( =s )", f"00000000 [ eeee = 01 {'00' * 22} 01 ]"),  # DescribeTransactions
    69: ("=( =s )", _GROUPS),  # ConsumerGroupDescribe
    75: ("=[ =s ]", f"00000000 [ eeee = {'00' * 16} 00 01 80000000 ] ff"),  # DescribeTopicPartitions
    77: ("=( =s )", _GROUPS),  # ShareGroupDescribe
    83: ("s =[ =16 =[ =4 4 8 ] ]", _SHARE_PARTITIONS),  # InitializeShareGroupState
    84: ("s =[ =16 =[ =4 4 ] ]", f"[ = [ = eeee 00 {'00' * 12} 01 ] ]"),  # ReadShareGroupState
    85: ("s =[ =16 =[ =4 4 4 8 4 [ 8 8 1 2 ] ] ]", _SHARE_PARTITIONS),  # WriteShareGroupState
    86: ("s =[ =16 =[ =4 ] ]", _SHARE_PARTITIONS),  # DeleteShareGroupState
    # ReadShareGroupStateSummary
    87: ("s =[ =16 =[ =4 4 ] ]", f"[ = [ = eeee 00 {'00' * 16} ffffffff ] ]"),
    # StreamsGroupDescribe
    89: ("=( =s )", "00000000 [ eeee 00 = 01 00000000 00000000 ff 01 80000000 ff 0000 ]"),
    90: ("=[ =s [ s ( 4 ) ] ]", "00000000 [ = 01 eeee 00 ]"),  # DescribeShareGroupOffsets
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _List:
    """A list of a request or of a response."""

    fields: tuple[_Field, ...]
    mark: str  # "", "=", "<" or "|"
    is_plain: bool  # of single values, without tagged fields


#: A word of a layout, or a list.
_Field: TypeAlias = "str | _List"
#: A repeated field as it was encoded, or the repeated fields of each entry of a list.
_Value: TypeAlias = "bytes | list[list[_Value]]"


def _parsed(words: Iterator[str]) -> tuple[_Field, ...]:
    """Read the words of a layout up to the end of a list."""
    fields: list[_Field] = []
    for word in words:
        if word in {"]", ")"}:
            break
        if word[-1] in "[(":
            fields.append(_List(fields=_parsed(words), mark=word[:-1], is_plain=word[-1] == "("))
        else:
            fields.append(word)
    return tuple(fields)


_PARSED: Final[Mapping[int, tuple[tuple[_Field, ...], tuple[_Field, ...]]]] = {
    key: (_parsed(iter(request.split())), _parsed(iter(response.split())))
    for key, (request, response) in _LAYOUTS.items()
}


def has_entries(api_key: int) -> bool:
    """Return whether the responses of an RPC have error codes only for entries."""
    return api_key in _PARSED


def error_entries(api_key: int, body: Reader, error_code: int) -> bytes:
    """Write the body of a response with an error code for each entry of a request.

    Args:
        api_key: One that :func:`has_entries`.
        body: The request's body, in KIP-1313's version or the one before.
        error_code: The error code.

    Raises:
        WireError: The body is malformed, has too many entries, or is that of a Produce request
            without a response. The connection has to be closed.
    """
    request, response = _PARSED[api_key]
    values = _Request(api_key, body).read(request)
    writer = Writer()
    _write(writer, response, values, (error_code & 0xFFFF).to_bytes(2, "big"))
    return writer.take()


class _Request:
    """Reads the repeated fields of one request."""

    def __init__(self, api_key: int, reader: Reader) -> None:
        self._name = api_keys.api_name(api_key)
        self._reader = reader
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
        count = self._reader.compact_nullable_array_length("Entries") or 0
        if count > self._left:
            raise WireError(
                expected=f"at most {MAX_ENTRIES} entries of a refused {self._name} request",
                offset=self._reader.offset,
                found="more",
            )
        self._left -= count
        entries = []
        for _ in range(count):
            entries.append(self.read(field.fields))
            if not field.is_plain:
                self._reader.tagged_fields(f"{self._name}'s tagged fields")
        return entries

    def _skip(self, word: str) -> None:
        reader = self._reader
        if word == "s":
            reader.skip(max(0, reader.unsigned_varint(f"{self._name}'s string") - 1))
        elif word != _ACKS:
            reader.skip(int(word))
        elif reader.int16("Acks") == 0:
            raise WireError(expected="acks that have a response", offset=reader.offset, found="0")


def _write(writer: Writer, fields: Sequence[_Field], values: Sequence[_Value], error: bytes) -> None:
    """Write a structure of a response, with its tagged fields."""
    following = iter(values)
    for field in fields:
        if isinstance(field, _List):
            entries = next(following)
            writer.compact_array_length(len(entries))
            for entry in entries:
                if isinstance(entry, list):
                    _write(writer, field.fields, entry, error)
        elif field == "=":
            value = next(following)
            writer.raw(value if isinstance(value, bytes) else b"")
        else:
            writer.raw(error if field == "eeee" else bytes.fromhex(field))
    writer.tagged_fields(())
