"""Effects of a session: what the caller has to do, count or log besides moving bytes.

The session returns them as values, in order, and never waits for their execution.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from receiver.telemetry.identity import ClientIdentity
from receiver.wire.headers import RequestHeader
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest

__all__ = [
    "ApiVersionsAnswered",
    "ClientInstanceRefused",
    "ConfigCall",
    "ConfigRequestHidden",
    "ConfigRequestRefused",
    "Effect",
    "Flooded",
    "IdentityChanged",
    "LoginEnded",
    "LoginOutcome",
    "TelemetryCall",
    "TelemetryRequest",
    "UnauthenticatedTelemetry",
]

#: The decoded body of a telemetry request (KIP-714).
TelemetryRequest: TypeAlias = GetTelemetrySubscriptionsRequest | PushTelemetryRequest


class LoginOutcome(StrEnum):
    """Result of a SASL login; CHANGED is a re-authentication as another principal."""

    SUCCEEDED = "succeeded"
    RENEWED = "renewed"
    CHANGED = "changed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TelemetryCall:
    """The telemetry core has to answer a request of an authenticated client.

    Attributes:
        token: Identifies the call among those of the connection.
        header: The request's header, without tagged fields.
        request: The request's body.
    """

    token: int
    header: RequestHeader
    request: TelemetryRequest


@dataclass(frozen=True, slots=True)
class ConfigCall:
    """The receiver has to answer a request about client metrics resources.

    The broker has said that the caller has the right.

    Attributes:
        token: Identifies the call among those of the connection.
        header: The request's header, without tagged fields.
        body: The body of a request for client metrics resources alone.
    """

    token: int
    header: RequestHeader
    body: bytes


@dataclass(frozen=True, slots=True)
class IdentityChanged:
    """The client said more about itself; later effects are under this identity."""

    identity: ClientIdentity


@dataclass(frozen=True, slots=True)
class ApiVersionsAnswered:
    """An ApiVersions request was answered, by the broker or by the session."""

    header: RequestHeader
    error_code: int


@dataclass(frozen=True, slots=True)
class LoginEnded:
    """A SASL login ended; an :class:`IdentityChanged` with its principal came before."""

    mechanism: str
    outcome: LoginOutcome


@dataclass(frozen=True, slots=True)
class UnauthenticatedTelemetry:
    """A telemetry request was refused because it came before authentication."""

    header: RequestHeader


@dataclass(frozen=True, slots=True)
class ConfigRequestRefused:
    """The broker refused a request about client metrics resources, and the client was told."""

    header: RequestHeader
    error_code: int


@dataclass(frozen=True, slots=True)
class ConfigRequestHidden:
    """The broker got a request about client metrics resources that the receiver does not read."""

    header: RequestHeader


@dataclass(frozen=True, slots=True)
class ClientInstanceRefused:
    """A request was refused because of its client instance id (KIP-1313)."""

    header: RequestHeader


@dataclass(frozen=True, slots=True)
class Flooded:
    """The client sent too many requests before their answers; its stream is malformed from here."""


Effect: TypeAlias = (
    TelemetryCall
    | ConfigCall
    | ConfigRequestRefused
    | ConfigRequestHidden
    | IdentityChanged
    | ApiVersionsAnswered
    | LoginEnded
    | UnauthenticatedTelemetry
    | ClientInstanceRefused
    | Flooded
)
