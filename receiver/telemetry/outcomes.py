"""What became of a telemetry request, as values: the answer, what to hand on, and what to count.

Owns the shapes only.
"""

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
    """What became of a GetTelemetrySubscriptions request.

    Attributes:
        response: The answer.
        client_instance_id: The instance that asked; a new one where the request named none.
        created: Whether the instance was not known before, and is now.
        exceeded: The limit that the client is over; then nothing is remembered of its request.
    """

    response: GetTelemetrySubscriptionsResponse
    client_instance_id: Uuid
    created: bool
    exceeded: Exceeded | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOutcome:
    """What became of a PushTelemetry request.

    Attributes:
        response: The answer.
        client_instance_id: The instance that pushed, as the request named it.
        push: What to hand to plugins; None when refused, or when there is nothing in it.
        wire_bytes: Size of the metrics as pushed.
        inflated_bytes: Their size once inflated, 0 where it did not come to that.
        dropped_points: Data points dropped for a value that is NaN or infinite.
        removed_labels: Attributes removed because the receiver owns their keys.
        overflowed_points: Data points over a budget of series, for which one overflow series stands.
        steps: What normalisation and privacy did to the others.
        problem: Why it was refused, for the operator; None where it was not.
        exceeded: The limit that the client is over, where that is why.
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
