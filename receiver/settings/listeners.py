"""Listeners as types: where clients connect, how they prove who they are, and the broker's listener behind.

Owns the keys below ``listeners`` and what must hold between them.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from receiver.principal.mapping_rules import MappingRules, MappingRulesError
from receiver.settings.base import Settings
from receiver.settings.hostport import HostPort

__all__ = [
    "ClientAuth",
    "ListenerSettings",
    "ProxyProtocolSettings",
    "SecurityProtocol",
    "ServerNameSettings",
    "TlsSettings",
    "TlsVersion",
    "UpstreamTlsSettings",
]

#: Kafka's security protocols.
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]

#: Kafka's ``ssl.client.auth``.
ClientAuth = Literal["none", "requested", "required"]


def _as_text(version: Any) -> Any:
    # YAML takes an unquoted 1.3 for a number.
    return str(version) if isinstance(version, float) else version


#: The least TLS version that is spoken.
TlsVersion = Annotated[Literal["1.2", "1.3"], BeforeValidator(_as_text)]


def _has_port(address: HostPort) -> HostPort:
    if address.port == 0:
        raise ValueError("the port of the broker's listener cannot be 0")
    return address


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"not a network such as 10.0.0.0/8 or fd00::/8: {error}") from None
    return text


def _mapping_rules(text: str) -> str:
    try:
        MappingRules.parse(text)
    except MappingRulesError as error:
        raise ValueError(str(error)) from None
    return text


_Upstream = Annotated[HostPort, AfterValidator(_has_port)]
_Network = Annotated[str, AfterValidator(_network)]
_MappingRules = Annotated[str, AfterValidator(_mapping_rules)]


class ServerNameSettings(Settings):
    """Another certificate for clients that ask for a certain host (SNI)."""

    name: str = Field(
        pattern=r"^(\*\.)?[A-Za-z0-9.-]{1,253}$",
        description="Host name that the client asks for; `*.example.com` stands for one label.",
    )
    certificate: Path = Field(description="PEM file: the certificate and its chain.")
    key: Path = Field(description="PEM file: its private key, not encrypted.")


class TlsSettings(Settings):
    """TLS towards clients; the files are read again when they change."""

    certificate: Path = Field(description="PEM file: the sidecar's certificate and its chain.")
    key: Path = Field(description="PEM file: its private key, not encrypted.")
    client_ca: Path | None = Field(
        default=None, description="PEM file: who may sign client certificates; needed to ask for them."
    )
    client_auth: ClientAuth = Field(
        default="none", description="Whether clients show a certificate (Kafka's `ssl.client.auth`)."
    )
    min_version: TlsVersion = Field(default="1.2", description="Least TLS version.")
    server_names: tuple[ServerNameSettings, ...] = Field(
        default=(), description="Other certificates by the name that the client asks for (SNI)."
    )

    @model_validator(mode="after")
    def _can_verify(self) -> Self:
        if self.client_auth != "none" and self.client_ca is None:
            raise ValueError(
                f"client_auth is {self.client_auth}, so client_ca has to name the CA's PEM file; "
                "without it no client certificate can be verified"
            )
        if self.client_auth == "none" and self.client_ca is not None:
            raise ValueError(
                "client_ca is given, but client_auth is none, so nobody is asked for a certificate: "
                "make it requested or required, or leave client_ca out"
            )
        return self


class UpstreamTlsSettings(Settings):
    """TLS towards the broker; the files are read again when they change."""

    ca: Path | None = Field(
        default=None, description="PEM file: who may sign the broker's certificate; null: the system's."
    )
    certificate: Path | None = Field(
        default=None, description="PEM file: the certificate shown to the broker; null: none."
    )
    key: Path | None = Field(default=None, description="PEM file: its private key, not encrypted.")
    server_name: str | None = Field(
        default=None,
        min_length=1,
        description="Name that the broker's certificate must have; null: the upstream's host.",
    )
    verify_hostname: bool = Field(
        default=True, description="Whether the broker's certificate must have that name."
    )
    min_version: TlsVersion = Field(default="1.2", description="Least TLS version.")

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together: give both or neither")
        return self


class ProxyProtocolSettings(Settings):
    """The PROXY protocol, v1 and v2: a load balancer in front says who the client is."""

    # `from` is a word of Python's.
    from_: tuple[_Network, ...] = Field(
        alias="from",
        min_length=1,
        description="Networks of the load balancers: each connection from there must begin with a PROXY "
        "header, any other must not.",
    )


class ListenerSettings(Settings):
    """One listener: where clients connect, and the broker's listener behind it."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9_.-]{1,249}$",
        description="Name of the broker's advertised listener; the `listener` label.",
    )
    bind: HostPort = Field(
        description="Where clients connect; port 0 lets the system choose. IPv6 in brackets: `[::1]:19092`."
    )
    upstream: _Upstream = Field(description="The broker's own listener.")
    security_protocol: SecurityProtocol = Field(
        default="PLAINTEXT",
        description="What clients speak; the `security_protocol` label. With SASL the broker's listener "
        "must ask for SASL too; TLS ends here.",
    )
    tls: TlsSettings | None = None
    upstream_tls: UpstreamTlsSettings | None = None
    principal_mapping_rules: _MappingRules = Field(
        default="DEFAULT",
        description="From a client certificate's distinguished name to its principal "
        "(Kafka's `ssl.principal.mapping.rules`).",
    )
    oauthbearer_principal_claim: str = Field(
        default="sub",
        min_length=1,
        description="Claim of an OAUTHBEARER token that names the principal "
        "(Kafka's `sasl.oauthbearer.sub.claim.name`).",
    )
    proxy_protocol: ProxyProtocolSettings | None = None
    handshake_timeout_ms: int = Field(
        default=10_000,
        ge=1,
        le=600_000,
        description="How long a client may take for its PROXY header and TLS handshake.",
    )
    connect_timeout_ms: int = Field(
        default=3000, ge=1, le=60_000, description="How long connecting to the broker may take."
    )
    max_connections: int = Field(
        default=10_000, ge=1, description="Open client connections; one more is closed at once and counted."
    )
    socket_buffer_bytes: int | None = Field(
        default=131_072,
        ge=4_096,
        le=67_108_864,
        description="What the system may buffer in each direction of each of a connection's two sockets "
        "(Kafka's `socket.send.buffer.bytes` and `socket.receive.buffer.bytes`, 100 KiB there). Raise it "
        "with the broker's where clients are far away. Null: the system decides, which can be megabytes for "
        "each slow reader.",
    )
    max_frame_bytes: int = Field(
        default=104_857_600,
        ge=1024,
        le=2_147_483_647,
        description="Largest request a client may announce (the broker's socket.request.max.bytes).",
    )

    @property
    def speaks_tls(self) -> bool:
        """Whether clients speak TLS."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def speaks_sasl(self) -> bool:
        """Whether clients log in with SASL."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @model_validator(mode="after")
    def _tls_where_spoken(self) -> Self:
        if self.speaks_tls and self.tls is None:
            raise ValueError(
                f"security_protocol is {self.security_protocol}, so `tls` is needed: "
                "tls: {certificate: server.crt, key: server.key}"
            )
        if not self.speaks_tls and self.tls is not None:
            raise ValueError(
                f"`tls` is given, but security_protocol is {self.security_protocol}: "
                f"make it {'SASL_SSL' if self.speaks_sasl else 'SSL'}, or leave `tls` out"
            )
        if self.security_protocol != "SSL" and self.principal_mapping_rules != "DEFAULT":
            raise ValueError(
                f"principal_mapping_rules are given, but security_protocol is {self.security_protocol}: "
                "only on an SSL listener a certificate names the principal; leave them out"
            )
        return self
