"""ShareAcknowledge (API key 79): results of a share group's records (KIP-932).

Only what rewriting needs. Flexible from the start. The response names the leaders that have moved.
Version 2 adds the acquisition lock's time. Version 0 was an early access version.
"""

from __future__ import annotations

from typing import Final

from receiver.wire import api_keys
from receiver.wire.api_keys import check_version
from receiver.wire.field_walk import DATA, TAGGED_FIELDS, Array, Fields

#: The versions with addresses that are replaced.
SUPPORTED_VERSIONS: Final = range(1, 3)

_FIRST_WITH_LOCK_TIME = 2

_RESPONSES: Final = Array(
    (
        16,  # TopicId
        Array(
            (
                4 + 2,  # PartitionIndex and ErrorCode
                DATA,  # ErrorMessage
                4 + 4,  # CurrentLeader: LeaderId and LeaderEpoch
                TAGGED_FIELDS,
                TAGGED_FIELDS,
            )
        ),
        TAGGED_FIELDS,
    )
)

# ThrottleTimeMs and ErrorCode; ErrorMessage; since version 2 AcquisitionLockTimeoutMs.
_VERSION_1: Final[Fields] = (4 + 2, DATA, _RESPONSES)
_VERSION_2: Final[Fields] = (4 + 2, DATA, 4, _RESPONSES)


def fields_before_endpoints(version: int) -> Fields:
    """Return the fields of a response body before its node endpoints."""
    check_version(api_keys.SHARE_ACKNOWLEDGE, version, SUPPORTED_VERSIONS)
    return _VERSION_2 if version >= _FIRST_WITH_LOCK_TIME else _VERSION_1
