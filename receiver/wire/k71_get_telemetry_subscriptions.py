"""GetTelemetrySubscriptions (API key 71): the metrics to push (KIP-714).

Versions (both are flexible):

- 0: the first.
- 1: the request and the response lack the client instance id, which the request header has
  (KIP-1313).
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

_THROTTLE_AND_ERROR = Struct(">ih")
_INTERVAL_LIMIT_TEMPORALITY = Struct(">ii?")


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTelemetrySubscriptionsRequest:
    """A client's question which metrics to push."""

    client_instance_id: Uuid = ZERO_UUID
    """The client instance's id. Zero if it has none yet, and after version 0, where the request
    header has it."""
    tagged_fields: TaggedFields = ()
    """Unknown tagged fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTelemetrySubscriptionsResponse:
    """The metrics that a client is asked to push, and how often."""

    throttle_time_ms: int = 0
    """Milliseconds for which the client should send nothing."""
    error_code: int = 0
    """Error code (int16), also one that is not in ``ErrorCode``."""
    client_instance_id: Uuid = ZERO_UUID
    """The client instance's id; not encoded after version 0."""
    subscription_id: int = 0
    """Id of this set of subscriptions (int32)."""
    accepted_compression_types: tuple[int, ...] = ()
    """Codecs (int8 each), the preferred first: 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
    push_interval_ms: int = 0
    """Milliseconds between two pushes."""
    telemetry_max_bytes: int = 0
    """Most bytes of metrics in one push."""
    delta_temporality: bool = False
    """True to push counters as deltas, False for cumulative values."""
    requested_metrics: tuple[str, ...] = ()
    """Prefixes of metric names. No prefix requests nothing, an empty one everything."""
    tagged_fields: TaggedFields = ()
    """Unknown tagged fields."""


def decode_request(reader: Reader, version: int) -> GetTelemetrySubscriptionsRequest:
    """Read a request body (KIP-714 and KIP-1313, "GetTelemetrySubscriptions API")."""
    check_version(api_keys.GET_TELEMETRY_SUBSCRIPTIONS, version, SUPPORTED_VERSIONS)
    return GetTelemetrySubscriptionsRequest(
        client_instance_id=reader.uuid("ClientInstanceId") if version == 0 else ZERO_UUID,
        tagged_fields=reader.tagged_fields("GetTelemetrySubscriptionsRequest's tagged fields"),
    )


def encode_request(value: GetTelemetrySubscriptionsRequest, version: int) -> bytes:
    """Write a request body, with the client instance id in version 0."""
    check_version(api_keys.GET_TELEMETRY_SUBSCRIPTIONS, version, SUPPORTED_VERSIONS)
    writer = Writer()
    if version == 0:
        writer.uuid(value.client_instance_id)
    writer.tagged_fields(value.tagged_fields)
    return writer.take()


def decode_response(reader: Reader, version: int) -> GetTelemetrySubscriptionsResponse:
    """Read a response body (KIP-714 and KIP-1313, "GetTelemetrySubscriptions API")."""
    check_version(api_keys.GET_TELEMETRY_SUBSCRIPTIONS, version, SUPPORTED_VERSIONS)
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
    """Write a response body; fields that the version lacks are left out."""
    check_version(api_keys.GET_TELEMETRY_SUBSCRIPTIONS, version, SUPPORTED_VERSIONS)
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
