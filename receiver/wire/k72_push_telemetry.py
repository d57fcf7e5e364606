"""PushTelemetry (API key 72): a client's metrics (KIP-714).

Versions (both are flexible):

- 0: the first.
- 1: the request lacks the client instance id, which the request header has (KIP-1313).

The metrics are not parsed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from receiver.wire import api_keys
from receiver.wire.api_keys import check_version
from receiver.wire.primitives import Reader
from receiver.wire.uuid import ZERO_UUID, Uuid
from receiver.wire.writer import TaggedFields, Writer

#: The versions that the receiver reads, writes and offers.
SUPPORTED_VERSIONS: Final = range(2)

_ID_SUBSCRIPTION_TERMINATING_CODEC = Struct(">16si?b")
_SUBSCRIPTION_TERMINATING_CODEC = Struct(">i?b")
_THROTTLE_AND_ERROR = Struct(">ih")
_THROTTLE_ERROR_AND_NO_TAGS = Struct(">ihx")


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTelemetryRequest:
    """One push of a client's metrics."""

    client_instance_id: Uuid = ZERO_UUID
    """The client instance's id; zero after version 0, where the request header has it."""
    subscription_id: int = 0
    """The set of subscriptions that the push follows (int32)."""
    terminating: bool = False
    """Whether the client is about to close."""
    compression_type: int = 0
    """Codec of the metrics (int8): 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
    metrics: bytes | memoryview | None = b""
    """OTLP MetricsData as the client compressed it. After decoding it is a view into the buffer,
    which must not change while the view is in use. None if the client sent null: the schema forbids
    it, but librdkafka before 2.10.1 sends it when no metric matched."""
    tagged_fields: TaggedFields = ()
    """Unknown tagged fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTelemetryResponse:
    """The answer to a push."""

    throttle_time_ms: int = 0
    """Milliseconds for which the client should send nothing."""
    error_code: int = 0
    """Error code (int16), also one that is not in ``ErrorCode``."""
    tagged_fields: TaggedFields = ()
    """Unknown tagged fields."""


def decode_request(reader: Reader, version: int, *, cut: bool = False) -> PushTelemetryRequest:
    """Read a request body; the metrics are a view into the reader's buffer.

    Args:
        reader: At the body.
        cut: Whether the end of the body was not kept. The metrics are then the bytes that are
            there.

    Source: KIP-714 and KIP-1313, "PushTelemetry API".
    """
    check_version(api_keys.PUSH_TELEMETRY, version, SUPPORTED_VERSIONS)
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
    """Write a request body, with the client instance id in version 0."""
    check_version(api_keys.PUSH_TELEMETRY, version, SUPPORTED_VERSIONS)
    writer = Writer()
    if version == 0:
        writer.uuid(value.client_instance_id)
    writer.fixed(
        _SUBSCRIPTION_TERMINATING_CODEC, value.subscription_id, value.terminating, value.compression_type
    )
    if value.metrics is None:
        writer.unsigned_varint(0)
    else:
        writer.compact_bytes_field(bytes(value.metrics))
    writer.tagged_fields(value.tagged_fields)
    return writer.take()


def decode_response(reader: Reader, version: int) -> PushTelemetryResponse:
    """Read a response body (KIP-714, "PushTelemetry API")."""
    check_version(api_keys.PUSH_TELEMETRY, version, SUPPORTED_VERSIONS)
    throttle_time_ms, error_code = reader.fixed(_THROTTLE_AND_ERROR, "ThrottleTimeMs and ErrorCode")
    return PushTelemetryResponse(
        throttle_time_ms=throttle_time_ms,
        error_code=error_code,
        tagged_fields=reader.tagged_fields("PushTelemetryResponse's tagged fields"),
    )


def encode_response(value: PushTelemetryResponse, version: int) -> bytes:
    """Write a response body (KIP-714, "PushTelemetry API")."""
    check_version(api_keys.PUSH_TELEMETRY, version, SUPPORTED_VERSIONS)
    if not value.tagged_fields:
        return _THROTTLE_ERROR_AND_NO_TAGS.pack(value.throttle_time_ms, value.error_code)
    writer = Writer()
    writer.fixed(_THROTTLE_AND_ERROR, value.throttle_time_ms, value.error_code)
    writer.tagged_fields(value.tagged_fields)
    return writer.take()
