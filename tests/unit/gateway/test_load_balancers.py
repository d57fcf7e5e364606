"""A client's address behind a load balancer that sends PROXY headers."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
from structlog.testing import capture_logs

from receiver.gateway.listeners import admission
from receiver.settings.hostport import HostPort
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.scripted_broker import ScriptedBroker, produce_frame
from tests.unit.gateway.admission import (
    ELSEWHERE,
    PROXIED,
    asked,
    is_served,
    nobody_is_counted,
    over_tls,
    refusals,
    ssl_settings,
)
from tests.unit.gateway.support import (
    Gate,
    at_end,
    connected,
    eventually,
    is_reset,
    on_loop,
    opened,
    receive_frame,
    send,
)
from tests.unit.gateway.test_proxy_protocol import INET, INET6, V4, V6, v2
from tests.unit.gateway.tls import Certificates

HEADERS = {
    "v1": (b"PROXY TCP4 192.0.2.1 10.0.0.1 56324 443\r\n", V4),
    "v1 of IPv6": (b"PROXY TCP6 2001:db8::1 fd00::1 56324 443\r\n", V6),
    "v2": (v2(), V4),
    "v2 of IPv6": (v2(INET6, family=0x21), V6),
    "v2 with a TLV": (v2(INET, b"\x04\0\x02xy"), V4),
    "v1 UNKNOWN": (b"PROXY UNKNOWN\r\n", None),
    "LOCAL": (v2(b"", command=0x20, family=0), None),
}


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("arrival", ["whole", "with the request", "byte by byte"])
def test_a_load_balancers_header_sets_the_client_address(
    broker: ScriptedBroker, name: str, arrival: str
) -> None:
    header, source = HEADERS[name]

    async def main() -> None:
        gate = Gate()
        async with (
            opened(gate.listener(broker.port, **PROXIED)) as listener,
            connected(listener) as client,
        ):
            request = produce_frame(1, b"echo")
            if arrival == "with the request":
                await send(client, header + request)
            elif arrival == "whole":
                await send(client, header)
                await asyncio.sleep(0.01)
                await send(client, request)
            else:
                for byte in header + request:
                    await send(client, bytes([byte]))
                    await asyncio.sleep(0.0005)
            assert (await receive_frame(client)).endswith(b"echo")
            (entry,) = gate.registry.snapshot()
            assert (entry.source_address, entry.source_port) == (source or client.getsockname())

    on_loop(main())


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_goes_before_tls(certificates: Certificates, broker: ScriptedBroker, name: str) -> None:
    header, source = HEADERS[name]

    async def main() -> None:
        gate = Gate()
        settings = {**PROXIED, **ssl_settings(certificates)}
        async with (
            opened(gate.listener(broker.port, **settings)) as listener,
            over_tls(listener, certificates.client_context(), first=header) as peer,
        ):
            assert await is_served(peer)
            (entry,) = gate.registry.snapshot()
            assert (entry.source_address, entry.source_port) == (source or peer.end.getsockname())

    on_loop(main())


@pytest.mark.parametrize(
    "header", [b"PROXY TCP4 192.0.2.1 10.0.0.1 1 2\r\nbehind", b"P", v2() + b"behind", b"\r"]
)
def test_a_header_from_elsewhere_is_refused(broker: ScriptedBroker, header: bytes) -> None:
    async def main() -> None:
        gate = Gate()
        async with opened(gate.listener(broker.port, **PROXIED)) as listener:
            with capture_logs() as log, contextlib.suppress(ConnectionResetError):
                async with connected(listener, ELSEWHERE) as client:
                    await send(client, header)
                    assert not await at_end(client)
            (entry,) = refusals(log)
            assert entry["reason"] == "proxy_protocol"
            assert entry["problem"].startswith(f"PROXY header from {ELSEWHERE}, which is in no network of")
        assert gate.value("connections_refused_total", listener="CLIENT", reason="proxy_protocol") == 1
        assert asked(broker) == 0

    on_loop(main())


def test_a_client_from_elsewhere_is_a_client_as_any_other(
    certificates: Certificates, broker: ScriptedBroker
) -> None:
    async def main() -> None:
        gate = Gate()
        async with (
            opened(gate.listener(broker.port, **PROXIED)) as listener,
            connected(listener, ELSEWHERE) as client,
        ):
            await send(client, produce_frame(1, b"echo"))
            assert (await receive_frame(client)).endswith(b"echo")
            (entry,) = gate.registry.snapshot()
            assert entry.source_address == ELSEWHERE

    on_loop(main())


@pytest.mark.parametrize(
    ("say", "reason"),
    [
        (produce_frame(1), "proxy_protocol"),
        (b"PROXY nonsense\r\n", "proxy_protocol"),
        (v2(length=5000), "proxy_protocol"),
        (b"", "handshake_timeout"),
        (v2()[:-1], "handshake_timeout"),
    ],
)
def test_a_load_balancer_has_to_send_a_header(broker: ScriptedBroker, say: bytes, reason: str) -> None:
    async def main() -> None:
        gate = Gate()
        settings = {**PROXIED, "handshake_timeout_ms": 150}
        async with opened(gate.listener(broker.port, **settings)) as listener:
            assert await is_reset(listener, say)
        assert gate.value("connections_refused_total", listener="CLIENT", reason=reason) == 1
        assert nobody_is_counted(gate)
        assert asked(broker) == 0

    on_loop(main())


def test_the_oldest_without_a_header_makes_room(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MAX_WITHOUT_HEADER", 2)

    async def main() -> None:
        gate = Gate()
        async with (
            opened(gate.listener(broker.port, **PROXIED)) as listener,
            connected(listener) as oldest,
            connected(listener) as second,
            connected(listener) as third,
        ):
            assert not await at_end(oldest)
            for client in (second, third):
                await send(client, v2() + produce_frame(1, b"echo"))
                assert (await receive_frame(client)).endswith(b"echo")
        assert gate.value("connections_refused_total", listener="CLIENT", reason="limit") == 1
        assert nobody_is_counted(gate)

    on_loop(main())


@pytest.mark.parametrize("source", [LOOPBACK, ELSEWHERE])
def test_silent_clients_leave_room_in_a_full_listener(broker: ScriptedBroker, source: str) -> None:
    async def main() -> None:
        gate = Gate()
        settings = {**PROXIED, "max_connections": 2}
        header = v2() if source == LOOPBACK else b""
        async with (
            opened(gate.listener(broker.port, **settings)) as listener,
            connected(listener) as oldest,
            connected(listener) as second,
            connected(listener, source) as client,
        ):
            assert not await at_end(oldest)
            await send(client, header + produce_frame(1, b"echo"))
            assert (await receive_frame(client)).endswith(b"echo")
            await send(second, v2() + produce_frame(1, b"echo"))
            assert (await receive_frame(second)).endswith(b"echo")
            # Nobody waits for a header now, so the listener is full.
            assert await is_reset(listener, v2())

    on_loop(main())


def test_a_silent_client_from_elsewhere_is_counted_at_once(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = Gate()
        async with opened(gate.listener(broker.port, **PROXIED)) as listener:
            async with connected(listener, ELSEWHERE):
                await eventually(lambda: gate.limits._sources._connections == {ELSEWHERE: 1}, "a count")
            await eventually(lambda: nobody_is_counted(gate), "nobody is counted")

    on_loop(main())


def test_a_header_that_ends_in_its_middle_is_an_end(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = Gate()
        async with (
            opened(gate.listener(broker.port, **PROXIED)) as listener,
            connected(listener) as client,
        ):
            await send(client, v2()[:20])
            client.shutdown(socket.SHUT_WR)
            assert not await at_end(client)
            assert gate.value("connections_refused_total", listener="CLIENT", reason="gone") == 1

    on_loop(main())


def test_a_listener_for_both_families_shows_ipv4_as_ipv4(broker: ScriptedBroker) -> None:
    async def main() -> None:
        gate = Gate()
        bind = HostPort(host="::", port=free_port())
        async with opened(gate.listener(broker.port, bind=bind, **PROXIED)):
            with socket.socket() as client:
                client.setblocking(False)
                await asyncio.get_running_loop().sock_connect(client, (LOOPBACK, bind.port))
                await send(client, v2(b"", command=0x20, family=0) + produce_frame(1, b"echo"))
                assert (await receive_frame(client)).endswith(b"echo")
                (entry,) = gate.registry.snapshot()
                assert entry.source_address == LOOPBACK

    on_loop(main())
