"""The relay with TLS on either side: no byte and no end of stream is lost."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
import ssl
import struct
import subprocess
from typing import IO

import pytest

from receiver.gateway.connection.closing import CloseReason
from receiver.gateway.connection.direction import BUFFER_BYTES
from receiver.gateway.connection.states import State
from receiver.gateway.connection.tls_socket import TlsSocket, wrap
from receiver.gateway.handshake import HandshakeTurns, handshake
from tests.testbed.ports import LOOPBACK
from tests.testbed.scripted_broker import Answers, framed, produce_frame
from tests.unit.gateway.support import Relayed, eventually, on_loop, pair, receive, reset, send
from tests.unit.gateway.tls import V1_2, V1_3, Certificates, TlsPeer, tls_relayed
from tests.unit.session.support import get_subscriptions, read_subscriptions

VERSIONS = pytest.mark.parametrize("version", [V1_2, V1_3], ids=["TLS 1.2", "TLS 1.3"])
SIDES = pytest.mark.parametrize(
    ("client", "broker"), [(True, False), (False, True), (True, True)], ids=["client", "broker", "both"]
)


@VERSIONS
@SIDES
def test_bytes_pass_both_ways_and_ours_are_answered(
    certificates: Certificates, version: ssl.TLSVersion, client: bool, broker: bool
) -> None:
    async def main() -> None:
        answers = Answers()
        async with tls_relayed(certificates, client=client, broker=broker, version=version) as (
            _,
            one,
            other,
        ):
            await one.send(produce_frame(1, b"x" * 100))
            answer = answers.to(await other.receive_frame())
            assert answer is not None
            await other.send(framed(answer))
            assert (await one.receive_frame()).endswith(b"x" * 100)
            await one.send(get_subscriptions())
            answer = answers.to(await other.receive_frame())
            assert answer is not None
            await other.send(framed(answer))
            assert read_subscriptions(await one.receive_frame()).error_code == 0

    on_loop(main())


@VERSIONS
@SIDES
@pytest.mark.parametrize("upwards", [True, False], ids=["up", "down"])
def test_a_slow_reader_slows_its_peer_and_loses_nothing(
    certificates: Certificates, version: ssl.TLSVersion, client: bool, broker: bool, upwards: bool
) -> None:
    async def main() -> None:
        async with tls_relayed(
            certificates, client=client, broker=broker, version=version, small_buffers=True
        ) as (wire, one, other):
            source, sink = (one, other) if upwards else (other, one)
            direction = wire.relay._up if upwards else wire.relay._down
            data = produce_frame(1, bytes(range(256)) * 4000) * 5
            sender = asyncio.create_task(source.send(data))
            before = -1
            while before != direction.bytes_read:  # until nobody reads any more
                before = direction.bytes_read
                await asyncio.sleep(0.1)
            assert before < 3 * BUFFER_BYTES
            assert len(direction._backlog) <= BUFFER_BYTES
            assert not sender.done()
            arrived = await sink.receive(len(data))
            await sender
            assert hashlib.sha256(arrived).digest() == hashlib.sha256(data).digest()

    on_loop(main())


@VERSIONS
def test_many_transfers_at_once_pass_whole(certificates: Certificates, version: ssl.TLSVersion) -> None:
    async def main() -> None:
        async with tls_relayed(certificates, broker=True, version=version) as (_, one, other):
            up = b"".join(produce_frame(n, bytes([n % 256]) * (n * 37 % 70_000)) for n in range(150))
            down = b"".join(framed(struct.pack(">i", n) + bytes(n * 53 % 70_000)) for n in range(150))
            _, _, got_up, got_down = await asyncio.gather(
                one.send(up), other.send(down), other.receive(len(up)), one.receive(len(down))
            )
            assert got_up == up
            assert got_down == down

    on_loop(main())


@VERSIONS
def test_many_records_in_one_segment_all_pass(certificates: Certificates, version: ssl.TLSVersion) -> None:
    async def main() -> None:
        async with tls_relayed(certificates, version=version) as (_, client, broker):
            data = b"".join(produce_frame(n, bytes([n])) for n in range(200))
            await send(client.end, client.seal(*(data[at : at + 7] for at in range(0, len(data), 7))))
            assert await broker.receive(len(data)) == data

    on_loop(main())


@VERSIONS
def test_a_record_that_comes_in_pieces_passes(certificates: Certificates, version: ssl.TLSVersion) -> None:
    async def main() -> None:
        async with tls_relayed(certificates, version=version) as (_, client, broker):
            data = produce_frame(1, b"slowly")
            for byte in client.seal(data):
                await send(client.end, bytes([byte]))
                await asyncio.sleep(0)
            assert await broker.receive(len(data)) == data

    on_loop(main())


def test_bytes_held_by_openssl_during_a_pause_are_read_afterwards(certificates: Certificates) -> None:
    """A drain reads one request; the rest of the record stays without an event."""

    async def main() -> None:
        async with tls_relayed(certificates) as (wire, client, broker):
            assert isinstance(client, TlsPeer)
            request, next_one = produce_frame(1, bytes(1000)), produce_frame(2, b"for nobody")
            await client.send(request[:400])
            assert await broker.receive(400) == request[:400]
            wire.relay.drain()
            await send(client.end, client.seal(request[400:] + next_one))
            assert await broker.receive(600 + len(request) - 1000) == request[400:]
            await asyncio.sleep(0.05)
            assert wire.relay.traffic[0] == len(request)
            tls = wire.inner[0]
            assert isinstance(tls, TlsSocket)
            assert tls.has_unread
            wire.relay._state = State.OPEN  # only a test goes back
            wire.relay.moved()
            assert await broker.receive(len(next_one)) == next_one

    on_loop(main())


# -- ends ------------------------------------------------------------------------------------------


@VERSIONS
def test_data_and_the_end_in_one_segment_both_arrive(
    certificates: Certificates, version: ssl.TLSVersion
) -> None:
    """No FIN follows the close_notify: nothing else tells of the end."""

    async def main() -> None:
        async with tls_relayed(certificates, version=version) as (wire, client, broker):
            assert isinstance(client, TlsPeer)
            data = produce_frame(1, b"last words")
            await send(client.end, client.seal(data) + client.seal_end())
            assert await broker.receive(len(data)) == data
            assert await broker.is_told_the_end()
            answer = framed(b"\0\0\0\1answer")
            await broker.send(answer)
            assert await client.receive(len(answer)) == answer
            broker.end.close()
            assert await client.is_told_the_end()
            assert await wire.reason() is CloseReason.CLIENT_CLOSED

    on_loop(main())


@VERSIONS
def test_the_end_of_a_full_buffer_arrives(certificates: Certificates, version: ssl.TLSVersion) -> None:
    async def main() -> None:
        async with tls_relayed(certificates, version=version) as (wire, client, broker):
            assert isinstance(client, TlsPeer)
            data = produce_frame(1, bytes(BUFFER_BYTES))[:BUFFER_BYTES]
            sender = asyncio.create_task(send(client.end, client.seal(data) + client.seal_end()))
            assert await broker.receive(len(data)) == data
            assert await broker.is_told_the_end()
            await sender
            broker.end.close()
            await wire.reason()

    on_loop(main())


@VERSIONS
def test_a_socket_that_is_closed_without_a_word_is_an_end(
    certificates: Certificates, version: ssl.TLSVersion
) -> None:
    async def main() -> None:
        async with tls_relayed(certificates, version=version) as (wire, client, broker):
            data = produce_frame(1, b"last words")
            await client.send(data)
            client.end.shutdown(socket.SHUT_WR)
            assert await broker.receive(len(data)) == data
            assert await broker.is_told_the_end()
            broker.end.close()
            assert await wire.reason() is CloseReason.CLIENT_CLOSED

    on_loop(main())


@VERSIONS
@SIDES
def test_a_brokers_end_reaches_the_client(
    certificates: Certificates, version: ssl.TLSVersion, client: bool, broker: bool
) -> None:
    async def main() -> None:
        async with tls_relayed(certificates, client=client, broker=broker, version=version) as (
            wire,
            one,
            other,
        ):
            words = framed(b"\0\0\0\1last words")
            await other.send(words)
            other.end.close()
            assert await one.receive(len(words)) == words
            assert await one.is_told_the_end()
            one.end.close()
            assert await wire.reason() is CloseReason.BROKER_CLOSED

    on_loop(main())


@VERSIONS
@SIDES
def test_a_drained_connection_gets_a_close_notify(
    certificates: Certificates, version: ssl.TLSVersion, client: bool, broker: bool
) -> None:
    async def main() -> None:
        async with tls_relayed(certificates, client=client, broker=broker, version=version) as (
            wire,
            one,
            other,
        ):
            await one.send(produce_frame(1))
            await other.receive_frame()
            wire.relay.close(CloseReason.DRAINED)
            assert await one.is_told_the_end()
            assert await other.is_told_the_end()

    on_loop(main())


@pytest.mark.parametrize("resets", ["client", "broker"])
def test_a_reset_goes_on_as_a_reset(certificates: Certificates, resets: str) -> None:
    async def main() -> None:
        async with tls_relayed(certificates, broker=True) as (wire, client, broker):
            await client.send(produce_frame(1))
            await broker.receive_frame()
            gone, left = (client, broker) if resets == "client" else (broker, client)
            reset(gone.end)
            assert not await left.is_told_the_end()
            assert await wire.reason() == f"{resets}_reset"

    on_loop(main())


def test_the_end_after_a_slow_reader_comes_behind_the_last_byte(certificates: Certificates) -> None:
    async def main() -> None:
        async with tls_relayed(certificates, small_buffers=True) as (wire, client, broker):
            data = framed(b"\0\0\0\1" + bytes(2_000_000))
            sender = asyncio.create_task(broker.send(data))
            await eventually(lambda: bool(wire.relay._down._backlog), "a backlog")
            assert await client.receive(len(data)) == data
            await sender
            broker.end.close()
            assert await client.is_told_the_end()

    on_loop(main())


# -- what TLS can't make sense of ------------------------------------------------------------------


@VERSIONS
@pytest.mark.parametrize("of_client", [True, False], ids=["client", "broker"])
def test_a_forged_record_ends_the_connection(
    certificates: Certificates, version: ssl.TLSVersion, of_client: bool
) -> None:
    async def main() -> None:
        async with tls_relayed(certificates, broker=True, version=version) as (wire, client, broker):
            forger, other = (client, broker) if of_client else (broker, client)
            good = forger.seal(produce_frame(1, b"good"))
            forged = bytearray(forger.seal(produce_frame(2, b"bad")))
            forged[-1] ^= 1
            await send(forger.end, good + forged)
            assert (await other.receive_frame()).endswith(b"good")
            reason = CloseReason.CLIENT_TLS_ERROR if of_client else CloseReason.BROKER_TLS_ERROR
            assert await wire.reason() is reason
            assert wire.closed is not None
            assert isinstance(wire.closed[1], ssl.SSLError)
            assert await other.is_told_the_end()

    on_loop(main())


def test_plain_bytes_in_the_middle_end_the_connection(certificates: Certificates) -> None:
    async def main() -> None:
        async with tls_relayed(certificates) as (wire, client, broker):
            await send(client.end, produce_frame(1))
            assert await wire.reason() is CloseReason.CLIENT_TLS_ERROR
            assert await broker.is_told_the_end()

    on_loop(main())


def test_renegotiation_is_refused(certificates: Certificates) -> None:
    """It would let a client make us compute as often as it likes (CVE-2011-1473)."""
    assert certificates.listener_context().options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.skipif(shutil.which("openssl") is None, reason="only openssl updates keys on demand")
@pytest.mark.parametrize("command", [b"k\n", b"K\n"], ids=["its own keys", "and ours too"])
def test_keys_may_be_updated_while_bytes_pass(certificates: Certificates, command: bytes) -> None:
    """RFC 8446, section 4.6.3."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server((LOOPBACK, 0)) as listening:
            listening.setblocking(False)
            address = f"{LOOPBACK}:{listening.getsockname()[1]}"
            client = subprocess.Popen(  # noqa: ASYNC220 - it starts at once
                ["openssl", "s_client", "-connect", address, "-tls1_3"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            inner, _ = await loop.sock_accept(listening)
        assert client.stdin is not None
        assert client.stdout is not None
        tls = wrap(certificates.listener_context(), inner, server_side=True)
        await handshake(tls, HandshakeTurns(), "peer")
        broker, inner_broker = pair()
        wire = Relayed(client=(socket.socket(), tls), broker=(broker, inner_broker))
        try:
            # What s_client takes for a command is a line that begins with one; a length begins with
            # zeros.
            request = framed(b"A" * 20 + b"\n")
            for _ in range(3):
                os.write(client.stdin.fileno(), request)
                assert await receive(broker, len(request)) == request
                os.write(client.stdin.fileno(), command)
                await asyncio.sleep(0.1)
                await send(broker, framed(b"answer %d" % client.pid))
                await asyncio.to_thread(read_until, client.stdout, b"answer %d" % client.pid)
        finally:
            client.kill()
            client.communicate()
            wire.close()

    on_loop(main())


def read_until(output: IO[bytes], text: bytes) -> None:
    seen = b""
    while text not in seen:
        chunk = os.read(output.fileno(), 4096)
        assert chunk, seen
        seen += chunk
