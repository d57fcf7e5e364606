"""The REST API as types: where it listens, who may ask and who may change.

Owns the keys below ``rest``. It holds digests of tokens, never a token.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from receiver.settings.base import Settings
from receiver.settings.hostport import HostPort
from receiver.settings.listeners import ClientAuth, TlsVersion

__all__ = ["OpenPath", "RestClientSettings", "RestSettings", "RestTlsSettings", "Role", "TokenSettings"]

#: What somebody may do: a viewer asks, an editor also changes.
Role = Literal["viewer", "editor"]

#: What may be asked without a token.
OpenPath = Literal["livez", "readyz", "metrics"]

_NAME = r"^[A-Za-z0-9_.@-]{1,64}$"
_SHA256 = r"^[0-9a-f]{64}$"


class TokenSettings(Settings):
    """A bearer token, as its digest or as a file that holds it."""

    name: str = Field(pattern=_NAME, description="Who holds the token; the audit log's word for them.")
    role: Role = Field(description="A viewer asks, an editor also changes.")
    sha256: str | None = Field(
        default=None,
        pattern=_SHA256,
        description='SHA-256 of the token in hexadecimal: `printf %s "$TOKEN" | sha256sum`.',
    )
    file: Path | None = Field(
        default=None, description="File that holds the token itself; read again when it changes."
    )

    @model_validator(mode="before")
    @classmethod
    def _digest_alone(cls, entry: Any) -> Any:
        # Here, and not at the key, whose errors show the value: it may be the token itself.
        digest = entry.get("sha256") if isinstance(entry, dict) else None
        if digest is not None and not (isinstance(digest, str) and re.fullmatch(_SHA256, digest)):
            raise ValueError(
                "sha256: expected the token's digest, 64 digits 0-9 and a-f in quotes, as printed by "
                'printf %s "$TOKEN" | sha256sum'
            )
        return entry

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.sha256 is None and self.file is None:
            raise ValueError("no token: give its digest as sha256, or the file that holds it as file")
        if self.sha256 is not None and self.file is not None:
            raise ValueError("sha256 and file are both given: leave out the one that is not meant")
        return self


class RestTlsSettings(Settings):
    """TLS of the REST API; the files are read again when they change."""

    certificate: Path = Field(description="PEM file: the certificate and its chain.")
    key: Path = Field(description="PEM file: its private key, not encrypted.")
    client_ca: Path | None = Field(default=None, description="PEM file: who may sign client certificates.")
    client_auth: ClientAuth = Field(
        default="none", description="Whether clients show a certificate; `required` is mutual TLS."
    )
    min_version: TlsVersion = Field(default="1.2", description="Least TLS version.")

    @model_validator(mode="after")
    def _can_verify(self) -> Self:
        if self.client_auth != "none" and self.client_ca is None:
            raise ValueError(f"client_auth is {self.client_auth}, so client_ca has to name the CA's PEM file")
        if self.client_auth == "none" and self.client_ca is not None:
            raise ValueError(
                "client_ca is given, but client_auth is none, so nobody is asked for a certificate: "
                "make it requested or required, or leave client_ca out"
            )
        return self


class RestClientSettings(Settings):
    """Somebody who is known by a client certificate."""

    name: str = Field(pattern=_NAME, description="The audit log's word for them.")
    role: Role = Field(description="A viewer asks, an editor also changes.")
    subject: str = Field(
        min_length=1,
        description="The certificate's distinguished name as RFC 2253 writes it: `CN=ops,O=Example`.",
    )


class RestSettings(Settings):
    """The REST API."""

    bind: HostPort = Field(
        default=HostPort(host="127.0.0.1", port=8642),
        description="Where the REST API listens. Off loopback it needs `tokens` or `clients`.",
    )
    tokens: tuple[TokenSettings, ...] = Field(
        default=(), description="Who may ask with a bearer token; none and no `clients`: anybody on loopback."
    )
    tls: RestTlsSettings | None = None
    clients: tuple[RestClientSettings, ...] = Field(
        default=(), description="Who may ask with a client certificate (`tls.client_auth`)."
    )
    open: tuple[OpenPath, ...] = Field(
        default=("livez", "readyz"), description="What may be asked by anybody, for probes and scrapers."
    )

    @property
    def authenticates(self) -> bool:
        """Whether somebody has to say who they are."""
        return bool(self.tokens or self.clients)

    @model_validator(mode="after")
    def _safe(self) -> Self:
        if not self.bind.is_loopback and not self.authenticates:
            raise ValueError(
                f"bind: {self.bind} can be reached from elsewhere, so somebody has to authenticate: add "
                "tokens: [{name: ops, role: editor, sha256: ...}] (see kafka-telemetry token new), "
                "or stay on this machine with "
                f"127.0.0.1:{self.bind.port}, [::1]:{self.bind.port} or localhost:{self.bind.port}"
            )
        if self.clients and (self.tls is None or self.tls.client_auth == "none"):
            why = "tls is not given" if self.tls is None else "tls.client_auth is none"
            raise ValueError(
                f"clients: nobody is asked for a certificate, as {why}: write tls: "
                "{certificate: server.crt, key: server.key, client_ca: ca.pem, client_auth: required}"
            )
        names = [token.name for token in self.tokens] + [client.name for client in self.clients]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the name {name} is given twice; the audit log could not tell them apart")
        digests = [entry.sha256 for entry in self.tokens if entry.sha256 is not None]
        if len(set(digests)) < len(digests):
            raise ValueError("tokens: one sha256 is given twice; each needs a token of its own")
        subjects = [entry.subject for entry in self.clients]
        if len(set(subjects)) < len(subjects):
            raise ValueError("clients: one subject is given twice; each needs a certificate of its own")
        return self
