"""The table of bounds: every array is in it, and decoding stops at it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

import receiver
from receiver.wire.bounds import ARRAYS, MAX_ITEMS, MAX_TAGGED_FIELDS
from receiver.wire.errors import BoundError
from receiver.wire.primitives import Reader
from receiver.wire.writer import Writer

_SOURCES: Final = Path(receiver.__file__).parent
#: A call that reads the length of an array, and its first argument.
_READS: Final = re.compile(
    r"(?:reader|self\._reader)\.(?:(?:compact_)?(?:nullable_)?array_length|(?:nullable_)?count)\(\s*([^,)]+)"
)


def _names() -> set[str]:
    """The arrays that the code names when it reads them."""
    return {
        match[1].strip()
        for path in _SOURCES.rglob("*.py")
        for match in _READS.finditer(path.read_text())
        if "def " not in match[0]
    }


def test_every_array_that_is_read_is_in_the_table() -> None:
    named = {name.strip('"') for name in _names() if name.startswith('"')}
    assert named
    assert named <= ARRAYS.keys()
    # Named elsewhere: the field is an argument of the function that reads it, or the list is read
    # in place.
    assert ARRAYS.keys() - named == {
        "Coordinators",
        "CurrentVoters",
        "Observers",
        "Tokens",
    }


@pytest.mark.parametrize("field", sorted(ARRAYS))
@pytest.mark.parametrize("compact", [False, True])
def test_an_array_ends_at_its_bound(field: str, compact: bool) -> None:
    for length in (ARRAYS[field], ARRAYS[field] + 1):
        writer = Writer()
        (writer.compact_array_length if compact else writer.array_length)(length)
        writer.raw(bytes(length))
        reader = Reader(writer.take())
        read = reader.compact_array_length if compact else reader.array_length
        if length <= ARRAYS[field]:
            assert read(field) == length
        else:
            with pytest.raises(
                BoundError, match=f"at most [0-9]+ {field} at offset 0, found {length}|at most"
            ):
                read(field)


def test_tagged_fields_end_at_their_bound() -> None:
    for count in (MAX_TAGGED_FIELDS, MAX_TAGGED_FIELDS + 1):
        writer = Writer()
        writer.tagged_fields(tuple((tag, b"") for tag in range(count)))
        reader = Reader(writer.take())
        if count <= MAX_TAGGED_FIELDS:
            assert len(reader.tagged_fields()) == count
        else:
            with pytest.raises(BoundError, match="at most 64 tagged fields at offset 0, found 65"):
                reader.tagged_fields()


def test_a_message_ends_at_the_bound_of_all_its_items() -> None:
    writer = Writer()
    for _ in range(MAX_ITEMS // MAX_TAGGED_FIELDS + 1):
        writer.tagged_fields(tuple((tag, b"") for tag in range(MAX_TAGGED_FIELDS)))
    reader = Reader(writer.take())
    for _ in range(MAX_ITEMS // MAX_TAGGED_FIELDS):
        reader.tagged_fields()
    with pytest.raises(BoundError, match=f"at most {MAX_ITEMS} array items and tagged fields in a message"):
        reader.tagged_fields()
