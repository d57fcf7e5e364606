"""The results of a telemetry request: the answer, the push for plugins, and counts for metrics."""

from __future__ import annotations

from dataclasses import dataclass

from receiver.plugin import Push
from receiver.telemetry.control.limits import Exceeded
from receiver.telemetry.steps import NOTHING_DONE, StepCounts
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from receiver.wire.k72_push_telemetry import PushTelemetryResponse
from receiver.wire.uuid import Uuid

__all__ = ["PushOutcome", "SubscriptionsOutcome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionsOutcome:
    """The result of a GetTelemetrySubscriptions request.

    Attributes:
        response: The answer.
        client_instance_id: The instance that asked; a new id when the request has none.
        created: Whether this request created the instance.
        exceeded: The limit that the peer is over; then no instance is kept.
    """

    response: GetTelemetrySubscriptionsResponse
    client_instance_id: Uuid
    created: bool
    exceeded: Exceeded | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOutcome:
    """The result of a PushTelemetry request.

    Attributes:
        response: The answer.
        client_instance_id: The instance that pushed, as in the request.
        push: The push for plugins; None when it was refused or has no metrics.
        wire_bytes: Size of the metrics in the request.
        inflated_bytes: Their inflated size; 0 when they were not inflated.
        dropped_points: Data points dropped because their value is NaN or infinite.
        removed_labels: Attributes removed because the receiver owns their keys.
        overflowed_points: Data points over a series budget, replaced by one overflow series.
        steps: What normalisation and privacy changed.
        problem: Why it was refused, for the operator; None when it was accepted.
        exceeded: The limit that was the reason.
    """

    response: PushTelemetryResponse
    client_instance_id: Uuid
    push: Push | None = None
    wire_bytes: int = 0
    inflated_bytes: int = 0
    dropped_points: int = 0
    removed_labels: int = 0
    overflowed_points: int = 0
    steps: StepCounts = NOTHING_DONE
    problem: str | None = None
    exceeded: Exceeded | None = None
