"""TLS peers for tests: SSLObjects whose records the test sends itself."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from receiver.gateway.connection.tls_socket import TlsSocket, wrap
from receiver.gateway.handshake import HandshakeTurns, handshake
from receiver.gateway.tls import client_context, server_context
from receiver.settings.listeners import TlsSettings, UpstreamTlsSettings
from tests.testbed.certificates import CertificateAuthority, CertificateFiles
from tests.testbed.scripted_broker import Peer, ScriptedBroker
from tests.unit.gateway.support import Gate, Relayed, at_end, pair, receive, receive_frame, send

V1_2, V1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


class TlsPeer:
    """One end of a TLS connection.

    Args:
        end: The socket, non-blocking.
        context: What it speaks.
        server_name: Whom it wants to speak to; None for a server.
    """

    def __init__(
        self, end: socket.socket, context: ssl.SSLContext, *, server_name: str | None = "localhost"
    ) -> None:
        self.end = end
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._in, self._out, server_side=server_name is None, server_hostname=server_name
        )

    async def shake_hands(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._more()
            except ssl.SSLError:
                await self._flush()  # the alert
                raise
            else:
                await self._flush()
                return

    async def _flush(self) -> None:
        await send(self.end, self._out.read())

    async def _more(self) -> None:
        if data := await asyncio.get_running_loop().sock_recv(self.end, 1 << 18):
            self._in.write(data)
        else:
            self._in.write_eof()

    def seal(self, *records: bytes) -> bytes:
        """Each of them as a record of its own (more where one is too long), not sent."""
        for data in records:
            self.tls.write(data)
        return self._out.read()

    def seal_end(self) -> bytes:
        """A close_notify, not sent."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self._out.read()

    async def send(self, data: bytes) -> None:
        for start in range(0, len(data), 1 << 20):
            await send(self.end, self.seal(data[start : start + (1 << 20)]))

    async def receive(self, count: int) -> bytes:
        """Wait for so many bytes; fewer only at the stream's end."""
        data = bytearray()
        while len(data) < count:
            try:
                if not (some := self.tls.read(count - len(data))):
                    break
                data += some
            except ssl.SSLWantReadError:
                await self._more()
            except ssl.SSLZeroReturnError:
                break
        return bytes(data)

    async def receive_frame(self) -> bytes:
        length = await self.receive(4)
        assert len(length) == 4, "the stream ended"
        return await self.receive(int.from_bytes(length, "big"))

    async def is_told_the_end(self) -> bool:
        """Wait for the end: whether it is a close_notify, not just a socket that was closed."""
        try:
            assert await self.receive(1) == b""
        except (ssl.SSLEOFError, ConnectionResetError):
            return False
        return True


