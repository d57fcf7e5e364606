"""Encodes and decodes the messages whose other half only clients and brokers need.

The receiver reads SASL messages and telemetry requests, and writes telemetry responses. A test that
plays the client or the broker needs the opposite direction of each.
"""

from __future__ import annotations

from struct import Struct

from receiver.wire import (
    api_keys,
    k17_sasl_handshake,
    k36_sasl_authenticate,
    k71_get_telemetry_subscriptions,
    k72_push_telemetry,
)
from receiver.wire.api_keys import check_version
from receiver.wire.k17_sasl_handshake import SaslHandshakeResponse
from receiver.wire.k36_sasl_authenticate import SaslAuthenticateResponse
from receiver.wire.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from receiver.wire.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from receiver.wire.primitives import Reader
from receiver.wire.uuid import ZERO_UUID
from receiver.wire.writer import Buffer, Writer

_SASL_FIRST_WITH_LIFETIME = 1
_SASL_FIRST_FLEXIBLE = 2

_INT8 = Struct(">b")
_INT64 = Struct(">q")
_THROTTLE_AND_ERROR = Struct(">ih")
_INTERVAL_LIMIT_TEMPORALITY = Struct(">ii?")
_SUBSCRIPTION_TERMINATING_CODEC = Struct(">i?b")


def encode_sasl_handshake_response(value: SaslHandshakeResponse, version: int) -> bytes:
    """Write a SaslHandshake response body."""
    check_version(api_keys.SASL_HANDSHAKE, version, k17_sasl_handshake.SUPPORTED_VERSIONS)
    writer = Writer()
    writer.int16(value.error_code)
    writer.array_length(len(value.mechanisms))
    for mechanism in value.mechanisms:
        writer.string(mechanism)
    return writer.take()


def encode_sasl_authenticate_response(value: SaslAuthenticateResponse, version: int) -> bytes:
    """Write a SaslAuthenticate response body."""
    check_version(api_keys.SASL_AUTHENTICATE, version, k36_sasl_authenticate.SUPPORTED_VERSIONS)
    flexible = version >= _SASL_FIRST_FLEXIBLE
    writer = Writer()
    writer.int16(value.error_code)
    if flexible:
        writer.compact_nullable_string(value.error_message)
        _compact_bytes(writer, value.auth_bytes)
    else:
        writer.nullable_string(value.error_message)
        writer.int32(len(value.auth_bytes))
        _raw(writer, value.auth_bytes)
    if version >= _SASL_FIRST_WITH_LIFETIME:
        writer.fixed(_INT64, value.session_lifetime_ms)
    if flexible:
        writer.tagged_fields(value.tagged_fields)
    return writer.take()


def encode_subscriptions_request(value: GetTelemetrySubscriptionsRequest, version: int) -> bytes:
    """Write a GetTelemetrySubscriptions request body."""
    check_version(
        api_keys.GET_TELEMETRY_SUBSCRIPTIONS, version, k71_get_telemetry_subscriptions.SUPPORTED_VERSIONS
    )
    writer = Writer()
    if version == 0:
        writer.uuid(value.client_instance_id)
    writer.tagged_fields(value.tagged_fields)
    return writer.take()


def decode_subscriptions_response(reader: Reader, version: int) -> GetTelemetrySubscriptionsResponse:
    """Read a GetTelemetrySubscriptions response body."""
    check_version(
        api_keys.GET_TELEMETRY_SUBSCRIPTIONS, version, k71_get_telemetry_subscriptions.SUPPORTED_VERSIONS
    )
    throttle_time_ms, error_code = reader.fixed(_THROTTLE_AND_ERROR, "ThrottleTimeMs and ErrorCode")
    client_instance_id = reader.uuid("ClientInstanceId") if version == 0 else ZERO_UUID
    subscription_id = reader.int32("SubscriptionId")
    codecs = reader.compact_array_length("AcceptedCompressionTypes")
    accepted = tuple([reader.fixed(_INT8, "AcceptedCompressionTypes")[0] for _ in range(codecs)])
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


def encode_push_request(value: PushTelemetryRequest, version: int) -> bytes:
    """Write a PushTelemetry request body."""
    check_version(api_keys.PUSH_TELEMETRY, version, k72_push_telemetry.SUPPORTED_VERSIONS)
    writer = Writer()
    if version == 0:
        writer.uuid(value.client_instance_id)
    writer.fixed(
        _SUBSCRIPTION_TERMINATING_CODEC, value.subscription_id, value.terminating, value.compression_type
    )
    if value.metrics is None:
        writer.unsigned_varint(0)
    else:
        _compact_bytes(writer, value.metrics)
    writer.tagged_fields(value.tagged_fields)
    return writer.take()


def decode_push_response(reader: Reader, version: int) -> PushTelemetryResponse:
    """Read a PushTelemetry response body."""
    check_version(api_keys.PUSH_TELEMETRY, version, k72_push_telemetry.SUPPORTED_VERSIONS)
    throttle_time_ms, error_code = reader.fixed(_THROTTLE_AND_ERROR, "ThrottleTimeMs and ErrorCode")
    return PushTelemetryResponse(
        throttle_time_ms=throttle_time_ms,
        error_code=error_code,
        tagged_fields=reader.tagged_fields("PushTelemetryResponse's tagged fields"),
    )


def _compact_bytes(writer: Writer, value: Buffer) -> None:
    writer.unsigned_varint(len(value) + 1)
    _raw(writer, value)


def _raw(writer: Writer, value: Buffer) -> None:
    writer.fixed(Struct(f"{len(value)}s"), bytes(value))
