"""Connects to a listener's broker: name lookup, TCP, and TLS if it is configured.

Owns the error texts for a failed connection: what is wrong, and which setting to change.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Sequence
from typing import Final, TypeAlias

from receiver.gateway.handshake import HandshakeTurns, handshake
from receiver.gateway.tls import client_context
from receiver.gateway.tls_socket import wrap
from receiver.gateway.waiting import writable
from receiver.settings.hostport import HostPort
from receiver.settings.listeners import ListenerSettings
from receiver.tls import tls_problem

__all__ = ["WANTS_CERTIFICATE", "UpstreamAddress", "describe_error"]

#: Seconds for which a resolved host name is used again.
_LOOKUP_TTL_S: Final = 3.0

_IN_PROGRESS: Final = frozenset({errno.EINPROGRESS, errno.EALREADY})

_SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
_Address: TypeAlias = tuple[socket.AddressFamily, socket.SocketKind, int, str, _SocketAddress]

# X509_V_ERR_* codes, which openssl-verify(1) lists.
_UNTRUSTED: Final = frozenset({2, 18, 19, 20, 21})
_WRONG_NAME: Final = frozenset({62, 64})

#: Advice for a broker that ends a TLS connection without giving a reason.
WANTS_CERTIFICATE: Final = (
    "; the broker may require a client certificate: set listeners[].upstream_tls.certificate and key, "
    "signed by a CA in the broker's trust store"
)
_NO_TLS: Final = "; if the broker's listener does not speak TLS, remove listeners[].upstream_tls"


def describe_error(error: OSError) -> str:
    """Describe a failed connection in the system's words, without the address."""
    if isinstance(error, ssl.SSLError):
        return f"TLS: {tls_problem(error)}{_fix(error)}"
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _fix(error: ssl.SSLError) -> str:
    """Return advice on the setting that is probably wrong, or an empty text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _UNTRUSTED:
            return "; set listeners[].upstream_tls.ca to the CA of the broker's certificate"
        if error.verify_code in _WRONG_NAME:
            return "; set listeners[].upstream_tls.server_name to a name in the broker's certificate"
        return ""
    reason = error.reason or ""
    if "CERTIFICATE_REQUIRED" in reason or "BAD_CERTIFICATE" in reason or "HANDSHAKE_FAILURE" in reason:
        return WANTS_CERTIFICATE
    if reason == "WRONG_VERSION_NUMBER" or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return _NO_TLS
    return ""


class UpstreamAddress:
    """The broker behind a listener, and how to connect to it.

    Raises:
        TlsFilesError: A file of ``upstream_tls`` can't be used.

    Attributes:
        address: The broker's host and port.
        server_name: The name that the broker's certificate must have; None without TLS.
        tls: The TLS context for the broker; None without TLS.
    """

    def __init__(self, settings: ListenerSettings, turns: HandshakeTurns) -> None:
        tls = settings.upstream_tls
        self.address = settings.upstream
        self.server_name = None if tls is None else tls.server_name or settings.upstream.host
        self._turns = turns
        self._numeric = _resolve_numeric(settings.upstream)
        self._lookup: asyncio.Task[Sequence[_Address] | OSError] | None = None
        self._lookup_expires_at = 0.0
        self.tls = None if tls is None else client_context(settings.name, tls)

    async def connect(self, peer: str = "") -> socket.socket:
        """Connect to the broker, with TLS if it is configured.

        Args:
            peer: The client's site, for fair turns; empty for the receiver's own connections.

        Returns:
            The socket, non-blocking.

        Raises:
            OSError: The connection failed; :func:`describe_error` describes why.
        """
        plain = await self._connect()
        if self.tls is None:
            return plain
        broker = wrap(self.tls.current(), plain, server_side=False, server_name=self.server_name)
        try:
            await handshake(broker, self._turns, peer)
        except BaseException as error:
            broker.close()
            # A plaintext Kafka listener resets, because it reads the TLS record as an oversized
            # request.
            if isinstance(error, ConnectionResetError):
                raise ConnectionResetError(f"TLS: the connection was reset{_NO_TLS}") from None
            raise
        return broker

    def connect_at_once(self) -> socket.socket | None:
        """Connect without waiting if the broker is on this machine and speaks no TLS.

        Returns:
            The socket, non-blocking; None if :meth:`connect` is needed, or would fail.
        """
        if self.tls is not None or not self._numeric or not self.address.is_loopback:
            return None
        try:
            broker, error_number = _start_connect(self._numeric[0])
        except OSError:
            return None
        if error_number:
            broker.close()
            return None
        return broker

    async def _connect(self) -> socket.socket:
        error_number = 0
        for address in self._numeric or await self._resolve():
            broker, error_number = _start_connect(address)
            if error_number in _IN_PROGRESS:
                try:
                    await writable(broker)
                except BaseException:
                    broker.close()
                    raise
                error_number = broker.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if not error_number:
                return broker
            broker.close()
        raise OSError(error_number, os.strerror(error_number))

    async def _resolve(self) -> Sequence[_Address]:
        """Resolve the host name, in one thread for all concurrent callers."""
        now = asyncio.get_running_loop().time()
        if self._lookup is None or (self._lookup.done() and now >= self._lookup_expires_at):
            self._lookup_expires_at = now + _LOOKUP_TTL_S
            self._lookup = asyncio.create_task(self._look_up())
        result = await asyncio.shield(self._lookup)
        if isinstance(result, OSError):
            raise type(result)(*result.args)  # a copy for each caller, because a traceback is attached to it
        return result

    async def _look_up(self) -> Sequence[_Address] | OSError:
        try:
            return await asyncio.get_running_loop().getaddrinfo(
                self.address.host, self.address.port, type=socket.SOCK_STREAM
            )
        except OSError as error:
            return error


def _resolve_numeric(address: HostPort) -> Sequence[_Address]:
    """Return the socket addresses of a numeric host; nothing for a name."""
    try:
        return socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    except OSError:
        return []


def _start_connect(to: _Address) -> tuple[socket.socket, int]:
    """Start to connect; return the socket and an error number, 0 if connected."""
    family, kind, protocol, _, address = to
    broker = socket.socket(family, kind, protocol)
    broker.setblocking(False)  # noqa: FBT003 - the socket's own signature
    error_number = broker.connect_ex(address)
    if error_number == errno.EINPROGRESS:  # on loopback the connection is complete; ask for its result
        error_number = broker.connect_ex(address)
    return broker, error_number
