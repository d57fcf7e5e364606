"""Builds and reads the whole messages that a session exchanges in place of others."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Final

from receiver.telemetry.identity import MAX_TEXT_CHARS
from receiver.wire import (
    api_keys,
    k03_metadata,
    k18_api_versions,
    k71_get_telemetry_subscriptions,
    k72_push_telemetry,
)
from receiver.wire.error_codes import ErrorCode
from receiver.wire.frame_rewriter import frame
from receiver.wire.headers import (
    RequestHeader,
    encode_request_header,
    response_header_version,
)
from receiver.wire.k18_api_versions import ApiVersionsRequest
from receiver.wire.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsResponse,
)
from receiver.wire.k72_push_telemetry import PushTelemetryResponse

#: A version that no broker's ApiVersions has.
_UNKNOWN_VERSION: Final = 32_767

_CORRELATION_ID = _INT32 = Struct(">i")

#: Length and correlation id, by response header version; version 1 has a count of tagged fields.
_ANSWER_STARTS: Final = (Struct(">ii"), Struct(">iix"))

#: Behind the length, the correlation id and the count of no tagged fields.
_THROTTLE_TIME_AT: Final = 9


def with_correlation_id(correlation_id: int, message: bytes, *, at: int = 4) -> bytes:
    """Return a message with its correlation id replaced.

    Args:
        message: A request or a response, without its length.
        at: Offset of the correlation id: 4 in a request, 0 in a response.
    """
    return b"".join((message[:at], _CORRELATION_ID.pack(correlation_id), message[at + 4 :]))


def api_versions_request(
    header: RequestHeader, correlation_id: int, version: int, body: ApiVersionsRequest
) -> bytes:
    """Write an ApiVersions request, without its length, in another version."""
    rewritten = RequestHeader(
        api_key=api_keys.API_VERSIONS,
        api_version=version,
        correlation_id=correlation_id,
        client_id=header.client_id,
    )
    return encode_request_header(rewritten) + k18_api_versions.encode_request(body, version)


def unknown_version_request(header: RequestHeader, correlation_id: int) -> bytes:
    """Write an ApiVersions request that has no effect but a response (KIP-511)."""
    unknown = RequestHeader(
        api_key=api_keys.API_VERSIONS,
        api_version=_UNKNOWN_VERSION,
        correlation_id=correlation_id,
        client_id=header.client_id,
    )
    # Kafka reads the header of an unknown version like that of its highest version, which is
    # flexible. Brokers older than flexible versions stop reading after the client id.
    return encode_request_header(unknown, version=2)


def marker(client_id: str | None, version: int, correlation_id: int) -> bytes:
    """Write the frame that replaces a telemetry request: Metadata for no topics.

    Args:
        client_id: The client's id, so that the broker counts the request against the client's
            quota.
        correlation_id: The correlation id that the broker's response will have.
    """
    write: Callable[[str | None, int], tuple[bytes, bytes]] = _around_correlation_id
    if client_id is not None and len(client_id) > MAX_TEXT_CHARS:
        write = _around_correlation_id.__wrapped__  # 1,000 cached long ids would take 100 MB
    before, after = write(client_id, version)
    return b"".join((before, _CORRELATION_ID.pack(correlation_id), after))


@lru_cache(maxsize=1024)
def _around_correlation_id(client_id: str | None, version: int) -> tuple[bytes, bytes]:
    header = RequestHeader(
        api_key=api_keys.METADATA, api_version=version, correlation_id=0, client_id=client_id
    )
    whole = frame(encode_request_header(header), k03_metadata.encode_no_topics_request(version))
    return whole[:8], whole[12:]  # length, API key and version come before the correlation id


def with_throttle_time(answer: bytes, throttle_time_ms: int) -> bytes:
    """Return the frame of a telemetry answer with another throttle time.

    Args:
        answer: The frame; its response header has no tagged fields.
        throttle_time_ms: For how long the broker throttles the client (KIP-124).
    """
    return b"".join(
        (answer[:_THROTTLE_TIME_AT], _INT32.pack(throttle_time_ms), answer[_THROTTLE_TIME_AT + 4 :])
    )


def telemetry_error(header: RequestHeader, error_code: ErrorCode) -> bytes:
    """Write the frame that answers a telemetry request with an error code."""
    if header.api_key == api_keys.PUSH_TELEMETRY:
        body = k72_push_telemetry.encode_response(
            PushTelemetryResponse(error_code=error_code), header.api_version
        )
    else:
        body = k71_get_telemetry_subscriptions.encode_response(
            GetTelemetrySubscriptionsResponse(error_code=error_code), header.api_version
        )
    return answer_frame(header, body)


def without_tagged_fields(header: RequestHeader) -> RequestHeader:
    """Return a header without its tagged fields, which may be large."""
    return header._replace(tagged_fields=()) if header.tagged_fields else header


def answer_frame(header: RequestHeader, body: bytes) -> bytes:
    """Write the answer to a request as a frame, without tagged fields in its header."""
    start = _ANSWER_STARTS[response_header_version(header.api_key, header.api_version)]
    return start.pack(start.size - _INT32.size + len(body), header.correlation_id) + body
