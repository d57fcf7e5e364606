"""FindCoordinator (API key 10): the broker of a group or transactional id.

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
from receiver.wire.bounds import ARRAYS, MAX_TAGGED_FIELDS
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

_THROTTLE_TIME_BYTES: Final = 4
_NODE_ID_BYTES: Final = 4
_PORT_BYTES: Final = 4
_ERROR_CODE_BYTES: Final = 2


def count_size(beginning: bytes, body: int) -> int:
    """Return the size of a request with a list of keys, up to the list's length.

    It may be a lower bound that is greater than the length of ``beginning``.

    Args:
        beginning: The first bytes of the request.
        body: Where its body begins in them.
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
    """Replace the coordinators' addresses in a response body.

    See :mod:`.broker_addresses`.
    """
    check_version(api_keys.FIND_COORDINATOR, version, SUPPORTED_VERSIONS)
    if version in WITH_COORDINATORS:
        return CoordinatorsEdit(0, replace).finish(body)
    reader, writer = Reader(body), Writer()
    copy_fields(reader, writer, lambda fields: _before_address(fields, version))
    copy_address(reader, writer, replace, flexible=version >= _FIRST_FLEXIBLE)
    writer.raw(reader.rest_view())
    return writer.take()


class CoordinatorsEdit:
    """Replaces the addresses in a list of coordinators, as it arrives.

    A client chooses how many coordinators there are. So they are read in place and as they arrive,
    and an address is replaced once.

    Args:
        at: Where the body begins in the response.
        replace: Gives the host and port of each broker.
    """

    __slots__ = ("_addresses", "_at", "_left", "_offset", "_pieces", "_replace", "_wanted")

    def __init__(self, at: int, replace: ReplaceAddress) -> None:
        self._at = at
        self._offset = at  # of the first byte that is not edited
        self._replace = replace
        self._left: int | None = None  # coordinators still to come; None in front of their number
        self._pieces: list[bytes] = []
        self._addresses: dict[bytes, bytes] = {}
        self._wanted = 1  # bytes that are worth another look

    @property
    def held_bytes(self) -> int:
        """Bytes of the edited part, about as many as were read of it."""
        return self._offset - self._at

    def feed(self, response: bytes | memoryview) -> None:
        """Edit the coordinators that have arrived.

        Raises:
            WireError: An address is malformed, or there are too many coordinators.
        """
        if len(response) - self._offset < self._wanted:
            return
        data = bytes(response[self._offset :])
        done = self._edit(data)
        self._offset += done
        # So that what is looked at twice is no more than what arrives.
        self._wanted = 1 if done else 2 * len(data)

    def finish(self, response: bytes) -> bytes:
        """Return the whole body, with other addresses."""
        self._wanted = 0
        self.feed(response)
        if self._left != 0:
            raise WireError(expected="a coordinator", offset=self._offset, found="the end of the body")
        return b"".join((*self._pieces, response[self._offset :]))

    def _edit(self, data: bytes) -> int:
        """Edit what is whole in the next bytes, and return where that ends in them."""
        at = 0
        if self._left is None:
            try:
                count, at = _length(data, _THROTTLE_TIME_BYTES)
            except (IndexError, WireError):  # it is not there yet, or `finish` finds that it is malformed
                return 0
            if count > ARRAYS["Coordinators"]:
                raise BoundError(
                    expected=f"at most {ARRAYS['Coordinators']} Coordinators",
                    offset=self._offset + _THROTTLE_TIME_BYTES,
                    found=str(count),
                )
            self._left = count
        pieces: list[bytes] = []
        copied = 0
        while self._left:
            try:
                address, end, after = _bounds(data, at)
            except IndexError:
                break
            if after > len(data):
                break
            pieces += (data[copied:address], self._replaced(data[address:end]))
            copied, at = end, after
            self._left -= 1
        pieces.append(data[copied:at])
        self._pieces.append(b"".join(pieces))
        return at

    def _replaced(self, named: bytes) -> bytes:
        replaced = self._addresses.get(named)
        if replaced is None:
            reader, writer = Reader(named), Writer()
            copy_address(reader, writer, self._replace, flexible=True)
            replaced = self._addresses[named] = writer.take()
        return replaced


def _bounds(data: bytes, at: int) -> tuple[int, int, int]:
    """Return begin and end of a coordinator's address, and the coordinator's end.

    Raises:
        IndexError: The coordinator is longer than the data.
    """
    length, address = _length(data, at)
    address += length  # behind the key
    length, end = _length(data, address + _NODE_ID_BYTES)
    end += length + _PORT_BYTES
    length, after = _length(data, end + _ERROR_CODE_BYTES)
    after += length  # behind the error's message
    if data[after]:
        after = _after_tagged_fields(data, after)
    else:
        after += 1
    return address, end, after


def _after_tagged_fields(data: bytes, at: int) -> int:
    """Walk over tagged fields, and return where they end; see :func:`_bounds`."""
    count, at = _varint(data, at)
    if count > MAX_TAGGED_FIELDS:
        raise BoundError(expected=f"at most {MAX_TAGGED_FIELDS} tagged fields", offset=at, found=str(count))
    for _ in range(count):
        _, at = _varint(data, at)
        size, at = _varint(data, at)
        at += size
    return at


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return the length of a compact string or array, 0 for null, and where it ends."""
    length = data[at]
    if length <= 0x7F:
        return max(length - 1, 0), at + 1
    length, at = _varint(data, at)
    return max(length - 1, 0), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint; return it and where it ends.

    Raises:
        IndexError: It is longer than the data.
        WireError: It has more than 32 bits.
    """
    value = data[at]
    if value <= 0x7F:
        return value, at + 1
    if all(byte > 0x7F for byte in data[at : at + _MAX_VARINT_BYTES]) and len(data) - at < _MAX_VARINT_BYTES:
        raise IndexError
    reader = Reader(data, at)
    return reader.unsigned_varint("a length"), reader.offset


def _before_address(reader: Reader, version: int) -> None:
    if version >= _FIRST_WITH_THROTTLE_TIME:
        reader.int32("ThrottleTimeMs")
    reader.int16("ErrorCode")
    if version >= _FIRST_FLEXIBLE:
        reader.compact_nullable_string("ErrorMessage")
    elif version >= _FIRST_WITH_THROTTLE_TIME:
        reader.nullable_string("ErrorMessage")
