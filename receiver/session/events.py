"""Events that a session reports to the metrics, request log and plugins.

The gateway implements :class:`SessionEvents`. Each method is called once, when the answer goes out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from receiver.session.login import LoginOutcome
from receiver.telemetry.connection import Connection
from receiver.telemetry.control.limits import Exceeded
from receiver.telemetry.telemetry import PushOutcome, SubscriptionsOutcome
from receiver.wire.headers import RequestHeader

__all__ = ["SessionEvents"]


class SessionEvents(Protocol):
    """Receives an event for each answered request and each edited response."""

    def api_versions_answered(self, connection: Connection, header: RequestHeader, error_code: int) -> None:
        """An ApiVersions request was answered, by the broker or here."""

    def subscriptions_answered(
        self, connection: Connection, header: RequestHeader, outcome: SubscriptionsOutcome, seconds: float
    ) -> None:
        """A GetTelemetrySubscriptions request was answered; it took ``seconds`` of CPU."""

    def push_answered(
        self,
        connection: Connection,
        header: RequestHeader,
        outcome: PushOutcome,
        seconds: float,
        stored: Callable[[], None],
    ) -> bool:
        """A PushTelemetry request was decided; it took ``seconds`` of CPU.

        Returns:
            Whether the answer has to wait for a call of ``stored``. The call must come later, once,
            and on the session's thread.
        """

    def push_answered_before_stored(self, connection: Connection) -> None:
        """A push was answered although ``stored`` has not been called for it."""

    def unauthenticated_telemetry(self, connection: Connection, header: RequestHeader) -> None:
        """A telemetry request was refused because it came before authentication."""

    def login_ended(self, connection: Connection, mechanism: str, outcome: LoginOutcome) -> None:
        """A SASL login ended; the connection already has its new principal."""

    def limit_exceeded(self, connection: Connection, exceeded: Exceeded) -> None:
        """A peer exceeded a limit; it was throttled or its connection is closed."""

    def client_instance_refused(self, connection: Connection, header: RequestHeader) -> None:
        """A request was refused because of its client instance id (KIP-1313)."""
