"""The messages that a session reads and writes in place of others, each in one call.

Owns nothing of when; that is the session's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from struct import Struct
from typing import Final

from receiver.telemetry.connection import MAX_TEXT_CHARS
from receiver.wire import (
    api_keys,
    k03_metadata,
    k18_api_versions,
    k47_offset_delete,
    k71_get_telemetry_subscriptions,
    k72_push_telemetry,
)
from receiver.wire.error_codes import ErrorCode
from receiver.wire.error_responses import error_body
from receiver.wire.errors import WireError
from receiver.wire.framing import frame
from receiver.wire.headers import (
    RequestHeader,
    ResponseHeader,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    response_header_version,
)
from receiver.wire.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from receiver.wire.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from receiver.wire.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from receiver.wire.primitives import Reader

__all__ = [
    "api_versions_request",
    "at_body",
    "decode_telemetry",
    "error_answer",
    "marker",
    "offset_delete_answer",
    "response_header",
    "telemetry_error",
    "under",
    "unknown_version_request",
    "without_tagged_fields",
]

#: A version that ApiVersions will never have.
_UNKNOWN_VERSION: Final = 32_767

_CORRELATION_ID = Struct(">i")


def decode_telemetry(
    header: RequestHeader, reader: Reader, *, cut_beyond: int | None
) -> GetTelemetrySubscriptionsRequest | PushTelemetryRequest:
    """Read the body of a telemetry request (KIP-714).

    Args:
        header: Its header.
        reader: At the body.
        cut_beyond: For a push that was too long to be kept whole: more metrics than this many bytes must be
            left of it. None for a request that is whole.

    Raises:
        WireError: The bytes are no such body, or its version is not offered: Kafka closes a connection that
            sends such a one, as only ApiVersions is answered with an error (KIP-511).
    """
    is_push = header.api_key == api_keys.PUSH_TELEMETRY
    versions = (k72_push_telemetry if is_push else k71_get_telemetry_subscriptions).SUPPORTED_VERSIONS
    if header.api_version not in versions:
        raise WireError(
            expected=f"{api_keys.api_name(header.api_key)} version {versions[0]} to {versions[-1]}",
            offset=2,
            found=f"version {header.api_version}",
        )
    # In version 1 the header has the id (KIP-1313).
    named = header.client_instance_id
    if not is_push:
        get = k71_get_telemetry_subscriptions.decode_request(reader, header.api_version)
        return get if named is None else replace(get, client_instance_id=named)
    cut = cut_beyond is not None
    push = k72_push_telemetry.decode_request(reader, header.api_version, cut=cut)
    if named is not None:
        push = replace(push, client_instance_id=named)
    if cut_beyond is not None and len(push.metrics or b"") <= cut_beyond:
        # Other fields took the room that was kept: what is left of the metrics is neither they nor too large.
        raise WireError(
            expected=f"more than {cut_beyond} bytes of metrics in a push that is too long to be kept",
            offset=reader.offset,
            found=f"{len(push.metrics or b'')} bytes before its end was cut",
        )
    return push


def under(correlation_id: int, message: bytes, *, at: int = 4) -> bytes:
    """Return a message under another correlation id, everything else as it was.

    Args:
        correlation_id: The other one.
        message: A request, or a response with ``at=0``, without its length.
        at: Where its correlation id is.
    """
    return b"".join((message[:at], _CORRELATION_ID.pack(correlation_id), message[at + 4 :]))


def error_answer(header: RequestHeader, error_code: ErrorCode) -> bytes | None:
    """Write the frame of an answer to any request that says nothing but an error.

    Returns:
        The frame; None where the answer to such a request has no place for the error.
    """
    version = header.api_version
    if header.api_key == api_keys.API_VERSIONS and version in k18_api_versions.SUPPORTED_VERSIONS:
        body = k18_api_versions.encode_response(ApiVersionsResponse(error_code=error_code), version)
    else:
        known = error_body(header.api_key, version, error_code)
        if known is None:
            return None
        body = known
    return frame(response_header(header), body)


def at_body(response: bytes, api_key: int, api_version: int) -> Reader:
    """Return a reader at the body of a response, which comes without its length.

    Args:
        response: The response.
        api_key: The API key of its request.
        api_version: The API version of its request.

    Raises:
        WireError: The bytes have no such header.
    """
    reader = Reader(response)
    decode_response_header(reader, response_header_version(api_key, api_version))
    return reader


def offset_delete_answer(header: RequestHeader, response: bytes) -> bytes:
    """Write the frame of an answer to OffsetDelete v1.

    Args:
        header: The request's header.
        response: The broker's answer to version 0, without its length.

    Raises:
        WireError: It is no such answer.
    """
    body = at_body(response, header.api_key, header.api_version - 1)
    return frame(response_header(header), k47_offset_delete.response_to_v1(body))


def api_versions_request(
    header: RequestHeader, correlation_id: int, version: int, body: ApiVersionsRequest
) -> bytes:
    """Write an ApiVersions request, without its length, in place of one with this header."""
    rewritten = RequestHeader(
        api_key=api_keys.API_VERSIONS,
        api_version=version,
        correlation_id=correlation_id,
        client_id=header.client_id,
    )
    return encode_request_header(rewritten) + k18_api_versions.encode_request(body, version)


def unknown_version_request(header: RequestHeader, correlation_id: int) -> bytes:
    """Write an ApiVersions request that a broker answers and otherwise takes no notice of (KIP-511)."""
    unknown = RequestHeader(
        api_key=api_keys.API_VERSIONS,
        api_version=_UNKNOWN_VERSION,
        correlation_id=correlation_id,
        client_id=header.client_id,
    )
    # Kafka reads the header of a version that it lacks like that of its greatest, which is flexible; a broker
    # from before that stops behind the client id.
    return encode_request_header(unknown, version=2)


def marker(client_id: str | None, version: int, correlation_id: int) -> bytes:
    """Write the frame that a broker gets in place of a telemetry request: Metadata for no topics.

    Args:
        client_id: The client's, so that the broker counts it against the client's quota.
        version: Metadata's version.
        correlation_id: Under which the broker will answer.
    """
    write: Callable[[str | None, int], tuple[bytes, bytes]] = _around_correlation_id
    if client_id is not None and len(client_id) > MAX_TEXT_CHARS:
        write = _around_correlation_id.__wrapped__  # a thousand of them would take a hundred megabytes
    before, after = write(client_id, version)
    return b"".join((before, _CORRELATION_ID.pack(correlation_id), after))


@lru_cache(maxsize=1024)
def _around_correlation_id(client_id: str | None, version: int) -> tuple[bytes, bytes]:
    header = RequestHeader(
        api_key=api_keys.METADATA, api_version=version, correlation_id=0, client_id=client_id
    )
    whole = frame(encode_request_header(header), k03_metadata.encode_no_topics_request(version))
    return whole[:8], whole[12:]  # the length, the key and the version come before it


def telemetry_error(header: RequestHeader, error_code: ErrorCode) -> bytes:
    """Write the frame of an answer to a telemetry request that says nothing but an error."""
    if header.api_key == api_keys.PUSH_TELEMETRY:
        body = k72_push_telemetry.encode_response(
            PushTelemetryResponse(error_code=error_code), header.api_version
        )
    else:
        body = k71_get_telemetry_subscriptions.encode_response(
            GetTelemetrySubscriptionsResponse(error_code=error_code), header.api_version
        )
    return frame(response_header(header), body)


def without_tagged_fields(header: RequestHeader) -> RequestHeader:
    """Return a header as it is kept until the answer: its tagged fields may be large, and are not read."""
    return replace(header, tagged_fields=()) if header.tagged_fields else header


def response_header(header: RequestHeader) -> bytes:
    """Write the header of the answer to a request with this header."""
    return encode_response_header(
        ResponseHeader(correlation_id=header.correlation_id),
        response_header_version(header.api_key, header.api_version),
    )
