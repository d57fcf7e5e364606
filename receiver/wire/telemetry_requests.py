"""Reads the body of a telemetry request (KIP-714)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeAlias

from receiver.wire import api_keys, k71_get_telemetry_subscriptions, k72_push_telemetry
from receiver.wire.errors import WireError
from receiver.wire.headers import RequestHeader
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.primitives import Reader

#: The body of a telemetry request.
TelemetryRequest: TypeAlias = GetTelemetrySubscriptionsRequest | PushTelemetryRequest

#: By API key.
SUPPORTED_VERSIONS: Final = {
    api_keys.GET_TELEMETRY_SUBSCRIPTIONS: k71_get_telemetry_subscriptions.SUPPORTED_VERSIONS,
    api_keys.PUSH_TELEMETRY: k72_push_telemetry.SUPPORTED_VERSIONS,
}


def decode_telemetry_request(
    header: RequestHeader, body: bytes, *, cut_beyond: int | None = None
) -> TelemetryRequest:
    """Read the body of a telemetry request; the metrics of a push are a view of it.

    Args:
        cut_beyond: None for a whole request. For a push whose end was not kept: the number of bytes
            that the kept part of its metrics must exceed.

    Raises:
        WireError: The body is malformed. Offsets are those in the body.
    """
    reader = Reader(body)
    # In version 1 the header has the client instance id (KIP-1313).
    instance_id = header.client_instance_id
    request: TelemetryRequest
    if header.api_key == api_keys.PUSH_TELEMETRY:
        request = k72_push_telemetry.decode_request(reader, header.api_version, cut=cut_beyond is not None)
        kept = len(request.metrics or b"")
        if cut_beyond is not None and kept <= cut_beyond:
            # Other fields filled the buffer, so the kept metrics are incomplete and yet not too
            # large.
            raise WireError(
                expected=f"more than {cut_beyond} bytes of metrics in a push that is too long to be kept",
                offset=reader.offset,
                found=f"{kept} bytes before its end was cut",
            )
    else:
        request = k71_get_telemetry_subscriptions.decode_request(reader, header.api_version)
    return request if instance_id is None else replace(request, client_instance_id=instance_id)
