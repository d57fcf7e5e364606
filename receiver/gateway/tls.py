"""TLS contexts of the gateway: those of :mod:`receiver.tls`, for connections that a relay reads from.

Owns what makes them so, and the keys of the settings that they are made of.
"""

from __future__ import annotations

import ssl

from receiver import tls
from receiver.settings.listeners import TlsSettings, UpstreamTlsSettings
from receiver.tls import TlsContext

__all__ = ["client_context", "server_context"]


def server_context(listener: str, settings: TlsSettings) -> TlsContext:
    """Return the context for what clients open.

    Raises:
        TlsFilesError: A file can't be used.
    """
    return tls.server_context(listener, settings, key="listeners[].tls", prepare=_prepare)


def client_context(listener: str, settings: UpstreamTlsSettings) -> TlsContext:
    """Return the context for what is opened to the broker.

    Raises:
        TlsFilesError: A file can't be used.
    """
    return tls.client_context(listener, settings, key="listeners[].upstream_tls", prepare=_prepare)


def _prepare(context: ssl.SSLContext) -> None:
    # So that an end without close_notify can be told from a reset; see receiver.gateway.tls_socket.
    context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF
