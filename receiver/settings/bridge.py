"""Settings of the listener for bridges, the plugins in brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from receiver.settings.base import KeyMistakeError, Settings
from receiver.settings.hostport import HostPort
from receiver.settings.listeners import ServerTlsSettings
from receiver.settings.socket_path import SocketPath, parse_bind


class BridgeTlsSettings(ServerTlsSettings):
    """TLS of bridges' connections."""


class BridgeTokenSettings(Settings):
    """The token that bridges and the receiver share."""

    file: Path
    """File with the token, of 16 characters or more; several, one a line, while it is changed. It
    is read again when it changes."""


class BridgeSettings(Settings):
    """Where plugins in brokers hand over the pushes that brokers accepted."""

    bind: HostPort | SocketPath
    """Address to listen on, for example `127.0.0.1:9714`; or `unix:/run/bridge.sock`, the file of a
    Unix socket, for brokers on this machine with Java 16 or newer. Who may write to its folder's
    files may connect, and needs the token too."""
    token: BridgeTokenSettings
    tls: BridgeTlsSettings | None = None
    """TLS; required where `bind` is neither loopback nor a Unix socket."""
    max_connections: int = Field(default=256, ge=1, le=10_000)
    """Most connections of bridges. A broker has one."""

    @field_validator("bind", mode="before")
    @classmethod
    def _one_of_two(cls, value: Any) -> Any:
        return parse_bind(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _not_in_clear(self) -> Self:
        if isinstance(self.bind, SocketPath):
            if self.tls is not None:
                raise KeyMistakeError(f"it has no effect on {self.bind}: leave it out", "tls")
        elif self.tls is None and not self.bind.is_loopback:
            raise KeyMistakeError(
                "other machines can reach it, so `bridge.tls` is required: a certificate and its key; or "
                "bind 127.0.0.1",
                "bind",
            )
        return self
