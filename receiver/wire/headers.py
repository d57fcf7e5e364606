"""Request and response headers, and which message has which version of them.

What the versions of the request header changed:

- 0: API key, API version, correlation id; only ever in use for ControlledShutdown v0.
- 1: the client id, nullable, with a length of two bytes. It keeps that form in every later version.
- 2: flexible: tagged fields at the end (KIP-482).
- 3: the client instance id, between the client id and the tagged fields (KIP-1313).

And of the response header: 0 is the correlation id; 1 adds tagged fields.

This module owns their bytes, and the choice of the version by the numbers in
:mod:`receiver.wire.header_versions`. It must not check what a header says: a null client id, a zero instance
id and an unknown key are values like any other.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from struct import Struct
from typing import Final

from receiver.wire import api_keys
from receiver.wire.errors import WireError
from receiver.wire.header_versions import FIRST_FLEXIBLE, LATEST, V3_SINCE
from receiver.wire.primitives import Reader, TaggedFields, Writer
from receiver.wire.uuid import ZERO_UUID, Uuid

__all__ = [
    "RequestHeader",
    "ResponseHeader",
    "decode_request_header",
    "decode_response_header",
    "encode_request_header",
    "encode_response_header",
    "request_header_size",
    "request_header_version",
    "response_header_version",
]

#: RPCs of which KIP-1313's version is the receiver's own and means the same on every connection.
_ANSWERED_HERE: Final = frozenset({api_keys.GET_TELEMETRY_SUBSCRIPTIONS, api_keys.PUSH_TELEMETRY})

#: Kafka has none. Each can make a header that arrives in pieces be gone through once more.
_MAX_TAGGED_FIELDS: Final = 64

_MAX_VARINT_BYTES: Final = 5

_START = Struct(">hhi")  # API key, API version, correlation id
_INT16 = Struct(">h")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeader:
    """What precedes the body of every request.

    Attributes:
        api_key: Which request it is (int16).
        api_version: In which version its body is written (int16).
        correlation_id: What the response will carry (int32).
        client_id: The application's name of itself, or None; always None in header version 0.
        client_instance_id: The client instance's id in header version 3, None in earlier ones (KIP-1313).
        tagged_fields: Tagged fields, kept raw; empty before header version 2.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None
    client_instance_id: Uuid | None = None
    tagged_fields: TaggedFields = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHeader:
    """What precedes the body of every response.

    Attributes:
        correlation_id: The request's (int32).
        tagged_fields: Tagged fields, kept raw; empty in header version 0.
    """

    correlation_id: int
    tagged_fields: TaggedFields = ()


def request_header_version(api_key: int, api_version: int, *, translated: Container[int] = ()) -> int:
    """Tell the version of a request's header.

    Args:
        api_key: The request's API key.
        api_version: The request's API version.
        translated: API keys of which KIP-1313's version is offered on the connection. That version of other
            keys is not known, but for the telemetry RPCs, of which it always is KIP-1313's.

    Returns:
        0 to 3. For a key or version that is not known, 1: the part of the header that every request but
        ControlledShutdown v0 has in common, up to the client id. Whatever later versions put behind it, it
        stays readable, which is why the client id kept its old form (KIP-511, KIP-1313).

    Source: KIP-482; KIP-1313, "Changes to the Kafka protocol message schemas".
    """
    if api_version == V3_SINCE.get(api_key) and (api_key in _ANSWERED_HERE or api_key in translated):
        return 3
    if 0 <= api_version <= LATEST.get(api_key, -1):
        return 2 if api_version >= FIRST_FLEXIBLE[api_key] else 1
    return 0 if api_key == api_keys.CONTROLLED_SHUTDOWN and api_version == 0 else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """Tell the version of a response's header; KIP-1313 adds none.

    Args:
        api_key: The request's API key.
        api_version: The request's API version, KIP-1313's included.

    Returns:
        0 or 1. For a key that is not known, 0: the correlation id, which all have in common. ApiVersions has
        0 in every version, so that a client that asked in one which the broker lacks can read the answer.

    Source: KIP-482; KIP-511 for ApiVersions.
    """
    if api_key == api_keys.API_VERSIONS or api_key not in FIRST_FLEXIBLE:
        return 0
    return 1 if api_version >= FIRST_FLEXIBLE[api_key] else 0


