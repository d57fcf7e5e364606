"""Counts and logs the effects of sessions that end in the gateway."""

from __future__ import annotations

from receiver.clock import Clock
from receiver.metrics import RelayMetrics
from receiver.request_log import RequestLog
from receiver.session.call import OpenCall
from receiver.session.effects import (
    ApiVersionsAnswered,
    ApiVersionsAsked,
    ClientInstanceRefused,
    ConfigRequestAllowed,
    ConfigRequestHidden,
    ConfigRequestRefused,
    Effect,
    Flooded,
    IdentityChanged,
    LoginEnded,
    LoginOutcome,
    UnauthenticatedTelemetry,
)
from receiver.telemetry.identity import ClientIdentity
from receiver.wire.api_keys import api_name
from receiver.wire.error_codes import error_name


class GatewayEvents:
    """Reports what happened on a connection to the metrics and the log."""

    def __init__(self, metrics: RelayMetrics, log: RequestLog, clock: Clock) -> None:
        self._metrics = metrics
        self._log = log
        self._clock = clock

    def report(self, identity: ClientIdentity, effect: Effect) -> None:
        """Count and log an effect; others are reported elsewhere."""
        match effect:
            case ApiVersionsAsked():
                effect.at = self._clock.monotonic()
            case ApiVersionsAnswered(header, error_code, asked):
                self._metrics.api_versions_answered(error_code)
                total_us = round((self._clock.monotonic() - asked.at) * 1e6)
                self._log.answered(identity, header, error_code, total_us=total_us)
            case LoginEnded(mechanism, outcome):
                self._metrics.authentication(identity.listener, mechanism, outcome)
                self._log_login(identity, mechanism, outcome)
            case UnauthenticatedTelemetry(header):
                self._metrics.protocol_error(identity.listener, "unauthenticated_telemetry")
                self._log.warning("telemetry before authentication", identity, api=api_name(header.api_key))
            case ClientInstanceRefused(header):
                self._metrics.protocol_error(identity.listener, "client_instance_id")
                self._log.warning(
                    "client instance id differs from the connection's",
                    identity,
                    api=api_name(header.api_key),
                )
            case ConfigRequestAllowed(header):
                self._metrics.config_request(identity.listener, header.api_key, "answered")
            case ConfigRequestRefused(header, error_code):
                self._metrics.config_request(identity.listener, header.api_key, "refused")
                self._log.answered(identity, header, error_code)
                self._log.warning(
                    "request about client metrics refused by the broker",
                    identity,
                    api=api_name(header.api_key),
                    error=error_name(error_code),
                )
            case ConfigRequestHidden(header):
                self._metrics.config_request(identity.listener, header.api_key, "hidden")
                self._log.warning(
                    "client metrics resources of the broker have no effect",
                    identity,
                    api=api_name(header.api_key),
                    problem="the broker keeps these resources, and the sidecar reads subscriptions "
                    "elsewhere: set subscriptions.store to kafka, or use the REST API",
                )
            case OpenCall() | IdentityChanged() | Flooded():
                return

    def _log_login(self, identity: ClientIdentity, mechanism: str, outcome: LoginOutcome) -> None:
        if outcome is LoginOutcome.FAILED:
            self._log.warning("login failed", identity, mechanism=mechanism[:64])
        elif outcome is LoginOutcome.CHANGED:
            self._log.warning(
                "re-authentication under another name; the principal is unknown from now on", identity
            )
        else:
            self._log.logged_in(identity, outcome)
