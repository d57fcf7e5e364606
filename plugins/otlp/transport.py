"""What transports share: their shape, the check of TLS files, and secrets kept out of text."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from importlib.metadata import version
from typing import Protocol

from receiver.plugin import ExportResult
from receiver.plugin.secret import Secret
from receiver.plugin.tls import TlsConfig

__all__ = ["USER_AGENT", "Destination", "Transport", "tls_context", "without_secrets"]

#: What destinations see us as.
USER_AGENT = f"kafka-client-telemetry/{version('kafka-client-telemetry')}"


class Transport(Protocol):
    """A way to a destination; used on one thread."""

    def open(self) -> None:
        """Make ready; connects only as far as the transport does by itself."""

    def export(self, body: bytes) -> ExportResult | None:
        """Send an ``ExportMetricsServiceRequest``.

        Raises:
            RetryableError: Try the same again later.
            BatchRefusedError: Never try the same again; a part of it may pass.
            PermanentError: Never try the same again.
        """

    def close(self) -> None:
        """Close what :meth:`open` opened."""


class Destination(Protocol):
    """What every destination's settings have, whichever protocol it speaks."""

    @property
    def headers(self) -> Mapping[str, Secret]:
        """The operator's headers."""

    @property
    def timeout_ms(self) -> int:
        """How long one export may take, in milliseconds."""

    @property
    def tls(self) -> TlsConfig | None:
        """The operator's certificates."""


def tls_context(config: Destination) -> ssl.SSLContext:
    """The TLS settings as Python's own.

    Raises:
        OSError: A file cannot be read or holds no such thing; names the setting and the file.
    """
    tls = config.tls
    ca_file = tls.ca_file if tls else None
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise OSError(f"tls.ca_file {ca_file}: {error}") from None
    if tls and tls.cert_file and tls.key_file:
        try:
            # An encrypted key must fail, not ask for its password on the terminal.
            context.load_cert_chain(tls.cert_file, tls.key_file, password="")
        except OSError as error:
            raise OSError(f"tls.cert_file {tls.cert_file}, tls.key_file {tls.key_file}: {error}") from None
    return context


def without_secrets(text: str, config: Destination) -> str:
    """A destination's words, which may repeat a header of ours, without the headers' values."""
    for value in config.headers.values():
        if secret := value.get_secret_value():
            text = text.replace(secret, "**********")
    return text
