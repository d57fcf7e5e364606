"""The results of a telemetry request: answer, push for plugins, and counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from receiver.plugin import Push
from receiver.telemetry.control.limits import Exceeded
from receiver.telemetry.errors import PushError
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.otlp import LabelledMetrics
from receiver.wire.error_codes import ErrorCode
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from receiver.wire.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from receiver.wire.uuid import Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionsOutcome:
    """The result of a GetTelemetrySubscriptions request."""

    response: GetTelemetrySubscriptionsResponse
    identity: ClientIdentity  # of the request; with the instance's id, if an instance is kept
    client_instance_id: Uuid  # a new id when the request has none
    created: bool  # whether this request created the instance
    exceeded: Exceeded | None = None  # the limit that the peer is over; then no instance is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOutcome:
    """What became of the metrics that a client pushed."""

    response: PushTelemetryResponse
    identity: ClientIdentity  # of the request; with the instance's id, if an instance is kept
    client_instance_id: Uuid
    push: Push | None = None  # for plugins; None when it was refused
    wire_bytes: int = 0  # size of the metrics in the request
    inflated_bytes: int = 0  # their inflated size; 0 when they were not inflated
    metrics: LabelledMetrics = field(default_factory=LabelledMetrics)
    problem: str | None = None  # why it was refused, for the operator
    refusal: PushError | Exceeded | None = None  # the same, if it is about the metrics or a limit
    exceeded: Exceeded | None = None  # the same, if it is a limit
    new_series_over: Exceeded | None = None  # the limit that new series of an accepted push are over


def not_now(
    identity: ClientIdentity, request: PushTelemetryRequest, error: ErrorCode, problem: str
) -> PushOutcome:
    """Return the outcome of a push that the client may not send now."""
    return PushOutcome(
        response=PushTelemetryResponse(error_code=error),
        identity=identity,
        client_instance_id=request.client_instance_id,
        wire_bytes=len(request.metrics or b""),
        problem=problem,
    )


def refused(
    identity: ClientIdentity,
    request: PushTelemetryRequest,
    refusal: PushError | Exceeded,
    inflated_bytes: int = 0,
) -> PushOutcome:
    """Return the outcome of refused metrics."""
    if isinstance(refusal, Exceeded):
        error, exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED, refusal
    else:
        error, exceeded = refusal.error_code, None
    return PushOutcome(
        response=PushTelemetryResponse(error_code=error),
        identity=identity,
        client_instance_id=request.client_instance_id,
        wire_bytes=len(request.metrics or b""),
        inflated_bytes=inflated_bytes,
        problem=str(refusal),
        refusal=refusal,
        exceeded=exceeded,
    )
