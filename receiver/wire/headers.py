"""Reads and writes request and response headers.

Versions of the request header:

- 0: API key, API version and correlation id. Only ControlledShutdown v0 ever used it.
- 1: adds the client id, nullable, with a length of two bytes. All later versions keep that form.
- 2: adds tagged fields at the end (KIP-482).
- 3: adds the client instance id, between the client id and the tagged fields (KIP-1313).

Version 0 of the response header has the correlation id, and version 1 adds tagged fields.

Header values are not checked here: a null client id, a zero client instance id and an unknown API
key are valid.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from receiver.wire import api_keys
from receiver.wire.bounds import MAX_TAGGED_FIELDS
from receiver.wire.errors import WireError
from receiver.wire.header_versions import FIRST_FLEXIBLE, FIRST_WITH_HEADER_V3, LATEST
from receiver.wire.primitives import Reader
from receiver.wire.uuid import ZERO_UUID, Uuid
from receiver.wire.writer import TaggedFields, Writer

#: API keys whose KIP-1313 version is always known, because the receiver itself answers these
#: requests.
ALWAYS_WITH_HEADER_V3: Final = frozenset({api_keys.GET_TELEMETRY_SUBSCRIPTIONS, api_keys.PUSH_TELEMETRY})

_MAX_VARINT_BYTES: Final = 5

_START = Struct(">hhi")  # API key, API version, correlation id
_INT16 = Struct(">h")


class RequestHeader(NamedTuple):
    """Header of a request."""

    api_key: int
    """Type of the request (int16)."""
    api_version: int
    """Version of the request's body (int16)."""
    correlation_id: int
    """Correlation id of the request and its response (int32)."""
    client_id: str | None = None
    """Name that the application chose, or None; always None in header v0."""
    client_instance_id: Uuid | None = None
    """Id of the client instance in header v3 (KIP-1313); None in earlier versions."""
    tagged_fields: TaggedFields = ()
    """Unknown tagged fields; empty before header v2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHeader:
    """Header of a response."""

    correlation_id: int
    """The request's correlation id (int32)."""
    tagged_fields: TaggedFields = ()
    """Unknown tagged fields; empty in header v0."""


def request_header_version(api_key: int, api_version: int, *, translated: Container[int] = ()) -> int:
    """Return the version of a request's header.

    Args:
        translated: API keys whose KIP-1313 version is offered on the connection. For other keys
            that version counts as unknown, except for the telemetry RPCs.

    Returns:
        0 to 3. An unknown key or version gives 1, because all later headers begin like version 1.
        The client id kept its old form for this purpose (KIP-511, KIP-1313).

    Source: KIP-482; KIP-1313, "Changes to the Kafka protocol message schemas".
    """
    if api_version == FIRST_WITH_HEADER_V3.get(api_key) and (
        api_key in ALWAYS_WITH_HEADER_V3 or api_key in translated
    ):
        return 3
    if 0 <= api_version <= LATEST.get(api_key, -1):
        return 2 if api_version >= FIRST_FLEXIBLE[api_key] else 1
    return 0 if api_key == api_keys.CONTROLLED_SHUTDOWN and api_version == 0 else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """Return the version of a response's header, 0 or 1; KIP-1313 adds none.

    An unknown API key gives 0. ApiVersions has 0 in every version, so that a client can read the
    answer to a version that the broker lacks.

    Source: KIP-482; KIP-511 for ApiVersions.
    """
    if api_key == api_keys.API_VERSIONS or api_key not in FIRST_FLEXIBLE:
        return 0
    return 1 if api_version >= FIRST_FLEXIBLE[api_key] else 0


def decode_request_header(reader: Reader, version: int | None = None) -> RequestHeader:
    """Read a request's header; afterwards the reader is at the body.

    Args:
        reader: At the beginning of a frame, after its length.
        version: The header version, 0 to 3; None for :func:`request_header_version`.

    Raises:
        WireError: The header is malformed.

    Source: KIP-482, KIP-1313 "Request Header".
    """
    api_key, api_version, correlation_id = reader.fixed(
        _START, "RequestApiKey, RequestApiVersion and CorrelationId"
    )
    if version is None:
        version = request_header_version(api_key, api_version)
    return RequestHeader(
        api_key=api_key,
        api_version=api_version,
        correlation_id=correlation_id,
        # Kafka accepts client ids that are not valid UTF-8.
        client_id=reader.nullable_string_of_any_bytes("ClientId") if version >= 1 else None,
        client_instance_id=reader.uuid("ClientInstanceId") if version >= 3 else None,
        tagged_fields=reader.tagged_fields("request header's tagged fields") if version >= 2 else (),
    )


