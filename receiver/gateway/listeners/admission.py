"""Checks a client before the gateway connects to the broker for it.

Owns the order of the checks: the PROXY header, the limits on the source address, the TLS handshake,
and the principal of the client certificate. A client that fails a check, or takes too long, costs
no connection to the broker.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import ip_address, ip_network
from typing import Final

from receiver.gateway.connection.closing import close_with_reset
from receiver.gateway.connection.tls_socket import TlsSocket, wrap
from receiver.gateway.handshake import HandshakeTurns, handshake
from receiver.gateway.listeners.proxy_protocol import (
    MAX_HEADER_BYTES,
    ProxyHeader,
    ProxyProtocolError,
    may_begin,
    parse,
)
from receiver.gateway.listeners.tls_refusal import likely_cause
from receiver.gateway.tls import server_context
from receiver.gateway.waiting import readable
from receiver.peers.peers import Scope
from receiver.principal.distinguished_name import MalformedCertificateError, subject_name
from receiver.principal.mapping_rules import MappingRules, NoMatchingRuleError
from receiver.settings.listeners import ListenerSettings
from receiver.telemetry.control.limits import Exceeded, Limits
from receiver.telemetry.identity import ClientIdentity
from receiver.tls import tls_problem

#: Clients of load balancers that may wait for their PROXY header at once. A load balancer sends the
#: header first, so the one that has waited longest makes room for another.
MAX_WITHOUT_HEADER: Final = 1_024


class RefusalReason(StrEnum):
    """Why the gateway refused a client; a metric label and a log field."""

    UPSTREAM = "upstream"
    OUT_OF_FILES = "out_of_files"
    LIMIT = "limit"
    LIMIT_SOURCE_ADDRESS = "limit_source_address"
    LIMIT_PRINCIPAL = "limit_principal"
    PROXY_PROTOCOL = "proxy_protocol"
    TLS_HANDSHAKE = "tls_handshake"
    HANDSHAKE_TIMEOUT = "handshake_timeout"
    PRINCIPAL = "principal"
    #: The client left before it was admitted. Health checks that only open a connection do this all
    #: the time.
    GONE = "gone"


_OVER_LIMIT: Final[Mapping[Scope, RefusalReason]] = {
    "source_address": RefusalReason.LIMIT_SOURCE_ADDRESS,
    "address_block": RefusalReason.LIMIT_SOURCE_ADDRESS,
    "principal": RefusalReason.LIMIT_PRINCIPAL,
}


class RefusedError(Exception):
    """A client is refused; ``str()`` gives the details.

    Attributes:
        exceeded: The limit that the client exceeds; None if another check failed.
        likely_cause: What is probably wrong with the client, and how to correct it, if known.
        source_address: The client's address, if a PROXY header named it.
    """

    def __init__(
        self,
        reason: RefusalReason,
        problem: str,
        exceeded: Exceeded | None = None,
        likely_cause: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.reason = reason
        self.exceeded = exceeded
        self.likely_cause = likely_cause
        self.source_address: str | None = None


@dataclass(eq=False, slots=True)
class _Handshake:
    deadline: asyncio.Timeout
    """Ends it."""
    displaced: bool = False
    """Whether it was ended to make room for another client."""


class Admission:
    """Admits or refuses the clients of one listener.

    Raises:
        TlsFilesError: A TLS file of the listener can't be used.

    Attributes:
        tls: The listener's TLS context; None without TLS.
        needs_no_bytes: Whether :meth:`count` is the only check, because there is no PROXY header
            and no TLS.
    """

    def __init__(self, settings: ListenerSettings, limits: Limits, turns: HandshakeTurns) -> None:
        self._settings = settings
        self._limits = limits
        self._turns = turns
        self.tls = None if settings.tls is None else server_context(settings.name, settings.tls)
        self._rules = MappingRules.parse(settings.principal_mapping_rules)
        proxy_protocol = settings.proxy_protocol
        self._load_balancers = () if proxy_protocol is None else tuple(map(ip_network, proxy_protocol.from_))
        self._without_header: dict[_Handshake, None] = {}  # the oldest first
        self.needs_no_bytes = self.tls is None and not self._load_balancers
        self._timeout_s = None if self.needs_no_bytes else settings.handshake_timeout_ms / 1000

    def knows_source(self, peer_address: str) -> bool:
        """Return whether a socket's peer is the client, and no load balancer."""
        if not self._load_balancers:
            return True
        peer = ip_address(peer_address)
        return not any(peer in network for network in self._load_balancers)

    def count(self, source_address: str) -> None:
        """Count a connection for its source address.

        Raises:
            RefusedError: The address has too many connections, or opens them too fast.
        """
        self._check(self._limits.connection_opened(source_address, asyncio.get_running_loop().time()))

    def displace(self) -> bool:
        """Refuse the client that waited longest for its PROXY header; return if any did.

        Nobody can be charged for it, because its source is not known yet.
        """
        oldest = next(iter(self._without_header), None)
        if oldest is None:
            return False
        del self._without_header[oldest]
        oldest.displaced = True
        oldest.deadline.reschedule(asyncio.get_running_loop().time())
        return True

    async def admit(
        self, client: socket.socket, identity: ClientIdentity
    ) -> tuple[socket.socket, ClientIdentity]:
        """Run all checks on a client.

        Args:
            client: The client's socket, non-blocking. This method owns it, and closes it if a check
                fails.
            identity: Who the client is, as far as the listener knows. If :meth:`knows_source` is
                true, the caller has counted it already.

        Returns:
            The socket to read from: ``client``, or a TLS socket over it; and the identity with its
            source address and principal. The connection is counted, so the caller must call
            :meth:`Limits.connection_closed` when it ends.

        Raises:
            RefusedError: A check failed.
        """
        side, counted = client, self.knows_source(identity.source_address)
        own = _Handshake(asyncio.timeout(self._timeout_s))
        try:
            async with own.deadline:
                if not counted:
                    identity = await self._learn_source(client, identity, own)
                    self.count(identity.source_address)
                    counted = True
                elif self._load_balancers:
                    await self._refuse_header(client, identity)
                if self.tls is not None:
                    await _peek(client, 1)
                    side = tls = wrap(self.tls.current(), client, server_side=True)
                    await handshake(tls, self._turns, identity.peers.block)
                    version, cipher = tls.negotiated
                    identity = replace(identity, tls_version=version, tls_cipher=cipher)
                    if self._settings.security_protocol == "SSL":
                        identity = self._identify(tls, identity)
        except BaseException as error:
            if counted:
                self._limits.connection_closed(identity)
            if isinstance(error, ssl.SSLError):
                side.close()  # not reset, because a reset could overtake OpenSSL's alert
            elif side.fileno() != -1:
                close_with_reset(side)
            refusal = self._refusal(error, side, own) if isinstance(error, OSError) else error
            if isinstance(refusal, RefusedError):
                refusal.source_address = identity.source_address
            if refusal is error:
                raise
            raise refusal from None
        return side, identity

    async def _refuse_header(self, client: socket.socket, identity: ClientIdentity) -> None:
        """Refuse a PROXY header from an address that is no load balancer's."""
        if may_begin(await _peek(client, MAX_HEADER_BYTES)):
            raise RefusedError(
                RefusalReason.PROXY_PROTOCOL,
                f"PROXY header from {identity.source_address}, which is in no network of "
                "listeners[].proxy_protocol.from",
            )

    async def _learn_source(
        self, client: socket.socket, identity: ClientIdentity, own: _Handshake
    ) -> ClientIdentity:
        """Read the client's address from the PROXY header of a known load balancer."""
        if len(self._without_header) >= MAX_WITHOUT_HEADER:
            self.displace()
        self._without_header[own] = None
        try:
            header = await self._header(client, identity.source_address)
        finally:
            self._without_header.pop(own, None)
        if header.source is None:
            return identity
        source_address, source_port = header.source
        return replace(identity, source_address=source_address, source_port=source_port)

    async def _header(self, client: socket.socket, peer: str) -> ProxyHeader:
        received = b""
        while True:
            ahead = await _peek(client, MAX_HEADER_BYTES - len(received))
            try:
                header = parse(received + ahead)
            except ProxyProtocolError as error:
                problem = f"load balancer {peer}: {error}"
                raise RefusedError(RefusalReason.PROXY_PROTOCOL, problem) from None
            # The bytes behind the header belong to Kafka or TLS and must stay in the socket.
            received += client.recv(len(ahead) if header is None else header.size - len(received))
            if header is not None:
                return header

    def _identify(self, tls: TlsSocket, identity: ClientIdentity) -> ClientIdentity:
        """Take the principal from the client certificate, like Kafka does.

        The rules are those of Kafka's DefaultKafkaPrincipalBuilder.
        """
        certificate = tls.certificate()
        if certificate is None:
            return identity
        try:
            name = self._rules.principal_name(subject_name(certificate))
        except (MalformedCertificateError, NoMatchingRuleError) as error:
            raise RefusedError(RefusalReason.PRINCIPAL, str(error)) from None
        identity = replace(identity, principal=f"User:{name}")
        self._check(self._limits.authenticated(identity, asyncio.get_running_loop().time()))
        return identity

    def _check(self, exceeded: Exceeded | None) -> None:
        if exceeded is not None:
            raise RefusedError(_OVER_LIMIT[exceeded.scope], str(exceeded), exceeded)

    def _refusal(self, error: OSError, side: socket.socket, own: _Handshake) -> RefusedError:
        if isinstance(error, ssl.SSLError):
            problem, cause = tls_problem(error), likely_cause(error)
            return RefusedError(RefusalReason.TLS_HANDSHAKE, problem, likely_cause=cause)
        if isinstance(error, TimeoutError) and error.errno is None:
            if own.displaced:
                return RefusedError(RefusalReason.LIMIT, "the oldest of too many without a PROXY header")
            timeout_ms = self._settings.handshake_timeout_ms
            problem = f"no handshake within listeners[].handshake_timeout_ms ({timeout_ms})"
            return RefusedError(RefusalReason.HANDSHAKE_TIMEOUT, problem)
        reason = RefusalReason.TLS_HANDSHAKE if isinstance(side, TlsSocket) else RefusalReason.GONE
        return RefusedError(reason, error.strerror or str(error))


async def _peek(client: socket.socket, max_bytes: int) -> bytes:
    """Wait for bytes and return them, but leave them in the socket.

    Raises:
        OSError: The client closed the connection.
    """
    while True:
        try:
            if ahead := client.recv(max_bytes, socket.MSG_PEEK):
                return ahead
        except BlockingIOError:
            await readable(client)
        else:
            raise ConnectionError("the client closed the connection before it sent anything")
