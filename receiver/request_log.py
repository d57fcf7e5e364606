"""The log of client requests, and a client's fields (KIP-511, "Request Log")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from receiver.log import RateLimitedLog
from receiver.telemetry.control.limits import Exceeded
from receiver.telemetry.identity import ClientIdentity
from receiver.wire.api_keys import api_name
from receiver.wire.error_codes import error_name
from receiver.wire.headers import RequestHeader

_log = structlog.get_logger("receiver.request")


def connection_fields(identity: ClientIdentity) -> dict[str, Any]:
    """Return the log fields of a client."""
    return {
        "connection": identity.id,
        "listener": identity.listener,
        "security_protocol": identity.security_protocol,
        "principal": identity.principal,
        "sasl_mechanism": identity.sasl_mechanism,
        "source": f"{identity.source_address}:{identity.source_port}",
        "client_id": identity.client_id,
        "client_software_name": identity.client_software_name,
        "client_software_version": identity.client_software_version,
        "client_instance_id": identity.instance_text,
    }


class RequestLog:
    """Logs requests if asked to, and warnings about clients at a limited rate.

    Args:
        count_exceeded: Counts a limit that a peer is over.

    Attributes:
        log_requests: Whether each ApiVersions and telemetry request is logged.
    """

    def __init__(self, count_exceeded: Callable[[Exceeded], None], *, log_requests: bool) -> None:
        self._count_exceeded = count_exceeded
        self._warnings = RateLimitedLog("receiver.gateway")
        self.log_requests = log_requests

    def answered(
        self, identity: ClientIdentity, header: RequestHeader, error_code: int, **facts: object
    ) -> None:
        """Log a request that was answered."""
        if self.log_requests:
            _log.info(
                "request answered",
                api=api_name(header.api_key),
                api_version=header.api_version,
                correlation_id=header.correlation_id,
                error=error_name(error_code),
                **connection_fields(identity),
                **facts,
            )

    def logged_in(self, identity: ClientIdentity, outcome: str) -> None:
        """Log the end of a login."""
        if self.log_requests:
            _log.info("login " + outcome, **connection_fields(identity))

    def warning(
        self, event: str, identity: ClientIdentity, *, kind: str | None = None, **facts: object
    ) -> None:
        """Log a warning about a client, at a limited rate for each event and kind."""
        self._warnings.warning(event, kind=kind, **facts, **connection_fields(identity))

    def limit_exceeded(self, identity: ClientIdentity, exceeded: Exceeded) -> None:
        """Count and log that a peer exceeded a limit."""
        self._count_exceeded(exceeded)
        self.warning(
            "limit exceeded",
            identity,
            kind=f"{exceeded.scope} {exceeded.limit}",
            limit=exceeded.setting,
            peer=exceeded.peer,
            allowed=exceeded.allowed,
        )
