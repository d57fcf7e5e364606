"""Settings of every HTTP or gRPC destination: checks, TLS context, redaction."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from importlib.metadata import version
from typing import Protocol
from urllib.parse import urlsplit

from receiver.plugin.endpoint import check_host_port
from receiver.plugin.secret import Secret
from receiver.plugin.tls import TlsConfig
from spark_streaming.redaction import hide_secrets

#: The ``user-agent`` of every request.
USER_AGENT = f"kafka-client-telemetry/{version('kafka-client-telemetry')}"

#: Headers that HTTP or a plugin sets, so the operator must not.
PROTOCOL_HEADERS = frozenset(
    {"accept-encoding", "connection", "content-encoding", "content-length", "content-type"}
    | {"host", "te", "transfer-encoding", "user-agent"}
)

#: Lower case, because gRPC metadata must be. No ``:`` pseudo headers.
_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")


class Destination(Protocol):
    """The settings that every destination has, whichever protocol it speaks."""

    @property
    def headers(self) -> Mapping[str, Secret]:
        """The operator's headers."""

    @property
    def timeout_ms(self) -> int:
        """Timeout of one export, in milliseconds."""

    @property
    def tls(self) -> TlsConfig | None:
        """The operator's certificates."""


def check_headers(headers: Mapping[str, Secret], reserved: AbstractSet[str]) -> None:
    """Check an operator's headers. Errors name the header and never show its value."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no header name; use lower-case letters, digits and -")
        if name in reserved:
            raise ValueError(f"{name} is set by the protocol: leave it out")
        text = value.get_secret_value()
        if not (text.isascii() and text.isprintable() and text == text.strip()):
            raise ValueError(f"the value of {name} must be printable ASCII without blanks at its ends")


def check_endpoint(endpoint: str, *, grpc: bool) -> None:
    """Check the URL of a destination. With gRPC it needs a port and has no path."""
    if not endpoint.isascii():
        raise ValueError("must be plain ASCII; write a host's name in its xn-- form (IDNA)")
    if not endpoint.isprintable() or " " in endpoint:
        raise ValueError("must be plain ASCII without spaces")
    try:
        url = urlsplit(endpoint)
        port = url.port
    except ValueError:
        raise ValueError("is no URL; write for example http://127.0.0.1:4317") from None
    if not endpoint.startswith(("http://", "https://")):
        raise ValueError("must begin with http:// (plaintext) or https:// (TLS)")
    if "@" in url.netloc:
        raise ValueError("must not hold a user or password; put credentials into headers")
    if not url.hostname or port == 0:
        raise ValueError("must name a host and a port, for example http://127.0.0.1:4317")
    check_host_port(url.netloc, needs_port=False)
    if "?" in endpoint or "#" in endpoint:
        raise ValueError("must have no query and no fragment; put credentials into headers")
    if grpc:
        if port is None:
            raise ValueError("gRPC needs a port; 4317 is OTLP's")
        if url.path not in {"", "/"}:
            raise ValueError(f"gRPC has no path: leave out {url.path}, or set protocol: http")


def tls_context(config: Destination) -> ssl.SSLContext:
    """Build the TLS context of a destination.

    Raises:
        OSError: A file is missing or invalid. The message names the setting and the file.
    """
    tls = config.tls
    ca_file = tls.ca_file if tls else None
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        where = f"tls.ca_file {ca_file}" if ca_file else "the system's authorities"
        raise OSError(f"{where}: {error}") from None
    if tls and tls.cert_file and tls.key_file:
        try:
            # An encrypted key must fail. Without a password here, OpenSSL asks on the terminal.
            context.load_cert_chain(tls.cert_file, tls.key_file, password="")
        except OSError as error:
            raise OSError(f"tls.cert_file {tls.cert_file}, tls.key_file {tls.key_file}: {error}") from None
    return context


def redact(text: str, config: Destination) -> str:
    """Hide the values of the operator's headers in an answer, which may repeat them."""
    return hide_secrets(text, (value.get_secret_value() for value in config.headers.values()))
