"""The results of a telemetry request: answer, push for plugins, and counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from receiver.plugin import Push
from receiver.telemetry.control.limits import Exceeded
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.otlp import LabelledMetrics
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from receiver.wire.k72_push_telemetry import PushTelemetryResponse
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
    """The result of a PushTelemetry request."""

    response: PushTelemetryResponse
    identity: ClientIdentity  # of the request; with the instance's id, if an instance is kept
    client_instance_id: Uuid
    push: Push | None = None  # for plugins; None when it was refused
    wire_bytes: int = 0  # size of the metrics in the request
    inflated_bytes: int = 0  # their inflated size; 0 when they were not inflated
    metrics: LabelledMetrics = field(default_factory=LabelledMetrics)
    problem: str | None = None  # why it was refused, for the operator
    exceeded: Exceeded | None = None  # the limit that was the reason
    new_series_over: Exceeded | None = None  # the limit that new series of an accepted push are over
