"""Fetch (API key 1): records of partitions, as far as rewriting needs it.

Versions of the response: 13 has topic ids in place of names (KIP-516). 16 names the leaders that
have moved, and their addresses (KIP-951).
"""

from __future__ import annotations

from typing import Final

from receiver.wire import api_keys
from receiver.wire.api_keys import check_version
from receiver.wire.field_walk import DATA, TAGGED_FIELDS, Array, Fields

#: The versions with addresses that are replaced.
SUPPORTED_VERSIONS: Final = range(16, 19)

# Bytes before and between the fields that vary in length.
_TOPICS_AT: Final = 4 + 2 + 4
_TOPIC_ID_BYTES: Final = 16
_ABORTED_AT: Final = 4 + 2 + 8 + 8 + 8
_PREFERRED_REPLICA_BYTES: Final = 4

#: What follows the last records: the numbers of tagged fields of partition, topic and response.
_LEAST_END: Final = 3

_PARTITIONS: Final = Array(
    (
        # PartitionIndex, ErrorCode, HighWatermark, LastStableOffset and LogStartOffset.
        4 + 2 + 8 + 8 + 8,
        Array((8 + 8, TAGGED_FIELDS)),  # AbortedTransactions
        4,  # PreferredReadReplica
        DATA,  # Records
        TAGGED_FIELDS,
    )
)

# ThrottleTimeMs, ErrorCode and SessionId; Responses, with topic ids.
_FIELDS: Final[Fields] = (4 + 2 + 4, Array((16, _PARTITIONS, TAGGED_FIELDS)))


def fields_before_endpoints(version: int) -> Fields:
    """Return the fields of a response body before its tagged fields."""
    check_version(api_keys.FETCH, version, SUPPORTED_VERSIONS)
    return _FIELDS


def has_no_endpoints(body: bytes | memoryview, at: int, end: int) -> bool:
    """Return whether a response surely names no leader that has moved.

    This is a quick look at the usual form: at most 126 topics and partitions of each, no aborted
    transactions, and no tagged fields. Of another form, and of a malformed one, nothing is said.
    The end may be missing from the last records on: what is left behind them has room for no
    tagged field.

    Args:
        body: Holds the body of a response of a supported version, or its beginning.
        at: Where the body begins.
    """
    there = len(body)
    try:
        at += _TOPICS_AT
        topics = body[at]
        at += 1
        for topic in range(topics - 1, 0, -1):
            at += _TOPIC_ID_BYTES
            partitions = body[at]
            at += 1
            for partition in range(partitions - 1, 0, -1):
                at += _ABORTED_AT
                if body[at] > 1:
                    return False
                at += 1 + _PREFERRED_REPLICA_BYTES
                length = body[at]
                at += 1
                if length >= 0x80:
                    more = body[at]
                    at += 1
                    length = length & 0x7F | (more & 0x7F) << 7
                    if more >= 0x80:
                        more = body[at]
                        at += 1
                        if more >= 0x80:
                            return False
                        length |= more << 14
                at += max(length - 1, 0)
                if at >= there:
                    return topic == partition == 1 and at == end - _LEAST_END and topics < 0x80
                if body[at]:
                    return False
                at += 1
            if partitions >= 0x80 or body[at]:
                return False
            at += 1
        return topics < 0x80 and at == end - 1 and not body[at]
    except IndexError:
        return False
