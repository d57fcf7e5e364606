"""What a client has to pass before the broker is connected for it.

Owns the order of the checks: a load balancer's PROXY header, the limit on its source address, TLS, and who
it is by its certificate. A client that fails, or takes too long, costs no connection to the broker.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from enum import StrEnum
from ipaddress import ip_address, ip_network
from typing import Final

from receiver.gateway.handshake import HandshakeTurns, handshake
from receiver.gateway.proxy_protocol import MAX_HEADER_BYTES, ProxyProtocolError, may_begin, parse
from receiver.gateway.relay import close_with_reset
from receiver.gateway.tls import server_context
from receiver.gateway.tls_socket import TlsSocket, wrap
from receiver.gateway.waiting import readable
from receiver.plugin.sources import site_of
from receiver.principal.distinguished_name import MalformedCertificateError, subject_name
from receiver.principal.mapping_rules import MappingRules, NoMatchingRuleError
from receiver.settings.listeners import ListenerSettings
from receiver.telemetry.connection import Connection
from receiver.telemetry.limits import Exceeded, Limits, Scope
from receiver.tls import tls_problem

__all__ = ["Admission", "RefusalReason", "RefusedError"]


class RefusalReason(StrEnum):
    """Why a client was closed at once; a label of the metrics and a word of the log."""

    UPSTREAM = "upstream"
    OUT_OF_FILES = "out_of_files"
    LIMIT = "limit"
    LIMIT_SOURCE_ADDRESS = "limit_source_address"
    LIMIT_PRINCIPAL = "limit_principal"
    PROXY_PROTOCOL = "proxy_protocol"
    TLS_HANDSHAKE = "tls_handshake"
    HANDSHAKE_TIMEOUT = "handshake_timeout"
    PRINCIPAL = "principal"
    #: It went before it was let in, as a health check that only connects does, all the time.
    GONE = "gone"


_OVER_LIMIT: Final[Mapping[Scope, RefusalReason]] = {
    "source_address": RefusalReason.LIMIT_SOURCE_ADDRESS,
    "source_site": RefusalReason.LIMIT_SOURCE_ADDRESS,
    "principal": RefusalReason.LIMIT_PRINCIPAL,
}


class RefusedError(Exception):
    """A client is not let in; ``str()`` says why.

    Attributes:
        reason: Why, in a word.
        exceeded: The limit that it is over; None where it is none of those.
    """

    def __init__(self, reason: RefusalReason, problem: str, exceeded: Exceeded | None = None) -> None:
        super().__init__(problem)
        self.reason = reason
        self.exceeded = exceeded


class Admission:
    """Lets the clients of one listener in, or refuses them.

    Args:
        settings: The listener's.
        limits: What one peer may take.
        turns: Who goes on with a TLS handshake.

    Raises:
        TlsFilesError: A file of the listener's TLS can't be used.

    Attributes:
        tls: What the listener speaks; None without TLS.
        is_over_at_once: Whether a client that is counted is let in: nothing has to be said first.
        knows_sources: Whether a client's address is known as soon as it is accepted: nobody else tells it.
    """

    def __init__(self, settings: ListenerSettings, limits: Limits, turns: HandshakeTurns) -> None:
        self._settings = settings
        self._limits = limits
        self._turns = turns
        self.tls = None if settings.tls is None else server_context(settings.name, settings.tls)
        self._rules = MappingRules.parse(settings.principal_mapping_rules)
        proxy_protocol = settings.proxy_protocol
        self._load_balancers = () if proxy_protocol is None else tuple(map(ip_network, proxy_protocol.from_))
        self.knows_sources = not self._load_balancers
        self.is_over_at_once = self.tls is None and self.knows_sources
        self._timeout_s = None if self.is_over_at_once else settings.handshake_timeout_ms / 1000

    def count(self, source_address: str) -> None:
        """Count a connection for its source address.

        Raises:
            RefusedError: That has too many, or opens them too fast.
        """
        self._check(self._limits.connection_opened(source_address, asyncio.get_running_loop().time()))

    async def admit(self, client: socket.socket, connection: Connection) -> socket.socket:
        """Let a client in.

        Args:
            client: Its socket, non-blocking; owned from here on, and closed where it is not let in.
            connection: What is known of it; its source address and its principal may be learned here. Where
                its source is known already (:attr:`knows_sources`) it is counted already.

        Returns:
            The socket to go on with. The connection is counted: :meth:`Limits.connection_closed` has to be
            called when it ends.

        Raises:
            RefusedError: It is not let in.
        """
        side, counted = client, self.knows_sources
        try:
            async with asyncio.timeout(self._timeout_s):
                if not counted:
                    await self._learn_source(client, connection)
                    self.count(connection.source_address)
                    counted = True
                if self.tls is not None:
                    await _peek(client, 1)
                    side = tls = wrap(self.tls.current(), client, server_side=True)
                    await handshake(tls, self._turns, site_of(connection.source_address))
                    if self._settings.security_protocol == "SSL":
                        self._identify(tls, connection)
        except BaseException as error:
            if counted:
                self._limits.connection_closed(connection)
            if isinstance(error, ssl.SSLError):
                side.close()  # not reset, so that what OpenSSL says to it arrives
            elif side.fileno() != -1:
                close_with_reset(side)
            if isinstance(error, OSError):
                raise self._refusal(error, side) from None
            raise
        return side

    async def _learn_source(self, client: socket.socket, connection: Connection) -> None:
        """Take the client's address from a load balancer; nobody else may tell one."""
        peer = ip_address(connection.source_address)
        if not any(peer in network for network in self._load_balancers):
            if may_begin(await _peek(client, MAX_HEADER_BYTES)):
                raise RefusedError(
                    RefusalReason.PROXY_PROTOCOL,
                    f"a PROXY header from {peer}, which is in no network of listeners[].proxy_protocol.from",
                )
            return
        taken = b""
        while True:
            ahead = await _peek(client, MAX_HEADER_BYTES - len(taken))
            try:
                header = parse(taken + ahead)
            except ProxyProtocolError as error:
                problem = f"from the load balancer {peer}: {error}"
                raise RefusedError(RefusalReason.PROXY_PROTOCOL, problem) from None
            # What comes behind it is the stream's, or TLS's.
            taken += client.recv(len(ahead) if header is None else header.size - len(taken))
            if header is not None:
                break
        if header.source is not None:
            connection.source_address, connection.source_port = header.source

    def _identify(self, tls: TlsSocket, connection: Connection) -> None:
        """Name the principal by the client's certificate, as Kafka's DefaultKafkaPrincipalBuilder does."""
        certificate = tls.certificate()
        if certificate is None:
            return
        try:
            name = self._rules.principal_name(subject_name(certificate))
        except (MalformedCertificateError, NoMatchingRuleError) as error:
            raise RefusedError(RefusalReason.PRINCIPAL, str(error)) from None
        connection.principal = f"User:{name}"
        self._check(self._limits.authenticated(connection, asyncio.get_running_loop().time()))

    def _check(self, exceeded: Exceeded | None) -> None:
        if exceeded is not None:
            raise RefusedError(_OVER_LIMIT[exceeded.scope], str(exceeded), exceeded)

    def _refusal(self, error: OSError, side: socket.socket) -> RefusedError:
        if isinstance(error, ssl.SSLError):
            return RefusedError(RefusalReason.TLS_HANDSHAKE, tls_problem(error))
        if isinstance(error, TimeoutError) and error.errno is None:
            problem = f"listeners[].handshake_timeout_ms is {self._settings.handshake_timeout_ms}"
            return RefusedError(RefusalReason.HANDSHAKE_TIMEOUT, problem)
        reason = RefusalReason.TLS_HANDSHAKE if isinstance(side, TlsSocket) else RefusalReason.GONE
        return RefusedError(reason, error.strerror or str(error))


async def _peek(client: socket.socket, most: int) -> bytes:
    """Wait for bytes, and look at them without taking them.

    Raises:
        OSError: The client is gone.
    """
    while True:
        try:
            if ahead := client.recv(most, socket.MSG_PEEK):
                return ahead
        except BlockingIOError:
            await readable(client)
        else:
            raise ConnectionError("closed before it said what it wants")