def request_header_size(beginning: bytes, version: int) -> int:
    """Return the size of a request's header, or a lower bound if it is incomplete.

    Args:
        beginning: The first bytes of a frame, after its length; bytes after the header are ignored.
        version: The header version, 0 to 3.

    Returns:
        The header's size in bytes if all of it is in ``beginning``. Otherwise a lower bound of it
        that is greater than the length of ``beginning``.

    Raises:
        WireError: There are more than 64 tagged fields, or a count, tag or size is malformed.

    Source: KIP-482, KIP-1313 "Request Header".
    """
    size = _START.size
    if version >= 1:
        size += _INT16.size
        if size > len(beginning):
            return size
        # Every negative length means null.
        size += max(0, _INT16.unpack_from(beginning, _START.size)[0])
    if version >= 3:
        size += len(ZERO_UUID)
    if version >= 2:
        tags_at = size
        tags, size = _varint(beginning, size)
        # Each one can cause a header that arrives in pieces to be read once more.
        if tags > MAX_TAGGED_FIELDS:
            raise WireError(
                expected=f"at most {MAX_TAGGED_FIELDS} tagged fields in a request header",
                offset=tags_at,
                found=f"a count of {tags}",
            )
        for left in reversed(range(tags)):
            _, size = _varint(beginning, size)
            length, size = _varint(beginning, size)
            size += length
            if size > len(beginning):
                return size + 2 * left  # each further field has at least a tag and a size
    return size


def _varint(beginning: bytes, offset: int) -> tuple[int, int]:
    """Return a varint and its end; 0 and an end past the bytes if incomplete."""
    available = len(beginning) - offset
    if available > 0 and beginning[offset] < 0x80:  # the usual case: no tagged fields
        return beginning[offset], offset + 1
    reader = Reader(beginning, offset if available > 0 else len(beginning))
    try:
        return reader.unsigned_varint("request header's tagged fields"), reader.offset
    except WireError:
        if available >= _MAX_VARINT_BYTES:
            raise
        return 0, max(offset, len(beginning)) + 1


def encode_request_header(value: RequestHeader, version: int | None = None) -> bytes:
    """Write a request's header.

    Args:
        value: The header. Fields that the version lacks are left out. A missing client instance id
            is written as zero.
        version: The header version, 0 to 3; None for :func:`request_header_version`.

    Source: KIP-482, KIP-1313 "Request Header".
    """
    if version is None:
        version = request_header_version(value.api_key, value.api_version)
    writer = Writer()
    writer.fixed(_START, value.api_key, value.api_version, value.correlation_id)
    if version >= 1:
        writer.nullable_string(value.client_id)
    if version >= 3:
        writer.uuid(ZERO_UUID if value.client_instance_id is None else value.client_instance_id)
    if version >= 2:
        writer.tagged_fields(value.tagged_fields)
    return writer.take()


def decode_response_header(reader: Reader, version: int) -> ResponseHeader:
    """Read a response's header (KIP-482); afterwards the reader is at the body.

    Args:
        reader: At the beginning of a frame, after its length.
        version: The header version, from :func:`response_header_version`.
    """
    return ResponseHeader(
        correlation_id=reader.int32("CorrelationId"),
        tagged_fields=reader.tagged_fields("response header's tagged fields") if version >= 1 else (),
    )


def encode_response_header(value: ResponseHeader, version: int) -> bytes:
    """Write a response's header; version 0 leaves the tagged fields out (KIP-482)."""
    writer = Writer()
    writer.int32(value.correlation_id)
    if version >= 1:
        writer.tagged_fields(value.tagged_fields)
    return writer.take()


def at_body(response: bytes, api_key: int, api_version: int) -> Reader:
    """Return a reader at the body of a response, which comes without its length."""
    reader = Reader(response)
    decode_response_header(reader, response_header_version(api_key, api_version))
    return reader
