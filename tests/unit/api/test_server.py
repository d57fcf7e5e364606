"""The REST server on a real socket: start, stop and the error when it cannot start."""

import asyncio
import signal

import httpx
import pytest
from starlette.types import Receive, Scope, Send

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
