"""Settings of the listeners: addresses, TLS, SASL and the broker's listener."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from receiver.numbers import whole_number
from receiver.principal.mapping_rules import MappingRules, MappingRulesError
from receiver.settings.base import KeyMistakeError, Settings
from receiver.settings.broker import BrokerSettings
from receiver.settings.hostport import HostPort, HostPorts

#: Kafka's security protocols.
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]

#: Kafka's ``ssl.client.auth``.
ClientAuth = Literal["none", "requested", "required"]


def _as_text(version: Any) -> Any:
    # An unquoted 1.3 is a number in YAML.
    return str(version) if isinstance(version, float) else version


#: A TLS version.
TlsVersion = Annotated[Literal["1.2", "1.3"], BeforeValidator(_as_text)]


def _have_ports(addresses: HostPorts) -> HostPorts:
    if any(address.port == 0 for address in addresses):
        raise ValueError("the port of the broker's listener cannot be 0")
    return addresses


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


_Upstream = Annotated[HostPorts, AfterValidator(_have_ports)]
_Network = Annotated[str, AfterValidator(_network)]
_MappingRules = Annotated[str, AfterValidator(_mapping_rules)]


class ServerNameSettings(Settings):
    """A certificate for clients that ask for one host name (SNI)."""

    name: str = Field(pattern=r"^(\*\.)?[A-Za-z0-9.-]{1,253}$")
    """Host name that the client asks for. `*.example.com` matches one label in place of `*`."""
    cert_file: Path
    """PEM file with the certificate and its chain."""
    key_file: Path
    """PEM file with the certificate's private key, not encrypted."""


class ServerTlsSettings(Settings):
    """TLS of connections to the sidecar. The files are read again when they change."""

    cert_file: Path
    """PEM file with the sidecar's certificate and its chain."""
    key_file: Path
    """PEM file with the certificate's private key, not encrypted."""
    client_ca_file: Path | None = None
    """PEM file with the CA certificates that may sign client certificates; required with
    `client_auth`."""
    client_auth: ClientAuth = "none"
    """Whether clients must show a certificate, as Kafka's `ssl.client.auth`: `none`, `requested`
    (optional) or `required`."""
    min_version: TlsVersion = "1.2"
    """Lowest TLS version. The default is the lowest that Kafka enables."""

    @model_validator(mode="after")
    def _can_verify(self) -> Self:
        if self.client_auth != "none" and self.client_ca_file is None:
            raise KeyMistakeError(
                "client_ca_file is required: the CA's PEM file that verifies client certificates",
                "client_auth",
            )
        if self.client_auth == "none" and self.client_ca_file is not None:
            raise KeyMistakeError(
                "client_auth is none, so no client is asked for a certificate: set client_auth to requested "
                "or required, or omit client_ca_file",
                "client_ca_file",
            )
        return self


class TlsSettings(ServerTlsSettings):
    """TLS of a listener."""

    server_names: tuple[ServerNameSettings, ...] = ()
    """Certificates for other host names that clients ask for (SNI)."""


class UpstreamTlsSettings(Settings):
    """TLS of connections to the broker. The files are read again when they change."""

    ca_file: Path | None = None
    """PEM file with the CA certificates that may sign the broker's certificate; null: the system's
    CAs."""
    cert_file: Path | None = None
    """PEM file with the certificate to show to the broker; null: none."""
    key_file: Path | None = None
    """PEM file with the certificate's private key, not encrypted."""
    server_name: str | None = Field(default=None, min_length=1)
    """Host name that the broker's certificate must have; null: the host of `upstream`."""
    verify_hostname: bool = True
    """Check that the broker's certificate has that host name."""
    min_version: TlsVersion = "1.2"
    """Lowest TLS version."""

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together: set both or neither")
        return self


class ProxyProtocolSettings(Settings):
    """The PROXY protocol (v1, v2), by which a load balancer tells client addresses."""

    # `from` is a keyword of Python.
    from_: tuple[_Network, ...] = Field(alias="from", min_length=1)
    """Networks of the load balancers. A connection from them must begin with a PROXY header; a
    connection from elsewhere must not."""


#: Stands for the node id in a host name.
_NODE_ID: Final = "{node_id}"

#: Digits of the greatest node id.
_MAX_NODE_ID: Final = 2**31 - 1


