"""Settings of the roll-up, whose findings the receiver shows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from receiver.settings.base import Settings
from receiver.settings.listeners import UpstreamTlsSettings
from receiver.settings.rest_url import REST_URL_SCHEMA, checked_rest_url

_EXPECTED: Final = (
    "expected the URL of the roll-up's `metrics.bind`, for example http://127.0.0.1:8643, without a path"
)


def _checked(text: Any) -> str:
    return checked_rest_url(text, _EXPECTED, "rollup.token")


class RollupTokenSettings(Settings):
    """The token that this receiver shows to the roll-up."""

    file: Path
    """File with one token, which is in a file of the roll-up's `metrics.token_files`. It is read
    again when it changes."""


class RollupTlsSettings(UpstreamTlsSettings):
    """TLS of connections to the roll-up. The files are read again when they change."""

    ca_file: Path | None = None
    """PEM file with the CA certificates that may sign the roll-up's certificate; null: the system's
    CAs."""
    cert_file: Path | None = None
    """PEM file with the certificate to show to the roll-up; null: none."""
    server_name: str | None = Field(default=None, min_length=1)
    """Host name that the roll-up's certificate must have; null: the host of the URL."""


class RollupSettings(Settings):
    """The roll-up of this cluster, so that the console shows its findings."""

    url: Annotated[str, BeforeValidator(_checked), WithJsonSchema(REST_URL_SCHEMA)]
    """URL of the roll-up's `metrics.bind`. A host name must be in its `metrics.allowed_hosts`."""
    token: RollupTokenSettings | None = None
    """The token that this receiver shows to the roll-up; null: none."""
    tls: RollupTlsSettings | None = None
    """TLS towards a URL with `https`; null: the system's CAs, no certificate."""
    connect_timeout_ms: int = Field(default=500, ge=10, le=10_000)
    """Milliseconds to connect to the roll-up, and for its TLS."""
    timeout_ms: int = Field(default=3000, ge=10, le=20_000)
    """Milliseconds for its whole answer."""
