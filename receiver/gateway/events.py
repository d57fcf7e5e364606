"""Turns session events into metrics, log lines and pushes for the plugins.

Owns the wording of the gateway's log; its only state is that of the log's rate limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from receiver.log import RateLimitedLog
from receiver.metrics import ReceiverMetrics
from receiver.plugin import Push
from receiver.session.login import LoginOutcome
from receiver.telemetry.connection import Connection
from receiver.telemetry.control.limits import Exceeded
from receiver.telemetry.telemetry import PushOutcome, SubscriptionsOutcome
from receiver.wire.api_keys import api_name
from receiver.wire.error_codes import error_name
from receiver.wire.headers import RequestHeader
from receiver.wire.uuid import uuid_to_text

__all__ = ["GatewayEvents", "connection_fields"]

_log = structlog.get_logger("receiver.request")


def connection_fields(connection: Connection) -> dict[str, Any]:
    """Return the log fields of a connection."""
    instance = connection.client_instance_id
    return {
        "connection": connection.id,
        "listener": connection.listener,
        "security_protocol": connection.security_protocol,
        "principal": connection.principal,
        "sasl_mechanism": connection.sasl_mechanism,
        "source": f"{connection.source_address}:{connection.source_port}",
        "client_id": connection.client_id,
        "client_software_name": connection.client_software_name,
        "client_software_version": connection.client_software_version,
        "client_instance_id": None if instance is None else uuid_to_text(instance),
    }


class GatewayEvents:
    """Reports session events to the metrics, the log and the plugins.

    Args:
        metrics: The receiver's own metrics.
        deliver: Offers an accepted push to the plugins; must neither block nor raise. Returns
            whether the response waits until the callback beside the push is called.
        log_requests: Whether to log each ApiVersions and telemetry request (KIP-511, "Request
            Log").
    """

    def __init__(
        self,
        *,
        metrics: ReceiverMetrics,
        deliver: Callable[[Push, Callable[[], None]], bool],
        log_requests: bool,
    ) -> None:
        self._metrics = metrics
        self._deliver = deliver
        self._warnings = RateLimitedLog("receiver.gateway")
        self.log_requests = log_requests

    def api_versions_answered(self, connection: Connection, header: RequestHeader, error_code: int) -> None:
        """Count and log a response to ApiVersions."""
        self._metrics.api_versions_answered(error_code)
        if self.log_requests:
            self._log_request(connection, header, error_code)

    def subscriptions_answered(
        self, connection: Connection, header: RequestHeader, outcome: SubscriptionsOutcome, seconds: float
    ) -> None:
        """Count and log a response to GetTelemetrySubscriptions."""
        self._metrics.subscriptions_answered(outcome, connection.client_software_name, seconds)
        if outcome.exceeded is not None:
            self.limit_exceeded(connection, outcome.exceeded)
        if self.log_requests:
            self._log_request(
                connection,
                header,
                outcome.response.error_code,
                subscription_id=outcome.response.subscription_id,
                core_us=round(seconds * 1e6),
            )

    def push_answered(
        self,
        connection: Connection,
        header: RequestHeader,
        outcome: PushOutcome,
        seconds: float,
        stored: Callable[[], None],
    ) -> bool:
        """Count and log a PushTelemetry response; offer an accepted push to plugins.

        Returns:
            Whether the response waits until ``stored`` is called.
        """
        self._metrics.push_answered(outcome, connection.client_software_name, seconds)
        if outcome.exceeded is not None:
            self.limit_exceeded(connection, outcome.exceeded)
        if self.log_requests:
            self._log_request(
                connection,
                header,
                outcome.response.error_code,
                bytes=outcome.wire_bytes,
                inflated_bytes=outcome.inflated_bytes,
                problem=outcome.problem,
                core_us=round(seconds * 1e6),
            )
        return outcome.push is not None and self._deliver(outcome.push, stored)

    def push_answered_before_stored(self, connection: Connection) -> None:
        """Count and log a push whose response did not wait any longer for the disk."""
        self._metrics.push_answered_before_stored()
        self._warnings.warning("push answered before it is on disk", **connection_fields(connection))

    def unauthenticated_telemetry(self, connection: Connection, header: RequestHeader) -> None:
        """Count and log a telemetry request before the end of authentication."""
        self._metrics.protocol_error(connection.listener, "unauthenticated_telemetry")
        self._warnings.warning(
            "telemetry before authentication", api=api_name(header.api_key), **connection_fields(connection)
        )

    def login_ended(self, connection: Connection, mechanism: str, outcome: LoginOutcome) -> None:
        """Count the end of a SASL login; log failures, and changes of the principal."""
        self._metrics.authentication(connection.listener, mechanism, outcome)
        if outcome is LoginOutcome.FAILED:
            self._warnings.warning("login failed", mechanism=mechanism[:64], **connection_fields(connection))
        elif outcome is LoginOutcome.CHANGED:
            self._warnings.warning(
                "re-authentication under another name; the principal is unknown from now on",
                **connection_fields(connection),
            )
        elif self.log_requests:
            _log.info("login " + outcome, **connection_fields(connection))

    def limit_exceeded(self, connection: Connection, exceeded: Exceeded) -> None:
        """Count and log that a peer exceeded a limit."""
        self._metrics.limit_exceeded(exceeded)
        self._warnings.warning(
            "limit exceeded",
            kind=f"{exceeded.scope} {exceeded.limit}",
            limit=exceeded.setting,
            peer=exceeded.peer,
            allowed=exceeded.allowed,
            **connection_fields(connection),
        )

    def client_instance_refused(self, connection: Connection, header: RequestHeader) -> None:
        """Count and log a request with a wrong client instance id (KIP-1313)."""
        self._metrics.protocol_error(connection.listener, "client_instance_id")
        self._warnings.warning(
            "client instance id differs from the connection's",
            api=api_name(header.api_key),
            **connection_fields(connection),
        )

    def _log_request(
        self, connection: Connection, header: RequestHeader, error_code: int, **facts: object
    ) -> None:
        _log.info(
            "request answered",
            api=api_name(header.api_key),
            api_version=header.api_version,
            correlation_id=header.correlation_id,
            error=error_name(error_code),
            **connection_fields(connection),
            **facts,
        )
