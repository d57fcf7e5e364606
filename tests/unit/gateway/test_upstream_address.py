"""Connecting to the broker by numeric address or by name."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from receiver.gateway.handshake import HandshakeTurns
from receiver.gateway.upstream.address import UpstreamAddress
from receiver.settings.hostport import HostPort, HostPorts
from receiver.settings.listeners import ListenerSettings
from tests.testbed.ports import LOOPBACK, free_port
from tests.unit.gateway.support import on_loop


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts that were looked up, by the system's own resolver."""
    seen: list[str] = []
    system = socket.getaddrinfo

    def look_up(host: str, *args: Any, **options: Any) -> Any:
        if not options.get("flags", args[4] if len(args) > 4 else 0) & socket.AI_NUMERICHOST:
            seen.append(host)
        return system(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return seen


def to(host: str, port: int) -> UpstreamAddress:
    settings = ListenerSettings(
        name="CLIENT",
        bind=HostPort(host=LOOPBACK, port=free_port()),
        upstream=HostPorts((HostPort(host=host, port=port),)),
    )
    return UpstreamAddress(settings, HandshakeTurns())


@pytest.mark.parametrize(("host", "expected"), [(LOOPBACK, []), ("localhost", ["localhost"])])
def test_only_names_are_resolved_and_once_for_concurrent_connections(
    lookups: list[str], host: str, expected: list[str]
) -> None:
    async def main() -> None:
        with socket.create_server((LOOPBACK, 0)) as listening:
            port = listening.getsockname()[1]
            address = to(host, port)
            for _ in range(2):
                for broker in await asyncio.gather(*(address.connect() for _ in range(5))):
                    with broker:
                        assert broker.getpeername() == (LOOPBACK, port)

    on_loop(main())
    assert lookups == expected


def test_a_name_is_looked_up_again_after_a_while(lookups: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receiver.gateway.upstream.address._LOOKUP_TTL_S", 0.0)

    async def main() -> None:
        with socket.create_server((LOOPBACK, 0)) as listening:
            address = to("localhost", listening.getsockname()[1])
            for _ in range(3):
                (await address.connect()).close()

    on_loop(main())
    assert lookups == ["localhost"] * 3


@pytest.mark.parametrize("host", [LOOPBACK, "localhost"])
def test_a_closed_port_is_refused(host: str) -> None:
    async def main() -> None:
        with pytest.raises(ConnectionRefusedError):
            await to(host, free_port()).connect()

    on_loop(main())


def test_an_unknown_name_fails_every_waiting_connection(lookups: list[str]) -> None:
    async def main() -> None:
        address = to("nobody.invalid", 9092)
        problems = await asyncio.gather(*(address.connect() for _ in range(3)), return_exceptions=True)
        assert all(isinstance(problem, socket.gaierror) for problem in problems)
        assert len({str(problem) for problem in problems}) == 1

    on_loop(main())
    assert lookups == ["nobody.invalid"]
