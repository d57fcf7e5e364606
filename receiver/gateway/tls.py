"""Makes the gateway's TLS contexts, for clients and for the broker."""

from __future__ import annotations

import ssl

from receiver import tls
from receiver.settings.listeners import TlsSettings, UpstreamTlsSettings
from receiver.tls import TlsContext


def server_context(listener: str, settings: TlsSettings) -> TlsContext:
    """Return the context for connections from clients.

    Raises:
        TlsFilesError: A file can't be used.
    """
    return tls.server_context(listener, settings, key="listeners[].tls", prepare=_prepare)


def client_context(listener: str, settings: UpstreamTlsSettings) -> TlsContext:
    """Return the context for connections to the broker.

    Raises:
        TlsFilesError: A file can't be used.
    """
    return tls.client_context(listener, settings, key="listeners[].upstream_tls", prepare=_prepare)


def _prepare(context: ssl.SSLContext) -> None:
    # Distinguishes an end of stream without close_notify from a reset; see
    # receiver.gateway.connection.tls_socket.
    context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF
