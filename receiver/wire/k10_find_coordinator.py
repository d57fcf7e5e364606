"""FindCoordinator (API key 10): the broker that coordinates a group or transactional id.

Versions of the response:

- 1: the throttle time, and an error message.
- 3: flexible (KIP-482).
- 4: a list of coordinators, one for each key (KIP-699).
- 5: an error code of transactions (KIP-890). 6: share groups (KIP-932).
"""

from __future__ import annotations

from typing import Final

from receiver.wire import api_keys
from receiver.wire.api_keys import check_version
from receiver.wire.broker_addresses import ReplaceAddress, copy_address, copy_fields
from receiver.wire.primitives import Reader, Writer

__all__ = ["SUPPORTED_VERSIONS", "replace_addresses"]

#: The versions whose addresses this module replaces.
SUPPORTED_VERSIONS: Final = range(7)

_FIRST_WITH_THROTTLE_TIME = 1
_FIRST_FLEXIBLE = 3
_FIRST_WITH_COORDINATORS = 4


def replace_addresses(body: bytes, version: int, replace: ReplaceAddress) -> bytes:
    """Replace the coordinators' addresses in a response body; see :mod:`.broker_addresses`.

    Raises:
        WireError: The body is malformed, up to the last address.
    """
    check_version(api_keys.FIND_COORDINATOR, version, SUPPORTED_VERSIONS)
    reader, writer = Reader(body), Writer()
    if version < _FIRST_WITH_COORDINATORS:
        copy_fields(reader, writer, lambda fields: _before_address(fields, version))
        copy_address(reader, writer, replace, flexible=version >= _FIRST_FLEXIBLE)
    else:
        copy_fields(reader, writer, _throttle_time)
        count = reader.compact_array_length("Coordinators", item_size=14)
        writer.compact_array_length(count)
        for _ in range(count):
            copy_fields(reader, writer, _key)
            copy_address(reader, writer, replace, flexible=True)
            copy_fields(reader, writer, _error)
    writer.raw(reader.rest_view())
    return writer.take()


def _before_address(reader: Reader, version: int) -> None:
    if version >= _FIRST_WITH_THROTTLE_TIME:
        reader.int32("ThrottleTimeMs")
    reader.int16("ErrorCode")
    if version >= _FIRST_FLEXIBLE:
        reader.compact_nullable_string("ErrorMessage")
    elif version >= _FIRST_WITH_THROTTLE_TIME:
        reader.nullable_string("ErrorMessage")


def _throttle_time(reader: Reader) -> None:
    reader.int32("ThrottleTimeMs")


def _key(reader: Reader) -> None:
    reader.compact_string("Key")


def _error(reader: Reader) -> None:
    reader.int16("ErrorCode")
    reader.compact_nullable_string("ErrorMessage")
    reader.tagged_fields("Coordinator's tagged fields")