class RewriteSettings(Settings):
    """The addresses that clients get in place of brokers' (``addresses: rewrite``)."""

    host: str = Field(pattern=r"^[A-Za-z0-9.:_{}-]{1,253}$")
    """Host at which clients reach the sidecar, without a port; or, with TLS, a name for each node,
    such as `b{node_id}.gateway.example`. Then the name for which a client asks (SNI) chooses the
    node, and all share the port of `bind`."""
    port: int | None = Field(default=None, ge=1, le=65_535)
    """Port at which clients reach this listener; null: the port of `bind`."""
    first_port: int | None = Field(default=None, ge=1, le=65_535)
    """Port of node 0, at `host` and on the host of `bind`. Node 2 has this port plus 2. Required,
    unless `host` has `{node_id}`."""
    nodes: int = Field(default=32, ge=1, le=128)
    """Number of node ports or names. It must exceed the greatest node id. Clients do not reach a
    broker with a greater id."""

    @property
    def names_nodes(self) -> bool:
        """Whether each node has a name, and not a port."""
        return _NODE_ID in self.host

    def node_of(self, name: str) -> int | None:
        """Return the node id in a name for which a client asks.

        None: it is no node's name.
        """
        before, _, after = self.host.lower().partition(_NODE_ID)
        number = name.removeprefix(before).removesuffix(after)
        return whole_number(number, _MAX_NODE_ID) if name == f"{before}{number}{after}" else None

    @model_validator(mode="after")
    def _nodes_can_be_told_apart(self) -> Self:
        if self.host.count(_NODE_ID) > 1 or set("{}") & set(self.host.replace(_NODE_ID, "")):
            raise KeyMistakeError(
                "the only field is {node_id}, once, as in b{node_id}.gateway.example", "host"
            )
        if self.names_nodes and self.first_port is not None:
            raise KeyMistakeError(
                "host has {node_id}, so nodes have names: leave out first_port", "first_port"
            )
        if not self.names_nodes and self.first_port is None:
            raise KeyMistakeError(
                "required: the port of node 0; or give each node a name, as in "
                "host: b{node_id}.gateway.example",
                "first_port",
            )
        return self

    @model_validator(mode="after")
    def _ports_exist(self) -> Self:
        if self.first_port is not None and self.first_port + self.nodes > 65_536:
            raise KeyMistakeError(
                f"with {self.nodes} nodes it needs ports up to {self.first_port + self.nodes - 1}: lower "
                "first_port or nodes, so that it is 65535 or less",
                "first_port",
            )
        return self


