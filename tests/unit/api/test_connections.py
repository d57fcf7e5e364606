"""The server on a real socket: response headers, deadlines and limits on connections."""

import asyncio
import json
import socket
import struct
import time
from typing import Any

import httpx
import pytest
import structlog

from receiver.api import connection, server
from receiver.api.connection_rate import MAX_DELAY_S, ConnectionRate
from receiver.api.console.assets import console
from receiver.api.routes.console import POLICY
from receiver.settings.rest import RestSettings
from tests.unit.api.conftest import EDITOR_TOKEN, Api, bearer, problem_of, token_settings
from tests.unit.api.test_authorization import BODY, routes_of
from tests.unit.gateway.support import eventually

SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
}


@pytest.fixture
def guarded(api: Api) -> Api:
    api.settings = token_settings()
    return api


@pytest.fixture
def local(api: Api) -> Api:
    api.settings = RestSettings.model_validate({"bind": "127.0.0.1:0"})
    return api


async def send(port: int, *parts: bytes, pause_s: float = 0.0) -> bytes:
    """Send bytes and read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await asyncio.sleep(pause_s)
        return await asyncio.wait_for(reader.read(), 120)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_every_answer_has_the_security_headers(guarded: Api) -> None:
    found = routes_of(guarded)

    async def scenario() -> None:
        async with guarded.serving() as running, httpx.AsyncClient(trust_env=False, timeout=120) as client:
            api_routes = [
                route for route in found if route[1] != "/" and not route[1].startswith("/console/")
            ]
            for method, path in [*api_routes, ("GET", "/nothing"), ("PATCH", "/livez")]:
                for headers in ({}, bearer(EDITOR_TOKEN), {"x": "y" * 20_000}):
                    answer = await client.request(
                        method,
                        f"http://{running.address}{path}",
                        headers=headers,
                        json=BODY if method == "PUT" else None,
                    )
                    shown = {name: answer.headers.get_list(name) for name in SECURITY_HEADERS}
                    assert shown == {name: [value] for name, value in SECURITY_HEADERS.items()}, path
                    assert "server" not in answer.headers
                    assert "strict-transport-security" not in answer.headers
                    assert len(answer.headers.get_list("date")) == 1
            for path in ("/", f"/console/{console().build}/app.js"):
                answer = await client.get(f"http://{running.address}{path}")
                assert answer.headers.get_list("content-security-policy") == [POLICY]
                assert len(answer.headers.get_list("cache-control")) == 1
                assert answer.headers["x-frame-options"] == "DENY"

    asyncio.run(scenario())


def test_error_responses_have_the_security_headers(local: Api) -> None:
    def broken(accept: str | None) -> tuple[bytes, str]:
        raise RuntimeError("a mistake")

    local.exposition = broken

    async def scenario() -> None:
        async with local.serving() as running, httpx.AsyncClient(trust_env=False, timeout=120) as client:
            url = f"http://{running.address}"
            host = await client.get(f"{url}/livez", headers={"host": "attacker.example"})
            problem_of(host, 421)
            failed = await client.get(f"{url}/metrics")
            problem_of(failed, 500)
            for answer in (host, failed):
                assert SECURITY_HEADERS.items() <= dict(answer.headers).items()
            raw = await send(running.address.port, b"nonsense\r\n\r\n")
            head, _, body = raw.partition(b"\r\n\r\n")
            assert json.loads(body)["status"] == 400
            lines = [line.partition(": ") for line in head.decode().lower().split("\r\n")[1:]]
            assert {name: value.lower() for name, value in SECURITY_HEADERS.items()}.items() <= {
                name: value for name, _, value in lines
            }.items()

    with structlog.testing.capture_logs() as written:
        asyncio.run(scenario())
    assert [line["event"] for line in written] == [
        "REST request failed",
        "invalid HTTP request on the REST API",
    ]


def test_invalid_requests_are_logged_at_a_limited_rate(local: Api) -> None:
    async def scenario() -> None:
        async with local.serving() as running:
            for _ in range(20):
                await send(running.address.port, b"nonsense\r\n\r\n")
            # In the middle of a request there is nothing to answer.
            put = b"PUT /v1/subscriptions/s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            assert await send(running.address.port, put + b"transfer-encoding: chunked\r\n\r\nzz\r\n") == b""

    with structlog.testing.capture_logs() as written:
        asyncio.run(scenario())
    nonsense = [line for line in written if line["event"] == "invalid HTTP request on the REST API"]
    assert len(nonsense) == 1


def test_too_long_headers_in_pieces_are_refused(local: Api) -> None:
    async def scenario() -> None:
        async with local.serving() as running:
            parts = [b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx: ", *[b"y" * 4000] * 5]
            answer = await send(running.address.port, *parts, pause_s=0.02)
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
            assert json.loads(body)["status"] == 431

    asyncio.run(scenario())


def test_request_smuggling_is_refused_and_the_connection_closed(guarded: Api) -> None:
    async def scenario() -> None:
        async with guarded.serving() as running:
            head = f"HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {EDITOR_TOKEN}\r\n".encode()
            inner = b"DELETE /v1/subscriptions/s " + head + b"\r\n"
            outer = b"PUT /v1/subscriptions/s " + head + b"content-type: application/json\r\n"
            outer += b"transfer-encoding: chunked\r\ncontent-length: %d\r\n\r\n0\r\n\r\n" % (5 + len(inner))
            answer = await send(running.address.port, outer + inner)
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert answer.count(b"HTTP/1.1 ") == 1

    asyncio.run(scenario())


def test_a_reset_connection_is_never_audited_without_its_address(guarded: Api) -> None:
    delete = "DELETE /v1/subscriptions/s HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
    delete += f"authorization: Bearer {EDITOR_TOKEN}\r\n\r\n"

    async def scenario() -> None:
        async with guarded.serving() as running:
            for _ in range(5):
                with socket.create_connection(("127.0.0.1", running.address.port)) as gone:
                    gone.sendall(delete.encode())
                    # Closing resets.
                    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            assert (await send(running.address.port, delete.encode())).startswith(b"HTTP/1.1 404")

    with structlog.testing.capture_logs() as lines:
        asyncio.run(scenario())
    addresses = [line["source_address"] for line in lines if line.get("logger") == "receiver.audit"]
    assert set(addresses) == {"127.0.0.1"}


def test_an_unauthenticated_connection_gets_one_response(guarded: Api) -> None:
    def asked(path: str, token: str = "") -> bytes:
        shown = f"authorization: Bearer {token}\r\n" if token else ""
        return f"GET {path} HTTP/1.1\r\nhost: a\r\n{shown}\r\n".encode()

    async def scenario() -> None:
        async with guarded.serving() as running:
            for request in (asked("/livez"), asked("/v1/clients"), asked("/v1/clients", "wrong")):
                answers = await send(running.address.port, request * 5)
                assert answers.count(b"HTTP/1.1 ") == 1
                assert b"connection: close" in answers
            closing = asked("/v1/clients", EDITOR_TOKEN)
            last = closing[:-2] + b"connection: close\r\n\r\n"
            assert (await send(running.address.port, closing * 4 + last)).count(b"HTTP/1.1 200") == 5

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (b"GET /livez HTTP/1.1\r\n",),
        tuple(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n") + (b"x: y\r\n",) * 200,
        (b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n",) + (b"G", b"E", b"T", b" ") * 50,
    ],
)
def test_a_slow_request_is_cut_off(local: Api, monkeypatch: pytest.MonkeyPatch, parts: Any) -> None:
    monkeypatch.setattr(connection, "_REQUEST_S", 0.3)
    parts = tuple(bytes([part]) if isinstance(part, int) else part for part in parts)

    async def scenario() -> None:
        async with local.serving() as running:
            began = time.monotonic()
            reader, writer = await asyncio.open_connection("127.0.0.1", running.address.port)
            cut_off = asyncio.create_task(reader.read())
            for part in parts:
                if cut_off.done():
                    break
                writer.write(part)
                await asyncio.sleep(0.01)
            await asyncio.wait({cut_off}, timeout=100)
            assert cut_off.done()
            assert 0.2 < time.monotonic() - began < 100
            cut_off.exception()
            writer.close()

    asyncio.run(scenario())


def test_a_response_that_is_not_read_is_cut_off(local: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for deadline in ("_REQUEST_S", "_READ_S", "_ANSWER_S"):
        monkeypatch.setattr(connection, deadline, 0.3)

    async def scenario() -> None:
        async with local.serving() as running:
            _, writer = await asyncio.open_connection("127.0.0.1", running.address.port, limit=1)
            asked = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"
            writer.write(asked * 2000)
            await eventually(lambda: len(running._open) == 1, "the connection")
            await eventually(lambda: not running._open, "its end")
            writer.close()

    asyncio.run(scenario())


def test_an_idle_connection_takes_the_next_request(local: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for deadline in ("_REQUEST_S", "_READ_S"):
        monkeypatch.setattr(connection, deadline, 0.6)
    request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"

    async def scenario() -> None:
        async with local.serving() as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.address.port)
            for _ in range(3):
                writer.write(request)
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 120)
                assert head.startswith(b"HTTP/1.1 200 ")
                (length,) = [line for line in head.split(b"\r\n") if line.startswith(b"content-length: ")]
                await reader.readexactly(int(length.removeprefix(b"content-length: ")))
                await asyncio.sleep(0.9)
            writer.close()

    asyncio.run(scenario())


def test_an_idle_connection_ends(local: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_S", 0.1)

    async def scenario() -> None:
        async with local.serving() as running:
            request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
            assert (await send(running.address.port, request)).startswith(b"HTTP/1.1 200 ")

    asyncio.run(scenario())


def test_silent_connections_do_not_keep_others_out(local: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MAX_CONNECTIONS", 20)

    async def scenario() -> None:
        async with local.serving() as running, httpx.AsyncClient(trust_env=False, timeout=120) as client:
            silent = [await asyncio.open_connection("127.0.0.1", running.address.port) for _ in range(60)]
            for _ in range(5):
                assert (await client.get(f"http://{running.address}/livez")).status_code == 200
            assert len(running._open) <= 20
            for _, writer in silent:
                writer.close()

    asyncio.run(scenario())


def test_when_all_connections_are_busy_a_new_one_is_closed(
    local: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MAX_CONNECTIONS", 3)
    begun = b"PUT /v1/subscriptions/s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"

    async def scenario() -> None:
        async with local.serving() as running:
            busy = [await asyncio.open_connection("127.0.0.1", running.address.port) for _ in range(3)]
            for _, writer in busy:
                writer.write(begun + b"content-length: 10\r\n\r\n")
            opened = running._open
            await eventually(
                lambda: [item.idle_since for item in opened.values()] == [None] * 3, "three busy connections"
            )
            assert await send(running.address.port, b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n") == b""
            for _, writer in busy:
                writer.close()

    asyncio.run(scenario())


def test_a_source_that_opens_too_many_connections_waits() -> None:
    rate = ConnectionRate()
    delays = [rate.delay("10.0.0.1", 100.0) for _ in range(70)]
    assert delays[:50] == [0.0] * 50
    assert delays[-1] == pytest.approx(1.0)
    assert rate.delay("10.0.0.2", 100.0) == 0.0
    assert rate.delay("10.0.0.1", 200.0) == 0.0
    assert [rate.delay(f"2001:db8::{n:x}", 100.0) for n in range(70)][-1] == pytest.approx(1.0)
    assert [rate.delay("::ffff:10.0.0.3", 100.0) for _ in range(60)][-1] == pytest.approx(0.5)
    assert rate.delay("10.0.0.3", 100.0) > 0.5
    for _ in range(100_000):
        rate.delay("10.0.0.4", 100.0)
    # The source is refused while it floods, and not for hours afterwards.
    assert rate.delay("10.0.0.4", 100.0) > MAX_DELAY_S
    assert rate.delay("10.0.0.4", 100.1) <= MAX_DELAY_S
    assert rate.delay("10.0.0.4", 110.0) == 0.0
    for number in range(5000):
        rate.delay(f"10.1.{number // 256}.{number % 256}", 300.0)
    assert len(rate._used_until) <= 1024


def test_guessing_is_slow_and_others_are_served(guarded: Api) -> None:
    async def scenario() -> None:
        async with guarded.serving() as running:
            guess = b"GET /v1/clients HTTP/1.1\r\nhost: a\r\nauthorization: Bearer wrong\r\n\r\n"
            began = time.monotonic()
            answers = await asyncio.gather(*(send(running.address.port, guess) for _ in range(80)))
            assert sum(answer.startswith(b"HTTP/1.1 401") for answer in answers) == 80
            assert time.monotonic() - began > 1.0

    asyncio.run(scenario())
    assert len(guarded.refused) == 80
