"""The REST server on a real socket: start, stop and the error when it cannot start."""

import asyncio
import signal
import socket

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from receiver.api import RestServer
from receiver.settings.hostport import HostPort
from receiver.settings.rest import RestSettings
from tests.testbed.ports import listening_on

LOOPBACK = RestSettings(bind=HostPort(host="127.0.0.1", port=0))


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def test_it_serves_on_the_running_loop_and_leaves_signals_alone() -> None:
    async def scenario() -> None:
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        server = RestServer(hello, LOOPBACK, listening_on(LOOPBACK.bind.host, LOOPBACK.bind.port))
        server.start()
        assert server.address.port != 0
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
        async with httpx.AsyncClient(trust_env=False, timeout=120) as client:
            answer = await client.get(f"http://{server.address}/")
        assert answer.text == "hello"
        assert "server" not in answer.headers
        await server.stop()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(server.address.host, server.address.port)

    asyncio.run(scenario())


def test_stop_waits_for_requests_in_flight() -> None:
    async def scenario() -> None:
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def slow(scope: Scope, receive: Receive, send: Send) -> None:
            asked.set()
            await go_on.wait()
            await hello(scope, receive, send)

        server = RestServer(slow, LOOPBACK, listening_on(LOOPBACK.bind.host, LOOPBACK.bind.port))
        server.start()
        async with httpx.AsyncClient(trust_env=False, timeout=120) as client:
            request = asyncio.create_task(client.get(f"http://{server.address}/"))
            await asked.wait()
            stopping = asyncio.create_task(server.stop())
            await asyncio.sleep(0.3)
            assert not stopping.done()
            go_on.set()
            assert (await request).text == "hello"
            await stopping

    asyncio.run(scenario())


def test_stop_aborts_requests_after_the_timeout() -> None:
    async def scenario() -> None:
        asked = asyncio.Event()

        async def stuck(scope: Scope, receive: Receive, send: Send) -> None:
            asked.set()
            await asyncio.Event().wait()

        server = RestServer(stuck, LOOPBACK, listening_on(LOOPBACK.bind.host, LOOPBACK.bind.port))
        server.start()
        async with httpx.AsyncClient(trust_env=False, timeout=120) as client:
            request = asyncio.create_task(client.get(f"http://{server.address}/"))
            await asked.wait()
            await asyncio.wait_for(server.stop(timeout_s=0.3), 100)
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)

    asyncio.run(scenario())


def test_a_server_that_never_started_can_be_stopped() -> None:
    server = RestServer(hello, LOOPBACK, listening_on(LOOPBACK.bind.host, LOOPBACK.bind.port))
    asyncio.run(server.stop())
    assert server.address.host == LOOPBACK.bind.host


async def world(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"world"})


def of_one_socket(listening: socket.socket, app: ASGIApp, settings: RestSettings = LOOPBACK) -> RestServer:
    """A server with a descriptor of its own, as each configuration gets one."""
    return RestServer(app, settings, listening.dup())


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Return the response to a request; raises if the connection is reset or ends."""
    writer.write(b"PUT / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    while True:  # in chunks
        size = int(await reader.readuntil(b"\r\n"), 16)
        body = await reader.readexactly(size + 2)
        if not size:
            return head
        head += body


@pytest.mark.parametrize("turns", range(6))
def test_no_new_connection_is_reset_when_a_server_is_replaced(turns: int) -> None:
    """Whatever the loop has done with it by then."""

    async def scenario() -> None:
        listening = listening_on(LOOPBACK.bind.host)
        before, after = of_one_socket(listening, hello), of_one_socket(listening, world)
        before.start()
        await asyncio.sleep(0)
        client = socket.create_connection(listening.getsockname())
        for _ in range(turns):
            await asyncio.sleep(0)
        after.start(before)
        stopping = asyncio.create_task(before.stop())
        streams = await asyncio.open_connection(sock=client)
        answer = await ask(*streams)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"world" in answer
        await stopping
        assert b"world" in await ask(*streams)
        streams[1].close()
        await after.stop()
        listening.close()

    asyncio.run(scenario())


def test_an_idle_connection_goes_on_at_the_next_server() -> None:
    """Its client can't know of the change, so its next request would meet a reset."""

    async def scenario() -> None:
        listening = listening_on(LOOPBACK.bind.host)
        servers = [of_one_socket(listening, hello)]
        servers[0].start()
        streams = await asyncio.open_connection(*listening.getsockname())
        assert b"hello" in await ask(*streams)
        for app, body in ((world, b"world"), (hello, b"hello")):
            servers.append(of_one_socket(listening, app))
            servers[-1].start(servers[-2])
            await servers[-2].stop()
            answer = await ask(*streams)
            assert body in answer
            assert b"connection: close" not in answer
        # A server that is not replaced ends it.
        await servers[-1].stop()
        assert await streams[0].read() == b""
        streams[1].close()
        listening.close()

    asyncio.run(scenario())


def test_a_connection_to_an_address_that_was_left_ends_after_its_next_response() -> None:
    async def scenario() -> None:
        listening, other = listening_on(LOOPBACK.bind.host), listening_on(LOOPBACK.bind.host)
        before = of_one_socket(listening, hello)
        before.start()
        streams = await asyncio.open_connection(*listening.getsockname())
        assert b"hello" in await ask(*streams)
        settings = RestSettings(bind=HostPort(host=LOOPBACK.bind.host, port=other.getsockname()[1]))
        after = of_one_socket(other, world, settings)
        after.start(before)
        await before.stop()
        answer = await ask(*streams)
        assert b"world" in answer
        assert b"connection: close" in answer
        assert await streams[0].read() == b""
        streams[1].close()
        await after.stop()
        listening.close()
        other.close()

    asyncio.run(scenario())


def test_a_request_that_has_arrived_is_answered_by_a_server_that_stops() -> None:
    async def scenario() -> None:
        server = RestServer(hello, LOOPBACK, listening_on(LOOPBACK.bind.host))
        server.start()
        client = socket.create_connection((server.address.host, server.address.port))
        reader, writer = await asyncio.open_connection(sock=client)
        assert b"hello" in await ask(reader, writer)
        client.send(b"PUT / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n")
        await server.stop()
        assert b"hello" in await reader.read()
        writer.close()

    asyncio.run(scenario())
