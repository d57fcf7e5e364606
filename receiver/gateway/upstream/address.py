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

from receiver.gateway.connection.tls_socket import wrap
from receiver.gateway.handshake import HandshakeTurns, handshake
from receiver.gateway.tls import client_context
from receiver.gateway.waiting import writable
from receiver.settings.hostport import HostPort
from receiver.settings.listeners import ListenerSettings
from receiver.tls import TlsContext, tls_problem
from receiver.workers import start_task

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
    "; the broker may require a client certificate: set listeners[].upstream_tls.cert_file and key_file, "
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
            return "; set listeners[].upstream_tls.ca_file to the CA of the broker's certificate"
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

    Of several addresses it uses the one that was reached last, and goes on to the next when that
    fails.

    Args:
        tls: The TLS context of a listener with the same ``upstream_tls``, to share it.

    Raises:
        TlsFilesError: A file of ``upstream_tls`` can't be used.

    Attributes:
        tls: The TLS context for the broker; None without TLS.
    """

    def __init__(
        self, settings: ListenerSettings, turns: HandshakeTurns, *, tls: TlsContext | None = None
    ) -> None:
        self._turns = turns
        self._timeout_s = settings.connect_timeout_ms / 1000
        self._server_name = None if settings.upstream_tls is None else settings.upstream_tls.server_name
        self._endpoints = [Endpoint(address) for address in settings.upstream]
        self._at = 0
        self.tls = tls
        if tls is None and settings.upstream_tls is not None:
            self.tls = client_context(settings.name, settings.upstream_tls)

    @property
    def endpoint(self) -> HostPort:
        """The address that the next connection tries first."""
        return self._endpoints[self._at].address

    async def connect(self, peer: str = "") -> socket.socket:
        """Connect a non-blocking socket to the broker, with TLS if it is configured.

        Args:
            peer: The client's block, for fair turns; empty for the receiver's own connections.

        Raises:
            OSError: The connection failed; :func:`describe_error` describes why.
        """
        attempts = len(self._endpoints)
        if attempts == 1:
            return await self._connect_to(self._endpoints[0], peer)
        for left in range(attempts - 1, -1, -1):
            endpoint = self._endpoints[self._at]
            try:
                # Each address gets its share of the time, so that one that never answers does not
                # hide the others. The caller bounds the whole.
                async with asyncio.timeout(self._timeout_s / attempts if left else None):
                    return await self._connect_to(endpoint, peer)
            except OSError:  # TimeoutError is one
                self._at = (self._at + 1) % attempts
                if not left:
                    raise
        raise AssertionError("there is at least one address")

    async def _connect_to(self, endpoint: Endpoint, peer: str) -> socket.socket:
        plain = await self._open(endpoint)
        if self.tls is None:
            return plain
        server_name = self._server_name or endpoint.address.host
        broker = wrap(self.tls.current(), plain, server_side=False, server_name=server_name)
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

    async def _open(self, endpoint: Endpoint) -> socket.socket:
        """Connect to an address, without TLS."""
        return await endpoint.connect()

    def connect_at_once(self) -> socket.socket | None:
        """Connect without waiting if the broker is on this machine and speaks no TLS.

        Returns:
            The socket, non-blocking; None if :meth:`connect` is needed, or would fail.
        """
        return None if self.tls is not None else self._endpoints[self._at].connect_at_once()


class Endpoint:
    """One address of a broker, with its resolved host."""

    def __init__(self, address: HostPort) -> None:
        self.address = address
        self._numeric = _resolve_numeric(address)
        self._is_local = bool(self._numeric) and address.is_loopback
        self._lookup: asyncio.Task[Sequence[_Address] | OSError] | None = None
        self._lookup_expires_at = 0.0

    def connect_at_once(self) -> socket.socket | None:
        """Connect if the address is this machine's.

        None if :meth:`connect` is needed, or fails.
        """
        if not self._is_local:
            return None
        try:
            broker, error_number = _start_connect(self._numeric[0])
        except OSError:
            return None
        if error_number:
            broker.close()
            return None
        return broker

    async def connect(self) -> socket.socket:
        """Connect to it; a name is resolved first.

        Raises:
            OSError: The name is not known, or no address of it accepts.
        """
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
            self._lookup = start_task("look-up", self._look_up())
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
