"""The state of a client instance in one word, for lists and filters."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from receiver.telemetry.identity import Via
from receiver.telemetry.instance import ClientInstance
from receiver.wire.error_codes import ErrorCode

#: The longest pause between two requests of a client, in push intervals. The first push comes half
#: an interval to one and a half after the get (KIP-714, "Client behavior").
SPREAD: Final = 1.5


class ClientState(StrEnum):
    """What a client instance does. The first state that applies counts.

    A client that comes by a bridge is never failing, unsubscribed or waiting, because the bridge
    sees nothing of it then.
    """

    TERMINATED = "terminated"
    """Its last accepted push was its last."""
    SILENT = "silent"
    """It has sent no request for more than one and a half push intervals."""
    FAILING = "failing"
    """The last answer was an error."""
    UNSUBSCRIBED = "unsubscribed"
    """It is asked for no metrics."""
    WAITING = "waiting"
    """It is asked for metrics and has not pushed yet."""
    PUSHING = "pushing"
    """It pushes."""


def state_of(instance: ClientInstance, now: float) -> ClientState:
    """Return the state of a client instance; ``now`` is monotonic seconds."""
    if instance.terminating:
        return ClientState.TERMINATED
    request = instance.request
    if now - instance.last_request_at > SPREAD * instance.push_interval_ms / 1000:
        return ClientState.SILENT
    if instance.identity.via is Via.BRIDGE:
        # A bridge sees no other requests, and none that the broker refused.
        return ClientState.PUSHING
    if instance.last_error is not ErrorCode.NONE:
        return ClientState.FAILING
    if not request.metrics:
        return ClientState.UNSUBSCRIBED
    return ClientState.WAITING if instance.last_push_at is None else ClientState.PUSHING
