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
from receiver.wire.bounds import ARRAYS
from receiver.wire.broker_addresses import ReplaceAddress, copy_address, copy_fields
from receiver.wire.errors import BoundError, WireError
from receiver.wire.primitives import Reader
from receiver.wire.writer import Writer

#: The versions whose addresses this module replaces.
SUPPORTED_VERSIONS: Final = range(7)

_FIRST_WITH_THROTTLE_TIME = 1
_FIRST_FLEXIBLE = 3
_FIRST_WITH_COORDINATORS = 4

#: The versions whose requests have a list of keys.
WITH_COORDINATORS: Final = SUPPORTED_VERSIONS[_FIRST_WITH_COORDINATORS:]

_KEY_TYPE_BYTES: Final = 1
_MAX_VARINT_BYTES: Final = 5


def count_size(beginning: bytes, body: int) -> int:
    """Return the size of a request with a list of keys, up to the list's length.

    Args:
        beginning: The first bytes of the request.
        body: Where its body begins in them.

    Returns:
        The size, or a lower bound of it that is greater than the length of ``beginning``.
    """
    for end in range(body + _KEY_TYPE_BYTES, min(body + _KEY_TYPE_BYTES + _MAX_VARINT_BYTES, len(beginning))):
        if beginning[end] < 0x80:
            return end + 1
    return min(len(beginning), body + _KEY_TYPE_BYTES + _MAX_VARINT_BYTES) + 1


def decode_count(reader: Reader) -> int:
    """Read the number of keys that a request asks for.

    Args:
        reader: At the body of a request with a list of keys, of which only the beginning needs to
            be there.

    Raises:
        WireError: The response would have more coordinators than are read.
    """
    reader.skip(_KEY_TYPE_BYTES, "KeyType")
    start, count = reader.offset, reader.unsigned_varint("CoordinatorKeys") - 1
    if count > ARRAYS["Coordinators"]:
        raise BoundError(
            expected=f"at most {ARRAYS['Coordinators']} CoordinatorKeys", offset=start, found=str(count)
        )
    return count


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
        return b"".join((writer.take(), *_coordinators(body, reader.offset, count, replace)))
    writer.raw(reader.rest_view())
    return writer.take()


def _coordinators(body: bytes, offset: int, count: int, replace: ReplaceAddress) -> list[bytes]:
    """Return the pieces of a body from its first coordinator on, with other addresses.

    A client chooses how many there are. So they are read in place, and an address is replaced once.
    """
    pieces: list[bytes] = []
    addresses: dict[bytes, bytes] = {}
    begin, size = offset, len(body)
    for _ in range(count):
        try:
            length, address = _length(body, offset)
            address += length  # behind the key
            length, end = _length(body, address + 4)
            end += length + 4
            length, after = _length(body, end + 2)
            after += length  # behind the error's message
            plain = body[after] == 0
        except IndexError:
            raise WireError(expected="a coordinator", offset=offset, found="the end of the body") from None
        if not plain:
            reader = Reader(body, after)
            reader.tagged_fields("Coordinator's tagged fields")
            after = reader.offset - 1
        named = body[address:end]
        replaced = addresses.get(named)
        if replaced is None:
            reader, writer = Reader(named), Writer()
            copy_address(reader, writer, replace, flexible=True)
            replaced = addresses[named] = writer.take()
        pieces += (body[begin:address], replaced)
        begin, offset = end, after + 1
        if offset > size:
            raise WireError(expected="a coordinator", offset=begin, found="the end of the body")
    pieces.append(body[begin:])
    return pieces


def _length(body: bytes, offset: int) -> tuple[int, int]:
    """Read the length of a compact string, 0 for null; return it and where the string begins."""
    length = body[offset]
    if length <= 0x7F:
        return max(length - 1, 0), offset + 1
    reader = Reader(body, offset)
    length = reader.unsigned_varint("a text's length")
    return length - 1, reader.offset


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
