"""ShareFetch (API key 78): records for a share group (KIP-932).

Flexible from the start. Versions 1 and 2 of the response are the same, and name the leaders that
have moved. Version 0 was an early access version.
"""

from __future__ import annotations

from typing import Final

from receiver.wire import api_keys
from receiver.wire.api_keys import check_version
from receiver.wire.field_walk import DATA, TAGGED_FIELDS, Array, Fields

#: The versions with addresses that are replaced.
SUPPORTED_VERSIONS: Final = range(1, 3)

_PARTITIONS: Final = Array(
    (
        4 + 2,  # PartitionIndex and ErrorCode
        DATA,  # ErrorMessage
        2,  # AcknowledgeErrorCode
        DATA,  # AcknowledgeErrorMessage
        4 + 4,  # CurrentLeader: LeaderId and LeaderEpoch
        TAGGED_FIELDS,
        DATA,  # Records
        Array((8 + 8 + 2, TAGGED_FIELDS)),  # AcquiredRecords
        TAGGED_FIELDS,
    )
)

# ThrottleTimeMs and ErrorCode; ErrorMessage; AcquisitionLockTimeoutMs; Responses.
_FIELDS: Final[Fields] = (4 + 2, DATA, 4, Array((16, _PARTITIONS, TAGGED_FIELDS)))


def fields_before_endpoints(version: int) -> Fields:
    """Return the fields of a response body before its node endpoints."""
    check_version(api_keys.SHARE_FETCH, version, SUPPORTED_VERSIONS)
    return _FIELDS
