"""The client instances as the REST edge shows them, read from the telemetry core.

Owns the translation; changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from receiver.api.dependencies import ClientState
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire.error_codes import error_name
from receiver.wire.uuid import Uuid

__all__ = ["TelemetryClientStates"]


class TelemetryClientStates:
    """The telemetry core's client instances.

    Args:
        telemetry: The core.
        now: The monotonic clock that the core's times are of, in seconds.
    """

    def __init__(self, telemetry: ClientTelemetry, now: Callable[[], float]) -> None:
        self._telemetry = telemetry
        self._instances = telemetry.instances
        self._now = now

    def ids(self) -> Collection[Uuid]:
        """The ids of all of them, least recently used first."""
        return [instance.id for instance in self._instances]

    def get(self, client_instance_id: Uuid) -> ClientState | None:
        """One of them; None where the id is not known (any more)."""
        instance = self._instances.find(client_instance_id)
        now = self._now()
        if instance is None or instance.is_expired(now):
            return None
        connection = instance.connection
        return ClientState(
            client_instance_id=instance.id,
            connection=connection,
            client_id=connection.client_id,
            client_software_name=connection.client_software_name,
            client_software_version=connection.client_software_version,
            subscription_id=instance.subscription_id,
            push_interval_ms=instance.push_interval_ms,
            requested_metrics=instance.requested_metrics,
            subscriptions=instance.assignment.matched,
            quirks=instance.treatment.reasons,
            interval_factor=instance.interval_factor,
            plugin_behind=self._telemetry.backpressure.plugin if instance.interval_factor > 1 else None,
            narrowed=self._telemetry.offenders.explain(client_instance_id, now),
            pushes=instance.pushes_accepted,
            last_request_age_s=now - instance.last_request_at,
            last_push_age_s=None if instance.last_push_at is None else now - instance.last_push_at,
            last_error=error_name(instance.last_error),
            terminating=instance.terminating,
        )
