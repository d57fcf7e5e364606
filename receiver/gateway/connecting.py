"""The way to the broker: a socket, and TLS over it where the broker's listener speaks that.

Owns how a connection to the upstream is made and, where it can't be, the words for an operator: what is wrong
and what to do about it.
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

__all__ = ["WANTS_CERTIFICATE", "UpstreamAddress", "reason_of"]

#: How often a host's name is looked up, in seconds; only while connections are made.
_LOOK_UP_EVERY_S: Final = 3.0

_UNDER_WAY: Final = frozenset({errno.EINPROGRESS, errno.EALREADY})

_SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
_Address: TypeAlias = tuple[socket.AddressFamily, socket.SocketKind, int, str, _SocketAddress]

# X509_V_ERR_*: what openssl-verify(1) lists.
_UNTRUSTED: Final = frozenset({2, 18, 19, 20, 21})
_WRONG_NAME: Final = frozenset({62, 64})

#: What to do where a broker ends a TLS connection for no reason that it tells.
WANTS_CERTIFICATE: Final = (
    "; the broker may want a client certificate: listeners[].upstream_tls.certificate and key, "
    "signed by who is in the broker's trust store"
)
_NO_TLS: Final = "; does the broker's listener speak TLS? Without it, leave listeners[].upstream_tls out"


def reason_of(error: OSError) -> str:
    """Say in the system's words why a connection can't be made, without the address: that is known."""
    if isinstance(error, ssl.SSLError):
        return f"TLS: {tls_problem(error)}{_fix(error)}"
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _fix(error: ssl.SSLError) -> str:
    """Say which setting is probably wrong, where one is."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _UNTRUSTED:
            return "; listeners[].upstream_tls.ca has to name the CA of the broker's certificate"
        if error.verify_code in _WRONG_NAME:
            return "; set listeners[].upstream_tls.server_name to a name that the broker's certificate has"
        return ""
    reason = error.reason or ""
    if "CERTIFICATE_REQUIRED" in reason or "BAD_CERTIFICATE" in reason or "HANDSHAKE_FAILURE" in reason:
        return WANTS_CERTIFICATE
    if reason == "WRONG_VERSION_NUMBER" or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return _NO_TLS
    return ""


class UpstreamAddress:
    """Where a listener's broker is, and how to connect to it.

    Args:
        settings: The listener's.
        turns: Who goes on with a TLS handshake.

    Raises:
        TlsFilesError: A file of the upstream's TLS can't be used.

    Attributes:
        address: Host and port.
        server_name: The name that the broker's certificate must have; None without TLS.
        tls: What is spoken to the broker; None without TLS.
    """

    def __init__(self, settings: ListenerSettings, turns: HandshakeTurns) -> None:
        tls = settings.upstream_tls
        self.address = settings.upstream
        self.server_name = None if tls is None else tls.server_name or settings.upstream.host
        self._turns = turns
        self._literal = _literal(settings.upstream)
        self._looking_up: asyncio.Task[Sequence[_Address] | OSError] | None = None
        self._look_up_at = 0.0
        self.tls = None if tls is None else client_context(settings.name, tls)

    async def connect(self, peer: str = "") -> socket.socket:
        """Connect, and shake hands.

        Args:
            peer: The peer that the connection is for; empty where it is the receiver's own.

        Returns:
            The socket, non-blocking.

        Raises:
            OSError: It can't be done; :func:`reason_of` says why.
        """
        plain = await self._connect()
        if self.tls is None:
            return plain
        broker = wrap(self.tls.current(), plain, server_side=False, server_name=self.server_name)
        try:
            await handshake(broker, self._turns, peer)
        except BaseException as error:
            broker.close()
            if isinstance(error, ConnectionResetError):  # as Kafka does, to which TLS is too long a request
                raise ConnectionResetError(f"TLS: the connection was reset{_NO_TLS}") from None
            raise
        return broker

    def connect_at_once(self) -> socket.socket | None:
        """Connect without waiting, as can be done where the broker is on this machine and there is no TLS.

        Returns:
            The socket, non-blocking; None where there is something to wait for, or to say.
        """
        if self.tls is not None or not self._literal or not self.address.is_loopback:
            return None
        try:
            broker, problem = _begin(self._literal[0])
        except OSError:
            return None
        if problem:
            broker.close()
            return None
        return broker

    async def _connect(self) -> socket.socket:
        problem = 0
        for address in self._literal or await self._looked_up():
            broker, problem = _begin(address)
            if problem in _UNDER_WAY:
                try:
                    await writable(broker)
                except BaseException:
                    broker.close()
                    raise
                problem = broker.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if not problem:
                return broker
            broker.close()
        raise OSError(problem, os.strerror(problem))

    async def _looked_up(self) -> Sequence[_Address]:
        """Look the host up, all that ask at once together: threads do it, and each time costs one a while."""
        now = asyncio.get_running_loop().time()
        if self._looking_up is None or (self._looking_up.done() and now >= self._look_up_at):
            self._look_up_at = now + _LOOK_UP_EVERY_S
            self._looking_up = asyncio.create_task(self._look_up())
        found = await asyncio.shield(self._looking_up)
        if isinstance(found, OSError):
            raise type(found)(*found.args)  # an error of one's own: it refers to who raised it
        return found

    async def _look_up(self) -> Sequence[_Address] | OSError:
        try:
            return await asyncio.get_running_loop().getaddrinfo(
                self.address.host, self.address.port, type=socket.SOCK_STREAM
            )
        except OSError as error:
            return error


def _literal(address: HostPort) -> Sequence[_Address]:
    """Return the address that is written there; nothing for a name."""
    try:
        return socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    except OSError:
        return []


def _begin(to: _Address) -> tuple[socket.socket, int]:
    """Begin to connect; return the socket and what is wrong, 0 where the connection is made already."""
    family, kind, protocol, _, address = to
    broker = socket.socket(family, kind, protocol)
    broker.setblocking(False)  # noqa: FBT003 - the socket's own signature
    problem = broker.connect_ex(address)
    if problem == errno.EINPROGRESS:  # on one machine, nothing but that we have to ask again
        problem = broker.connect_ex(address)
    return broker, problem
