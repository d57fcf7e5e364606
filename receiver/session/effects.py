"""Effects of a session: what the caller has to do besides moving bytes.

The session returns them as values, in order, and never waits for their execution.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from receiver.session.call import OpenCall
from receiver.telemetry.identity import ClientIdentity
from receiver.wire.headers import RequestHeader


class LoginOutcome(StrEnum):
    """Result of a SASL login; CHANGED is a re-authentication as another principal."""

    SUCCEEDED = "succeeded"
    RENEWED = "renewed"
    CHANGED = "changed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class IdentityChanged:
    """The client said more about itself; later effects are under this identity."""

    identity: ClientIdentity


@dataclass(slots=True, eq=False)
class ApiVersionsAsked:
    """An ApiVersions request has arrived.

    The session has no clock. The caller may write the time, and finds it again in the effect of the
    answer.
    """

    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ApiVersionsAnswered:
    """An ApiVersions request was answered, by the broker or by the session."""

    header: RequestHeader  # as the client sent it
    error_code: int
    asked: ApiVersionsAsked


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
class ConfigRequestAllowed:
    """The broker gave the right to a request about client metrics resources.

    A call follows.
    """

    header: RequestHeader


@dataclass(frozen=True, slots=True)
class ConfigRequestRefused:
    """The broker refused a request about client metrics resources.

    The client was told.
    """

    header: RequestHeader
    error_code: int


@dataclass(frozen=True, slots=True)
class ConfigRequestHidden:
    """The broker got a request about client metrics resources that nobody reads."""

    header: RequestHeader


@dataclass(frozen=True, slots=True)
class ClientInstanceRefused:
    """A request was refused because of its client instance id (KIP-1313)."""

    header: RequestHeader


@dataclass(frozen=True, slots=True)
class Flooded:
    """The client sent too many requests before their answers.

    Its stream is malformed from here.
    """


Effect: TypeAlias = (
    OpenCall
    | ConfigRequestAllowed
    | ConfigRequestRefused
    | ConfigRequestHidden
    | IdentityChanged
    | ApiVersionsAsked
    | ApiVersionsAnswered
    | LoginEnded
    | UnauthenticatedTelemetry
    | ClientInstanceRefused
    | Flooded
)