class PlainPeer:
    """One end of a plain connection, with a TLS peer's methods."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def seal(self, *records: bytes) -> bytes:
        return b"".join(records)

    async def send(self, data: bytes) -> None:
        await send(self.end, data)

    async def receive(self, count: int) -> bytes:
        return await receive(self.end, count)

    async def receive_frame(self) -> bytes:
        return await receive_frame(self.end)

    async def is_told_the_end(self) -> bool:
        return await at_end(self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """An authority and what it has issued, as files in a folder of the test's.

    Attributes:
        authority: Who signed it all.
        server: For localhost and 127.0.0.1.
        client: Of CN=alice,O=Example.
    """

    authority: CertificateAuthority
    server: CertificateFiles
    client: CertificateFiles

    def server_settings(self, **more: object) -> TlsSettings:
        """TLS of a listener."""
        return TlsSettings.model_validate(
            {"cert_file": self.server.chain, "key_file": self.server.key, **more}
        )

    def upstream_settings(self, **more: object) -> UpstreamTlsSettings:
        """TLS towards the broker."""
        return UpstreamTlsSettings.model_validate({"ca_file": self.server.ca, **more})

    def listener_context(self) -> ssl.SSLContext:
        """What the gateway's listener speaks."""
        return server_context("CLIENT", self.server_settings()).current()

    def client_context(
        self, *, version: ssl.TLSVersion | None = None, identity: CertificateFiles | None = None
    ) -> ssl.SSLContext:
        """What a client of the listener's speaks."""
        context = ssl.create_default_context(cafile=self.server.ca)
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF  # so that only a close_notify is an end
        if version is not None:
            context.minimum_version = context.maximum_version = version
        if identity is not None:
            context.load_cert_chain(identity.chain, identity.key)
        return context

    def broker_context(
        self, *, version: ssl.TLSVersion | None = None, wants_client: bool = False
    ) -> ssl.SSLContext:
        """What a broker's listener speaks."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        context.load_cert_chain(self.server.chain, self.server.key)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        if wants_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.server.ca)
        return context


def issue(folder: Path) -> Certificates:
    authority = CertificateAuthority()
    return Certificates(
        authority=authority,
        server=authority.issue().write(folder, "server"),
        client=authority.issue(common_name="alice", organization="Example", client=True).write(
            folder, "client"
        ),
    )


async def tls_pair(
    certificates: Certificates,
    *,
    of_client: bool,
    version: ssl.TLSVersion | None = None,
    small_buffers: bool = False,
) -> tuple[TlsPeer, TlsSocket]:
    """The test's end and the gateway's of a connection whose handshake is over.

    Args:
        certificates: Whose.
        of_client: Whether the test is the client, or else the broker.
        version: The TLS version.
        small_buffers: Whether the sockets take little.
    """
    outer, inner = pair(small_buffers=small_buffers)
    if of_client:
        peer = TlsPeer(outer, certificates.client_context(version=version))
        tls = wrap(certificates.listener_context(), inner, server_side=True)
    else:
        peer = TlsPeer(outer, certificates.broker_context(version=version), server_name=None)
        context = client_context("CLIENT", certificates.upstream_settings()).current()
        tls = wrap(context, inner, server_side=False, server_name="localhost")
    await asyncio.gather(peer.shake_hands(), handshake(tls, HandshakeTurns(), "peer"))
    return peer, tls


@contextlib.contextmanager
def tls_broker(context: ssl.SSLContext) -> Iterator[ScriptedBroker]:
    """A broker whose listener speaks TLS; :attr:`Peer.socket` is the TLS connection then."""

    def serve(peer: Peer) -> None:
        # The handshake comes later, so that stop() can end a connection whose handshake waits for
        # a client that never sends, or for a task of the very loop that stop() holds up.
        with context.wrap_socket(peer.socket, server_side=True, do_handshake_on_connect=False) as peer.socket:
            peer.socket.do_handshake()
            peer.serve()

    with ScriptedBroker() as broker:
        broker.script = serve
        yield broker


@contextlib.asynccontextmanager
async def tls_relayed(
    certificates: Certificates,
    *,
    client: bool = True,
    broker: bool = False,
    version: ssl.TLSVersion | None = None,
    small_buffers: bool = False,
    gate: Gate | None = None,
) -> AsyncIterator[tuple[Relayed, TlsPeer | PlainPeer, TlsPeer | PlainPeer]]:
    """A relay with TLS towards the client, the broker, or both; and the two peers."""

    async def side(*, of_client: bool) -> tuple[TlsPeer | PlainPeer, socket.socket]:
        if client if of_client else broker:
            return await tls_pair(
                certificates, of_client=of_client, version=version, small_buffers=small_buffers
            )
        outer, inner = pair(small_buffers=small_buffers)
        return PlainPeer(outer), inner

    client_peer, inner_client = await side(of_client=True)
    broker_peer, inner_broker = await side(of_client=False)
    wire = Relayed(gate, client=(client_peer.end, inner_client), broker=(broker_peer.end, inner_broker))
    try:
        yield wire, client_peer, broker_peer
    finally:
        wire.close()
