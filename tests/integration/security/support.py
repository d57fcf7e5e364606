"""Listeners and clients of the security tests, and raw SASL logins."""

from __future__ import annotations

import ssl
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.integration.gateway.support import Raw, get_subscriptions, read_get
from tests.testbed.broker import SASL_USERS, Listener
from tests.testbed.certificates import CertificateFiles
from tests.testbed.collector import ExportedMetric
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.scripted_broker import request_frame
from tests.testbed.security import Login, Mechanism, SecurityProtocol

TIMEOUT_S = 300.0
INTERVAL_MS = 500
TOPIC = "secured"

#: The only subscription: a metric of few bytes that every client has.
KNOWN = "org.apache.kafka.producer.connection.creation.total"

#: Maps a certificate to its common name.
MAPPING_RULES = "RULE:^CN=([^,]+).*$/$1/,DEFAULT"

#: The broker demands re-authentication on REAUTH after this time (KIP-368); it refuses it within
#: the first second.
REAUTH_MS = 2000

#: The claim that names the principal on listener CLAIM, in place of Kafka's default.
CLAIM = "azp"

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
SASL_AUTHENTICATION_FAILED, ILLEGAL_SASL_STATE = 58, 34


def listener(name: str, security_protocol: SecurityProtocol = "PLAINTEXT", **more: Any) -> Listener:
    """A broker's listener behind the sidecar."""
    return Listener(name=name, security_protocol=security_protocol, advertised_port=free_port(), **more)


#: The broker's listeners besides CLIENT; the sidecar's listeners have the same names.
BROKER_LISTENERS = (
    listener("SSL"),
    listener("MUTUAL", "SSL", client_auth="required"),
    listener("ROTATING", "SSL", client_auth="required"),
    listener("SASL", "SASL_PLAINTEXT"),
    listener("SASL_SSL", "SASL_PLAINTEXT"),
    listener("SASL_TLS", "SASL_SSL"),
    listener("CLAIM", "SASL_PLAINTEXT", principal_claim=CLAIM),
    listener("REAUTH", "SASL_PLAINTEXT", max_reauth_ms=REAUTH_MS),
    listener("OPEN_BEFORE_SASL", "SASL_PLAINTEXT"),
    listener("SASL_BEFORE_OPEN"),
)

#: The sidecar's settings of these contradict the broker's, so they never get ready.
MISCONFIGURED = {
    "OPEN_BEFORE_SASL": {"security_protocol": "PLAINTEXT"},
    "SASL_BEFORE_OPEN": {"security_protocol": "SASL_PLAINTEXT"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarFiles:
    """The certificate files of a listener with TLS on both sides.

    Attributes:
        server: Its certificate for clients, whose certificates have the same CA.
        upstream: Its certificate for the broker, whose certificate has the same CA.
    """

    server: CertificateFiles
    upstream: CertificateFiles

    @property
    def identity(self) -> dict[str, str]:
        """Its ``tls`` section without client certificates."""
        return {"cert_file": str(self.server.chain), "key_file": str(self.server.key)}

    @property
    def tls(self) -> dict[str, str]:
        """Its ``tls`` section with them."""
        return {**self.identity, "client_ca_file": str(self.server.ca)}

    @property
    def upstream_tls(self) -> dict[str, str]:
        """Its ``upstream_tls`` section."""
        return {
            "ca_file": str(self.upstream.ca),
            "cert_file": str(self.upstream.chain),
            "key_file": str(self.upstream.key),
        }


def sidecar_listeners(files: SidecarFiles, rotating: SidecarFiles) -> Mapping[str, Mapping[str, Any]]:
    """Return the settings of the sidecar's listeners; ROTATING has its own files."""
    tls = files.tls
    return MappingProxyType(
        {
            "SSL": {
                "security_protocol": "SSL",
                "tls": {**tls, "client_auth": "requested"},
                "principal_mapping_rules": MAPPING_RULES,
            },
            "MUTUAL": {"tls": {**tls, "client_auth": "required"}, "upstream_tls": files.upstream_tls},
            "ROTATING": {
                "tls": {**rotating.tls, "client_auth": "required"},
                "upstream_tls": rotating.upstream_tls,
            },
            "SASL_SSL": {"security_protocol": "SASL_SSL", "tls": files.identity},
            "SASL_TLS": {"tls": files.identity, "upstream_tls": {"ca_file": files.upstream_tls["ca_file"]}},
            "CLAIM": {"oauthbearer_principal_claim": CLAIM},
        }
    )


def login(mechanism: Mechanism, user: str = "alice") -> Login:
    """A login that the broker accepts."""
    password = "" if mechanism == "OAUTHBEARER" else SASL_USERS[user]
    return Login(mechanism=mechanism, user=user, password=password)


def exports_of(exports: Sequence[ExportedMetric], client_id: str) -> list[ExportedMetric]:
    """Return the pushes of one client."""
    return [export for export in exports if export.resource.get("client_id") == client_id]


def shows(port: int, ca: Path, certificate: CertificateFiles | None = None) -> Raw:
    """A TLS client that trusts one authority and shows a certificate or none.

    Raises:
        OSError: The handshake failed, or the connection.
    """
    context = ssl.create_default_context(cafile=str(ca))
    if certificate is not None:
        context.load_cert_chain(certificate.chain, certificate.key)
    raw = Raw(port)
    try:
        raw.socket = context.wrap_socket(raw.socket, server_hostname=LOOPBACK)
    except OSError:
        raw.socket.close()
        raise
    return raw


def is_served(port: int, ca: Path, certificate: CertificateFiles | None = None) -> bool:
    """Whether such a client gets an answer to a telemetry request."""
    try:
        with shows(port, ca, certificate) as raw:  # with TLS 1.3 a server refuses after the handshake
            return read_get(raw.exchange(get_subscriptions()))[0] == 0
    except (EOFError, OSError):
        return False


def sasl_handshake(mechanism: str) -> bytes:
    """A SaslHandshake v1 request."""
    return request_frame(SASL_HANDSHAKE, 1, 1, struct.pack(">h", len(mechanism)) + mechanism.encode())


def sasl_authenticate(token: bytes) -> bytes:
    """A SaslAuthenticate v0 request."""
    return request_frame(SASL_AUTHENTICATE, 0, 2, struct.pack(">i", len(token)) + token)


def plain_token(user: str, password: str) -> bytes:
    """A token of PLAIN (RFC 4616)."""
    return f"\0{user}\0{password}".encode()


def error_of(answer: bytes) -> int:
    """Return the error code of an answer to either request."""
    return int(struct.unpack_from(">h", answer, 4)[0])


class RawLogin(Raw):
    """A client that sends SASL messages in any order."""

    def handshake(self, mechanism: str) -> int:
        """Choose a mechanism; return the error code."""
        return error_of(self.exchange(sasl_handshake(mechanism)))

    def authenticate(self, token: bytes) -> int:
        """Send a token; return the error code."""
        return error_of(self.exchange(sasl_authenticate(token)))

    def plain(self, user: str, password: str) -> int:
        """Log in with PLAIN; return the error code."""
        return self.handshake("PLAIN") or self.authenticate(plain_token(user, password))