class ListenerSettings(Settings):
    """A listener for clients and the broker's listener that it forwards to."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,249}$")
    """Name of the broker's advertised listener, and the value of the `listener` label."""
    bind: HostPort
    """Address to bind for clients, IPv6 in brackets: `[::1]:19092`. With port 0 the system chooses
    the port."""
    upstream: _Upstream
    """Address of the broker's own listener. With `addresses: rewrite` it may be several, separated
    by commas, for clients that bootstrap: the sidecar goes on to the next when one can't be
    reached."""
    advertised: HostPort | None = None
    """Address at which clients reach this listener, as the broker advertises it. The sidecar warns
    if the broker advertises another one. Null: it warns only if the broker advertises its own
    port."""
    broker: BrokerSettings | None = None
    """The broker behind this listener; null: as the section `broker` says."""
    addresses: Literal["keep", "rewrite"] = "keep"
    """Whether clients get the addresses that the brokers advertise, or those of `rewrite`.
    Rewriting is for brokers whose advertised addresses you can't change."""
    rewrite: RewriteSettings | None = None
    security_protocol: SecurityProtocol = "PLAINTEXT"
    """Security protocol of the clients, and the value of the `security_protocol` label. The sidecar
    ends TLS. SASL is forwarded, so the broker's listener must require it too."""
    tls: TlsSettings | None = None
    upstream_tls: UpstreamTlsSettings | None = None
    principal_mapping_rules: _MappingRules = "DEFAULT"
    """Rules that map a client certificate's distinguished name to a principal, as Kafka's
    `ssl.principal.mapping.rules`. Give the broker's rules, so that both see the same principal."""
    oauthbearer_principal_claim: str = Field(default="sub", min_length=1)
    """Claim of an OAUTHBEARER token that names the principal, as Kafka's
    `sasl.oauthbearer.sub.claim.name`."""
    proxy_protocol: ProxyProtocolSettings | None = None
    handshake_timeout_ms: int = Field(default=10_000, ge=1, le=600_000)
    """Milliseconds in which a client must complete its PROXY header and TLS handshake. Raise it for
    slow networks."""
    connect_timeout_ms: int = Field(default=3000, ge=1, le=60_000)
    """Milliseconds in which a connection to the broker must open."""
    max_connections: int = Field(default=10_000, ge=1)
    """Open client connections. One more is closed at once. Each connection uses two of the
    process's open files."""
    socket_buffer_bytes: int | None = Field(default=None, ge=4_096, le=67_108_864)
    """Bytes that the system may buffer in each direction of both sockets of a connection, as
    Kafka's `socket.send.buffer.bytes` and `socket.receive.buffer.bytes`. Linux takes up to twice
    as much. Null: 384 KiB for what clients send; Linux tunes the other buffers, of which at most
    384 KiB wait unsent. A fixed size of 384 KiB costs up to twice the CPU for responses of a
    megabyte. With 1 MiB, requests of a megabyte cost a third less than with null."""
    max_frame_bytes: int = Field(default=104_857_600, ge=1024, le=2_147_483_647)
    """Largest request in bytes. Set it to the broker's `socket.request.max.bytes`, which has the
    same default."""

    @property
    def node_ids(self) -> range:
        """The ids that nodes may have; empty if addresses are kept."""
        return range(0 if self.rewrite is None else self.rewrite.nodes)

    @property
    def node_binds(self) -> dict[int, HostPort]:
        """The addresses to bind for nodes, by node id; empty if addresses are kept."""
        if self.rewrite is None or self.rewrite.first_port is None:
            return {}
        first_port = self.rewrite.first_port
        return {
            node_id: HostPort(host=self.bind.host, port=first_port + node_id) for node_id in self.node_ids
        }

    @property
    def binds(self) -> tuple[HostPort, ...]:
        """All addresses to bind: the listener's own and those for nodes."""
        return (self.bind, *self.node_binds.values())

    @property
    def public_bootstrap(self) -> HostPort:
        """The address that clients get for a node that they can't reach."""
        assert self.rewrite is not None  # noqa: S101 - for callers that know it
        host = self.rewrite.host.replace(_NODE_ID, "")
        return HostPort(host=host, port=self.rewrite.port or self.bind.port)

    def public_address(self, node_id: int) -> HostPort | None:
        """Return the address that clients get for a node; None if there is none for it."""
        if self.rewrite is None or node_id not in self.node_ids:
            return None
        if self.rewrite.first_port is None:
            host = self.rewrite.host.replace(_NODE_ID, str(node_id))
            return HostPort(host=host, port=self.rewrite.port or self.bind.port)
        return HostPort(host=self.rewrite.host, port=self.rewrite.first_port + node_id)

    @property
    def speaks_tls(self) -> bool:
        """Whether clients use TLS."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def speaks_sasl(self) -> bool:
        """Whether clients authenticate with SASL."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @model_validator(mode="after")
    def _addresses_to_write(self) -> Self:
        if (self.addresses == "rewrite") != (self.rewrite is not None):
            raise KeyMistakeError(
                "`addresses: rewrite` and `rewrite` belong together, for example "
                "rewrite: {host: gateway.example, first_port: 29100}",
                "addresses",
            )
        if self.addresses == "rewrite" and self.advertised is not None:
            raise KeyMistakeError("with `addresses: rewrite` clients get rewrite.host: omit it", "advertised")
        if self.addresses == "keep" and len(self.upstream) > 1:
            raise KeyMistakeError(
                "clients of a listener reach one broker: give each broker a listener, or set "
                "`addresses: rewrite`",
                "upstream",
            )
        rewrite = self.rewrite
        if rewrite and rewrite.names_nodes and not self.speaks_tls:
            raise KeyMistakeError(
                "only with TLS clients say which name they want: set security_protocol to SSL or SASL_SSL, "
                "or give first_port",
                *("rewrite", "host"),
            )
        if rewrite and rewrite.first_port and 0 <= self.bind.port - rewrite.first_port < rewrite.nodes:
            raise KeyMistakeError(
                f"the port of node {self.bind.port - rewrite.first_port}: change bind, or rewrite.first_port",
                "bind",
            )
        return self

    @model_validator(mode="after")
    def _tls_where_spoken(self) -> Self:
        if self.speaks_tls and self.tls is None:
            raise KeyMistakeError(
                "`tls` is required: tls: {cert_file: server.crt, key_file: server.key}", "security_protocol"
            )
        if not self.speaks_tls and self.tls is not None:
            raise KeyMistakeError(
                f"security_protocol is {self.security_protocol}: set it to "
                f"{'SASL_SSL' if self.speaks_sasl else 'SSL'}, or omit `tls`",
                "tls",
            )
        if self.security_protocol != "SSL" and self.principal_mapping_rules != "DEFAULT":
            raise KeyMistakeError(
                f"security_protocol is {self.security_protocol}, and only with SSL a certificate names the "
                "principal: omit it",
                "principal_mapping_rules",
            )
        return self
