"""What a session tells the edge: facts for the metrics, the request log and the plugins.

Owns the protocol that the edge implements. Each call is made once, when its answer goes out.
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
    """Told of every request that the receiver answered or edited the answer of."""

    def api_versions_answered(self, connection: Connection, header: RequestHeader, error_code: int) -> None:
        """An ApiVersions request was answered, by the broker or here."""

    def subscriptions_answered(
        self, connection: Connection, header: RequestHeader, outcome: SubscriptionsOutcome, seconds: float
    ) -> None:
        """A GetTelemetrySubscriptions request was answered; the core took ``seconds`` for it."""

    def push_answered(
        self,
        connection: Connection,
        header: RequestHeader,
        outcome: PushOutcome,
        seconds: float,
        stored: Callable[[], None],
    ) -> bool:
        """A PushTelemetry request was decided; the core took ``seconds`` for it.

        Returns:
            Whether the answer has to wait until ``stored`` is called: later, once, on the session's thread.
        """

    def push_answered_before_stored(self, connection: Connection) -> None:
        """The answer to a push went out although nobody has said that the push is stored."""

    def unauthenticated_telemetry(self, connection: Connection, header: RequestHeader) -> None:
        """A telemetry request came before authentication was over; nothing was decided about it."""

    def login_ended(self, connection: Connection, mechanism: str, outcome: LoginOutcome) -> None:
        """A SASL login ended; the connection's principal is what it is from now on."""

    def limit_exceeded(self, connection: Connection, exceeded: Exceeded) -> None:
        """A peer took more than it may, and was told to wait or is cut off."""

    def client_instance_refused(self, connection: Connection, header: RequestHeader) -> None:
        """A request was refused because its client instance id is not its connection's (KIP-1313)."""
