"""What the gateway does with what happens: metrics, the log, and the plugins' queues.

Owns the fan-out of a session's facts and the wording of the gateway's log; keeps no state of its own but
that of the log's rate limits.
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
    """Return what the log says of a connection: KIP-511's client information and where it came from."""
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
    """Tells the metrics, the request log and the plugins what the sessions did.

    Args:
        metrics: The receiver's own metrics.
        deliver: Takes an accepted push to the plugins; must neither block nor raise. Says whether the
            answer waits until what it is given beside the push is called.
        log_requests: Whether each ApiVersions and telemetry request is logged (KIP-511, "Request Log").
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
        """Count and log an answer to ApiVersions."""
        self._metrics.api_versions_answered(error_code)
        if self.log_requests:
            self._log_request(connection, header, error_code)

    def subscriptions_answered(
        self, connection: Connection, header: RequestHeader, outcome: SubscriptionsOutcome, seconds: float
    ) -> None:
        """Count and log an answer to GetTelemetrySubscriptions."""
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
        """Count and log an answer to PushTelemetry, and hand an accepted push to the plugins.

        Returns:
            Whether the answer waits until the plugins have ``stored`` called.
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
        """Count and log a push that was answered although no disk has it yet."""
        self._metrics.push_answered_before_stored()
        self._warnings.warning("push answered before it is on disk", **connection_fields(connection))

    def unauthenticated_telemetry(self, connection: Connection, header: RequestHeader) -> None:
        """Count and log a telemetry request that came before authentication was over."""
        self._metrics.protocol_error(connection.listener, "unauthenticated_telemetry")
        self._warnings.warning(
            "telemetry before authentication", api=api_name(header.api_key), **connection_fields(connection)
        )

    def login_ended(self, connection: Connection, mechanism: str, outcome: LoginOutcome) -> None:
        """Count the end of a SASL login, and log one that a peer has to be told of."""
        self._metrics.authentication(connection.listener, mechanism, outcome)
        if outcome is LoginOutcome.FAILED:
            self._warnings.warning("login failed", mechanism=mechanism[:64], **connection_fields(connection))
        elif outcome is LoginOutcome.CHANGED:
            self._warnings.warning(
                "login again under another name; the principal is unknown from here on",
                **connection_fields(connection),
            )
        elif self.log_requests:
            _log.info("login " + outcome, **connection_fields(connection))

    def limit_exceeded(self, connection: Connection, exceeded: Exceeded) -> None:
        """Count and log that a peer took more than it may."""
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
        """Count and log a request whose client instance id is not its connection's (KIP-1313)."""
        self._metrics.protocol_error(connection.listener, "client_instance_id")
        self._warnings.warning(
            "a client instance id that is not the connection's",
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
