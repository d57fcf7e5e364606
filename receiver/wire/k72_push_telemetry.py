"""PushTelemetry, API key 72: a client's metrics (KIP-714).

What the versions changed (both are flexible):

- 0: the first.
- 1: the request is without the client instance id; the request header has it (KIP-1313). The response is the
same.

This module owns the bytes of both. It must not look into the metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from receiver.wire.primitives import Reader, TaggedFields, Writer
from receiver.wire.uuid import ZERO_UUID, Uuid

__all__ = [
    "SUPPORTED_VERSIONS",
    "PushTelemetryRequest",
    "PushTelemetryResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

#: The versions that this module reads and writes, and that the receiver offers.
SUPPORTED_VERSIONS: Final = range(2)

_ID_SUBSCRIPTION_TERMINATING_CODEC = Struct(">16si?b")
_SUBSCRIPTION_TERMINATING_CODEC = Struct(">i?b")
_THROTTLE_AND_ERROR = Struct(">ih")


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTelemetryRequest:
    """One push of a client's metrics.

    Attributes:
        client_instance_id: The client instance's id; zero after version 0, where the request header has it.
        subscription_id: The set of subscriptions that the push answers (int32).
        terminating: Whether the client is about to close.
        compression_type: The codec of the metrics (int8): 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        metrics: OTLP MetricsData as the client compressed it; after decoding a view into the buffer that was
            read, which must not be changed as long as the view is in use. None where the client sent null:
            the schema forbids it, and librdkafka before 2.10.1 does it when nothing matched.
        tagged_fields: Tagged fields, kept raw.
    """

    client_instance_id: Uuid = ZERO_UUID
    subscription_id: int = 0
    terminating: bool = False
    compression_type: int = 0
    metrics: bytes | memoryview | None = b""
    tagged_fields: TaggedFields = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTelemetryResponse:
    """What became of a push.

    Attributes:
        throttle_time_ms: For how long the client should mute its connection, in milliseconds.
        error_code: An error code (int16); one that is not in ``ErrorCode`` is kept as it is.
        tagged_fields: Tagged fields, kept raw.
    """

    throttle_time_ms: int = 0
    error_code: int = 0
    tagged_fields: TaggedFields = ()


def decode_request(reader: Reader, version: int, *, cut: bool = False) -> PushTelemetryRequest:
    """Read a request's body, without a copy of the metrics.

    Args:
        reader: At the body.
        version: The request's API version, one of :data:`SUPPORTED_VERSIONS`.
        cut: Whether the body is one that was too long to be kept, and ends somewhere in its metrics: they are
            then as many of their bytes as there are.

    Returns:
        The request; its metrics are a view into the reader's buffer.

    Raises:
        WireError: The bytes are no such body.
        ValueError: The version is not supported.

    Source: KIP-714 and KIP-1313, "PushTelemetry API".
    """
    _check_version(version)
    client_instance_id = ZERO_UUID
    if version == 0:
        client_instance_id, subscription_id, terminating, compression_type = reader.fixed(
            _ID_SUBSCRIPTION_TERMINATING_CODEC,
            "ClientInstanceId, SubscriptionId, Terminating and CompressionType",
        )
    else:
        subscription_id, terminating, compression_type = reader.fixed(
            _SUBSCRIPTION_TERMINATING_CODEC, "SubscriptionId, Terminating and CompressionType"
        )
    metrics: memoryview | None
    tagged_fields: TaggedFields = ()
    if cut:
        reader.unsigned_varint("Metrics")
        metrics = reader.rest_view()
    else:
        metrics = reader.compact_nullable_bytes_view("Metrics")
        tagged_fields = reader.tagged_fields("PushTelemetryRequest's tagged fields")
    return PushTelemetryRequest(
        client_instance_id=client_instance_id,
        subscription_id=subscription_id,
        terminating=terminating,
        compression_type=compression_type,
        metrics=metrics,
        tagged_fields=tagged_fields,
    )


def encode_request(value: PushTelemetryRequest, version: int) -> bytes:
    """Write a request's body; what the version does not carry is left out.

    Args:
        value: The request.
        version: One of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The body.

    Raises:
        ValueError: The version is not supported, or the id has not 16 bytes.

    Source: KIP-714 and KIP-1313, "PushTelemetry API".
    """
    _check_version(version)
    writer = Writer()
    if version == 0:
        writer.uuid(value.client_instance_id)
    writer.fixed(
        _SUBSCRIPTION_TERMINATING_CODEC, value.subscription_id, value.terminating, value.compression_type
    )
    writer.compact_nullable_bytes(value.metrics)
    writer.tagged_fields(value.tagged_fields)
    return writer.take()


def decode_response(reader: Reader, version: int) -> PushTelemetryResponse:
    """Read a response's body.

    Args:
        reader: At the body.
        version: The request's API version, one of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The response.

    Raises:
        WireError: The bytes are no such body.
        ValueError: The version is not supported.

    Source: KIP-714, "PushTelemetry API".
    """
    _check_version(version)
    throttle_time_ms, error_code = reader.fixed(_THROTTLE_AND_ERROR, "ThrottleTimeMs and ErrorCode")
    return PushTelemetryResponse(
        throttle_time_ms=throttle_time_ms,
        error_code=error_code,
        tagged_fields=reader.tagged_fields("PushTelemetryResponse's tagged fields"),
    )


def encode_response(value: PushTelemetryResponse, version: int) -> bytes:
    """Write a response's body.

    Args:
        value: The response.
        version: The request's API version, one of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The body.

    Raises:
        ValueError: The version is not supported.

    Source: KIP-714, "PushTelemetry API".
    """
    _check_version(version)
    writer = Writer()
    writer.fixed(_THROTTLE_AND_ERROR, value.throttle_time_ms, value.error_code)
    writer.tagged_fields(value.tagged_fields)
    return writer.take()


def _check_version(version: int) -> None:
    if version not in SUPPORTED_VERSIONS:
        raise ValueError(
            f"PushTelemetry version {version} is not one of "
            f"{SUPPORTED_VERSIONS[0]} to {SUPPORTED_VERSIONS[-1]}"
        )