def decode_request_header(reader: Reader, version: int | None = None) -> RequestHeader:
    """Read a request's header; the reader is then at the body.

    Args:
        reader: At the beginning of a frame, after its length.
        version: The header version, 0 to 3; None takes it from the table by the key and version it reads.

    Returns:
        The header.

    Raises:
        WireError: The bytes are no such header.

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
        # Kafka lets a client in whose id is no UTF-8.
        client_id=reader.nullable_string_of_any_bytes("ClientId") if version >= 1 else None,
        client_instance_id=reader.uuid("ClientInstanceId") if version >= 3 else None,
        tagged_fields=reader.tagged_fields("request header's tagged fields") if version >= 2 else (),
    )


def request_header_size(beginning: bytes, version: int) -> int:
    """Tell how long a request's header is, as far as its beginning tells.

    Args:
        beginning: The first bytes of a frame, after its length; its end does not matter.
        version: The header version, 0 to 3.

    Returns:
        The header's size in bytes where all of it is there; else more than is there, and at least so many
        bytes it has.

    Raises:
        WireError: There are more than 64 tagged fields, or a count, tag or size is none.

    Source: KIP-482, KIP-1313 "Request Header".
    """
    size = _START.size
    if version >= 1:
        size += _INT16.size
        if size > len(beginning):
            return size
        # Every length below zero is null.
        size += max(0, _INT16.unpack_from(beginning, _START.size)[0])
    if version >= 3:
        size += len(ZERO_UUID)
    if version >= 2:
        tags_at = size
        tags, size = _varint(beginning, size)
        if tags > _MAX_TAGGED_FIELDS:
            raise WireError(
                expected=f"at most {_MAX_TAGGED_FIELDS} tagged fields in a request header",
                offset=tags_at,
                found=f"a count of {tags}",
            )
        for left in reversed(range(tags)):
            _, size = _varint(beginning, size)
            length, size = _varint(beginning, size)
            size += length
            if size > len(beginning):
                return size + 2 * left  # at least: each of them has a tag and a size
    return size


def _varint(beginning: bytes, offset: int) -> tuple[int, int]:
    """Read one and tell where it ends; where it is not all there, 0 and an end that is not there either."""
    available = len(beginning) - offset
    if available > 0 and beginning[offset] < 0x80:  # nearly always: there are no tagged fields
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
        value: The header; what the version does not carry is left out, and a missing instance id is zero.
        version: The header version, 0 to 3; None takes it from the table by the header's key and version.

    Returns:
        The bytes that go before the body.

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
    """Read a response's header; the reader is then at the body.

    Args:
        reader: At the beginning of a frame, after its length.
        version: The header version, 0 or 1, as :func:`response_header_version` tells it.

    Returns:
        The header.

    Raises:
        WireError: The bytes are no such header.

    Source: KIP-482.
    """
    return ResponseHeader(
        correlation_id=reader.int32("CorrelationId"),
        tagged_fields=reader.tagged_fields("response header's tagged fields") if version >= 1 else (),
    )


def encode_response_header(value: ResponseHeader, version: int) -> bytes:
    """Write a response's header.

    Args:
        value: The header; tagged fields are left out of version 0.
        version: The header version, 0 or 1.

    Returns:
        The bytes that go before the body.

    Source: KIP-482.
    """
    writer = Writer()
    writer.int32(value.correlation_id)
    if version >= 1:
        writer.tagged_fields(value.tagged_fields)
    return writer.take()
