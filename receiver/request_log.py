"""The log of client requests, and the log fields of a connection (KIP-511, "Request Log")."""

from __future__ import annotations

from typing import Any

import structlog

from receiver.log import RateLimitedLog
from receiver.metrics import ReceiverMetrics
from receiver.telemetry.connection import Connection
from receiver.telemetry.control.limits import Exceeded
from receiver.wire.api_keys import api_name
from receiver.wire.error_codes import error_name
from receiver.wire.headers import RequestHeader
from receiver.wire.uuid import uuid_to_text

__all__ = ["RequestLog", "connection_fields"]

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


class RequestLog:
    """Logs requests if asked to, and warnings about clients at a limited rate.

    Args:
        metrics: The receiver's own metrics.

    Attributes:
        log_requests: Whether each ApiVersions and telemetry request is logged.
    """

    def __init__(self, metrics: ReceiverMetrics, *, log_requests: bool) -> None:
        self._metrics = metrics
        self._warnings = RateLimitedLog("receiver.gateway")
        self.log_requests = log_requests

    def answered(
        self, connection: Connection, header: RequestHeader, error_code: int, **facts: object
    ) -> None:
        """Log a request that was answered."""
        if self.log_requests:
            _log.info(
                "request answered",
                api=api_name(header.api_key),
                api_version=header.api_version,
                correlation_id=header.correlation_id,
                error=error_name(error_code),
                **connection_fields(connection),
                **facts,
            )

    def logged_in(self, connection: Connection, outcome: str) -> None:
        """Log the end of a login."""
        if self.log_requests:
            _log.info("login " + outcome, **connection_fields(connection))

    def warning(
        self, event: str, connection: Connection, *, kind: str | None = None, **facts: object
    ) -> None:
        """Log a warning about a client, at a limited rate for each event and kind."""
        self._warnings.warning(event, kind=kind, **facts, **connection_fields(connection))

    def limit_exceeded(self, connection: Connection, exceeded: Exceeded) -> None:
        """Count and log that a peer exceeded a limit."""
        self._metrics.limit_exceeded(exceeded)
        self.warning(
            "limit exceeded",
            connection,
            kind=f"{exceeded.scope} {exceeded.limit}",
            limit=exceeded.setting,
            peer=exceeded.peer,
            allowed=exceeded.allowed,
        )
