"""Settings of the REST API: address, TLS, tokens and client certificates."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from receiver.settings.base import KeyMistakeError, Settings
from receiver.settings.hostport import HostPort
from receiver.settings.links import LinkSettings
from receiver.settings.listeners import ServerTlsSettings
from spark_streaming.plain_yaml import Loc, key_text

#: A viewer may read. An editor may also change.
Role = Literal["viewer", "editor"]

#: Paths that may be open to everybody.
OpenPath = Literal["livez", "readyz", "metrics"]

_NAME = r"^[A-Za-z0-9_.@-]{1,64}$"
_SHA256 = r"^[0-9a-f]{64}$"


class TokenSettings(Settings):
    """A bearer token, given by its digest or by the file that holds it."""

    name: str = Field(pattern=_NAME)
    """Name of the token's holder in the audit log."""
    role: Role
    """`viewer` may read, `editor` may also change."""
    sha256: str | None = Field(default=None, pattern=_SHA256)
    """SHA-256 digest of the token in hexadecimal: `printf %s "$TOKEN" | sha256sum`."""
    file: Path | None = None
    """File that holds the token itself. It is read again when it changes."""

    @model_validator(mode="before")
    @classmethod
    def _digest_alone(cls, entry: Any) -> Any:
        # Not a validator of the field, because its errors show the value, which may be the token
        # itself.
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
            raise ValueError("no token: set sha256 to its digest, or file to the file that holds it")
        if self.sha256 is not None and self.file is not None:
            raise ValueError("sha256 and file are both given: omit one of them")
        return self


class RestTlsSettings(ServerTlsSettings):
    """TLS of the REST API."""


class RestClientSettings(Settings):
    """A caller that authenticates with a client certificate."""

    name: str = Field(pattern=_NAME)
    """Name of the caller in the audit log."""
    role: Role
    """`viewer` may read, `editor` may also change."""
    subject: str = Field(min_length=1)
    """Distinguished name of the certificate in the form of RFC 2253: `CN=ops,O=Example`."""


class RestSettings(Settings):
    """The REST API."""

    bind: HostPort = HostPort(host="127.0.0.1", port=8642)
    """Address to bind. An address that other machines can reach requires `tokens` or `clients`."""
    tokens: tuple[TokenSettings, ...] = ()
    """Callers that authenticate with a bearer token. Without `tokens` and `clients` everybody on
    this machine has access."""
    tls: RestTlsSettings | None = None
    clients: tuple[RestClientSettings, ...] = ()
    """Callers that authenticate with a client certificate; requires `tls.client_auth`."""
    open: tuple[OpenPath, ...] = ("livez", "readyz")
    """Paths that need no authentication, for probes and scrapers."""
    console: bool = True
    """Whether `/` serves the console, a page for operators. Its files need no authentication; what
    it shows does."""
    links: tuple[LinkSettings, ...] = Field(default=(), max_length=10)
    """Links on a client's page of the console, for example to Grafana, its logs and its traces."""

    @property
    def authenticates(self) -> bool:
        """Whether requests need authentication."""
        return bool(self.tokens or self.clients)

    @model_validator(mode="after")
    def _safe(self) -> Self:
        if not self.bind.is_loopback and not self.authenticates:
            raise KeyMistakeError(
                "it can be reached from other machines and requires authentication: add "
                "tokens: [{name: ops, role: editor, sha256: ...}] (see `kafka-telemetry token new`), "
                "or bind to this machine only with "
                f"127.0.0.1:{self.bind.port}, [::1]:{self.bind.port} or localhost:{self.bind.port}",
                "bind",
            )
        if self.clients and (self.tls is None or self.tls.client_auth == "none"):
            why = "tls is not given" if self.tls is None else "tls.client_auth is none"
            raise KeyMistakeError(
                f"no caller is asked for a certificate, because {why}: set tls: "
                "{cert_file: server.crt, key_file: server.key, client_ca_file: ca.pem, "
                "client_auth: required}",
                "clients",
            )
        links = _Distinct()
        for index, link in enumerate(self.links):
            links.add(link.name, "one of them would hide the other", "links", index, "name")
        names, digests, subjects = _Distinct(), _Distinct(), _Distinct()
        for index, token in enumerate(self.tokens):
            names.add(token.name, "the audit log needs distinct names", "tokens", index, "name")
            if token.sha256 is not None:
                digests.add(token.sha256, "each entry needs its own token", "tokens", index)
        for index, client in enumerate(self.clients):
            names.add(client.name, "the audit log needs distinct names", "clients", index, "name")
            subjects.add(client.subject, "each entry needs its own certificate", "clients", index, "subject")
        return self


class _Distinct:
    """Values that must differ, with the key of each."""

    def __init__(self) -> None:
        self._keys: dict[str, Loc] = {}

    def add(self, value: str, why: str, *loc: str | int) -> None:
        if (earlier := self._keys.setdefault(value, loc)) != loc:
            raise KeyMistakeError(f"the same as {key_text(earlier)}; {why}", *loc)
