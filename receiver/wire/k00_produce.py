"""Produce (API key 0): records for partitions, as far as rewriting needs it.

Versions:

- 9: flexible (KIP-482).
- 10: the response names the leaders that have moved, and their addresses (KIP-951).
- 13: topics have ids and no names (KIP-516).
"""

from __future__ import annotations

from typing import Final

from receiver.wire import api_keys
from receiver.wire.api_keys import check_version
from receiver.wire.errors import WireError
from receiver.wire.field_walk import DATA, TAGGED_FIELDS, Array, Fields
from receiver.wire.primitives import Reader
from receiver.wire.writer import MAX_STRING_BYTES

#: The versions with addresses that are replaced.
SUPPORTED_VERSIONS: Final = range(10, 14)

_FIRST_WITH_TOPIC_ID = 13
_UUID = 16
_ACKS_BYTES = 2
_MAX_VARINT_BYTES = 5

_PARTITIONS: Final = Array(
    (
        # Index, ErrorCode, BaseOffset, LogAppendTimeMs and LogStartOffset.
        4 + 2 + 8 + 8 + 8,
        Array((4, DATA, TAGGED_FIELDS)),  # RecordErrors
        DATA,  # ErrorMessage
        TAGGED_FIELDS,
    )
)


def _fields(topic: int) -> Fields:
    return (Array((topic, _PARTITIONS, TAGGED_FIELDS)), 4)  # Responses and ThrottleTimeMs


_WITH_NAMES: Final = _fields(DATA)
_WITH_IDS: Final = _fields(_UUID)


def fields_before_endpoints(version: int) -> Fields:
    """Return the fields of a response body before its tagged fields."""
    check_version(api_keys.PRODUCE, version, SUPPORTED_VERSIONS)
    return _WITH_IDS if version >= _FIRST_WITH_TOPIC_ID else _WITH_NAMES


def decode_acks(reader: Reader) -> int:
    """Read the acknowledgements that a request of a supported version asks for; 0 for no response.

    Args:
        reader: At the body, of which only the beginning needs to be there.
    """
    reader.compact_nullable_bytes_view("TransactionalId")
    return reader.int16("Acks")


def size_to_acks(beginning: bytes, body: int) -> int:
    """Return the size of a request up to its acknowledgements.

    Args:
        beginning: The first bytes of a request of a supported version.
        body: Where its body begins in them.

    Returns:
        The size, or a lower bound of it that is greater than the length of ``beginning``.

    Raises:
        WireError: The transactional id is longer than any string.
    """
    for end in range(body, min(body + _MAX_VARINT_BYTES, len(beginning))):
        if beginning[end] < 0x80:
            reader = Reader(beginning, body)
            length = max(0, reader.unsigned_varint("TransactionalId") - 1)
            if length > MAX_STRING_BYTES:
                raise WireError(
                    expected=f"a TransactionalId of at most {MAX_STRING_BYTES} bytes",
                    offset=body,
                    found=f"a length of {length}",
                )
            return reader.offset + length + _ACKS_BYTES
    if len(beginning) >= body + _MAX_VARINT_BYTES:
        raise WireError(expected="TransactionalId (unsigned varint)", offset=body, found="a longer one")
    return len(beginning) + 1
