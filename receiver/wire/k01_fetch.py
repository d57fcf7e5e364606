"""Fetch (API key 1): records of partitions, as far as rewriting needs it.

Versions of the response: 13 has topic ids in place of names (KIP-516). 16 names the leaders that
have moved, and their addresses (KIP-951).
"""

from __future__ import annotations

from typing import Final

from receiver.wire import api_keys
from receiver.wire.api_keys import check_version
from receiver.wire.field_walk import DATA, TAGGED_FIELDS, Array, Fields

__all__ = ["SUPPORTED_VERSIONS", "fields_before_endpoints"]

#: The versions with addresses that are replaced.
SUPPORTED_VERSIONS: Final = range(16, 19)

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
