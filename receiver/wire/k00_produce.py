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

#: Offset of the client id's length in a request header.
_CLIENT_ID_AT: Final = 8

# Bytes of a partition before its RecordErrors, and of ThrottleTimeMs.
_RECORD_ERRORS_AT: Final = 4 + 2 + 8 + 8 + 8
_THROTTLE_TIME_BYTES: Final = 4

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


def has_no_endpoints(body: bytes | memoryview, at: int, end: int, version: int) -> bool:
    """Return whether a response surely names no leader that has moved.

    This is a quick look at the usual form: at most 126 topics and partitions of each, short names,
    no errors of records, no error messages, and no tagged fields. Of another form, and of a
    malformed one, nothing is said.

    Args:
        body: Holds the body of a response of a supported version.
        at: Where the body begins.
    """
    with_ids = version >= _FIRST_WITH_TOPIC_ID
    try:
        topics = body[at]
        at += 1
        for _ in range(topics - 1):
            if with_ids:
                at += _UUID
            else:
                name = body[at]
                if name >= 0x80:
                    return False
                at += max(name, 1)
            partitions = body[at]
            at += 1
            for _ in range(partitions - 1):
                at += _RECORD_ERRORS_AT
                # No errors of records, no message, no tagged fields.
                if body[at] > 1 or body[at + 1] > 1 or body[at + 2]:
                    return False
                at += 3
            if partitions >= 0x80 or body[at]:
                return False
            at += 1
        at += _THROTTLE_TIME_BYTES
        return topics < 0x80 and at == end - 1 and not body[at]
    except IndexError:
        return False


def decode_acks(reader: Reader) -> int:
    """Read the acknowledgements that a request of a supported version asks for.

    0 for no response.

    Args:
        reader: At the body, of which only the beginning needs to be there.
    """
    reader.compact_nullable_bytes_view("TransactionalId")
    return reader.int16("Acks")


def look_for_acks(request: bytes | memoryview, at: int, end: int) -> int | None:
    """Return the acknowledgements that a request asks for; 0 for no response.

    This is a quick look at the usual form: a header without tagged fields, and a short
    transactional id. Of another form, and of a request that is not there up to them, nothing is
    said: None.

    Args:
        request: Holds a request of a supported version, with the request header v2.
        at: Where its header begins.
        end: Where it ends, or the bytes that are there.
    """
    at += _CLIENT_ID_AT
    if at + 2 > end:
        return None
    size = request[at] << 8 | request[at + 1]
    at += 2 + (size if size < 0x8000 else 0)  # a negative length is null
    if at + 2 > end or request[at]:
        return None
    size = request[at + 1]
    if size >= 0x80:
        return None
    at += 2 + max(size - 1, 0)
    return None if at + _ACKS_BYTES > end else request[at] << 8 | request[at + 1]


def size_to_acks(beginning: bytes, body: int) -> int:
    """Return the size of a request up to its acknowledgements.

    It may be a lower bound that is greater than the length of ``beginning``.

    Args:
        beginning: The first bytes of a request of a supported version.
        body: Where its body begins in them.

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
