"""GetTelemetrySubscriptions, API key 71: what a client shall push (KIP-714).

What the versions changed (both are flexible):

- 0: the first.
- 1: without the client instance id in request and response; the request header has it (KIP-1313).

This module owns the bytes of both. It must not decide what is subscribed.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from receiver.wire.primitives import Reader, TaggedFields, Writer
from receiver.wire.uuid import ZERO_UUID, Uuid

__all__ = [
    "SUPPORTED_VERSIONS",
    "GetTelemetrySubscriptionsRequest",
    "GetTelemetrySubscriptionsResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

#: The versions that this module reads and writes, and that the receiver offers.
SUPPORTED_VERSIONS: Final = range(2)

_THROTTLE_AND_ERROR = Struct(">ih")
_INTERVAL_LIMIT_TEMPORALITY = Struct(">ii?")


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTelemetrySubscriptionsRequest:
    """A client's question what it shall push.

    Attributes:
        client_instance_id: The client instance's id, zero for none yet; zero after version 0, where the
            request header has it.
        tagged_fields: Tagged fields, kept raw.
    """

    client_instance_id: Uuid = ZERO_UUID
    tagged_fields: TaggedFields = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTelemetrySubscriptionsResponse:
    """What a client shall push, how, and how often.

    Attributes:
        throttle_time_ms: For how long the client should mute its connection, in milliseconds.
        error_code: An error code (int16); one that is not in ``ErrorCode`` is kept as it is.
        client_instance_id: The id the client goes by; left out of the bytes after version 0.
        subscription_id: Which set of subscriptions this is (int32).
        accepted_compression_types: Codecs (int8 each) in the order of preference: 1 gzip, 2 snappy, 3 lz4, 4
            zstd.
        push_interval_ms: Time between two pushes, in milliseconds.
        telemetry_max_bytes: The most bytes of metrics in one push.
        delta_temporality: True where counters shall be sent as deltas, False for cumulative values.
        requested_metrics: Prefixes of metric names; none: nothing, an empty string: everything.
        tagged_fields: Tagged fields, kept raw.
    """

    throttle_time_ms: int = 0
    error_code: int = 0
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: int = 0
    accepted_compression_types: tuple[int, ...] = ()
    push_interval_ms: int = 0
    telemetry_max_bytes: int = 0
    delta_temporality: bool = False
    requested_metrics: tuple[str, ...] = ()
    tagged_fields: TaggedFields = ()


def decode_request(reader: Reader, version: int) -> GetTelemetrySubscriptionsRequest:
    """Read a request's body.

    Args:
        reader: At the body.
        version: The request's API version, one of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The request.

    Raises:
        WireError: The bytes are no such body.
        ValueError: The version is not supported.

    Source: KIP-714 and KIP-1313, "GetTelemetrySubscriptions API".
    """
    _check_version(version)
    return GetTelemetrySubscriptionsRequest(
        client_instance_id=reader.uuid("ClientInstanceId") if version == 0 else ZERO_UUID,
        tagged_fields=reader.tagged_fields("GetTelemetrySubscriptionsRequest's tagged fields"),
    )


def encode_request(value: GetTelemetrySubscriptionsRequest, version: int) -> bytes:
    """Write a request's body; what the version does not carry is left out.

    Args:
        value: The request.
        version: One of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The body.

    Raises:
        ValueError: The version is not supported, or the id has not 16 bytes.

    Source: KIP-714 and KIP-1313, "GetTelemetrySubscriptions API".
    """
    _check_version(version)
    writer = Writer()
    if version == 0:
        writer.uuid(value.client_instance_id)
    writer.tagged_fields(value.tagged_fields)
    return writer.take()


def decode_response(reader: Reader, version: int) -> GetTelemetrySubscriptionsResponse:
    """Read a response's body.

    Args:
        reader: At the body.
        version: The request's API version, one of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The response.

    Raises:
        WireError: The bytes are no such body.
        ValueError: The version is not supported.

    Source: KIP-714 and KIP-1313, "GetTelemetrySubscriptions API".
    """
    _check_version(version)
    throttle_time_ms, error_code = reader.fixed(_THROTTLE_AND_ERROR, "ThrottleTimeMs and ErrorCode")
    client_instance_id = reader.uuid("ClientInstanceId") if version == 0 else ZERO_UUID
    subscription_id = reader.int32("SubscriptionId")
    codecs = reader.compact_array_length("AcceptedCompressionTypes")
    accepted = tuple([reader.int8("AcceptedCompressionTypes") for _ in range(codecs)])
    push_interval_ms, telemetry_max_bytes, delta_temporality = reader.fixed(
        _INTERVAL_LIMIT_TEMPORALITY, "PushIntervalMs, TelemetryMaxBytes and DeltaTemporality"
    )
    prefixes = reader.compact_array_length("RequestedMetrics")
    requested = tuple([reader.compact_string("RequestedMetrics") for _ in range(prefixes)])
    return GetTelemetrySubscriptionsResponse(
        throttle_time_ms=throttle_time_ms,
        error_code=error_code,
        client_instance_id=client_instance_id,
        subscription_id=subscription_id,
        accepted_compression_types=accepted,
        push_interval_ms=push_interval_ms,
        telemetry_max_bytes=telemetry_max_bytes,
        delta_temporality=delta_temporality,
        requested_metrics=requested,
        tagged_fields=reader.tagged_fields("GetTelemetrySubscriptionsResponse's tagged fields"),
    )


def encode_response(value: GetTelemetrySubscriptionsResponse, version: int) -> bytes:
    """Write a response's body; what the version does not carry is left out.

    Args:
        value: The response.
        version: The request's API version, one of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The body.

    Raises:
        ValueError: The version is not supported, the id has not 16 bytes, or a prefix is too long.

    Source: KIP-714 and KIP-1313, "GetTelemetrySubscriptions API".
    """
    _check_version(version)
    writer = Writer()
    writer.fixed(_THROTTLE_AND_ERROR, value.throttle_time_ms, value.error_code)
    if version == 0:
        writer.uuid(value.client_instance_id)
    writer.int32(value.subscription_id)
    writer.compact_array_length(len(value.accepted_compression_types))
    for codec in value.accepted_compression_types:
        writer.int8(codec)
    writer.fixed(
        _INTERVAL_LIMIT_TEMPORALITY,
        value.push_interval_ms,
        value.telemetry_max_bytes,
        value.delta_temporality,
    )
    writer.compact_array_length(len(value.requested_metrics))
    for prefix in value.requested_metrics:
        writer.compact_string(prefix)
    writer.tagged_fields(value.tagged_fields)
    return writer.take()


def _check_version(version: int) -> None:
    if version not in SUPPORTED_VERSIONS:
        raise ValueError(
            f"GetTelemetrySubscriptions version {version} is not one of "
            f"{SUPPORTED_VERSIONS[0]} to {SUPPORTED_VERSIONS[-1]}"
        )
