"""Relays close and open one port, each for all of them, and clients are whole afterwards."""

from __future__ import annotations

import socket

import pytest

from receiver.gateway.listeners.port import Port
from receiver.gateway.spread import Spread
from receiver.supervisor.shared_counts import SharedCounts
from tests.testbed.ports import LOOPBACK, listening_on
from tests.unit.gateway.support import eventually, on_loop


def test_a_client_is_open_after_all_relays_have_closed_the_port() -> None:
    on_loop(_close_and_open())


async def _close_and_open() -> None:
    counts = SharedCounts()
    clients: list[socket.socket] = []
    closed: list[bool] = []
    with listening_on(LOOPBACK) as listening:
        ports = [
            Port(
                listening.dup(),
                Spread(counts.claim()),
                on_client=lambda client, *_: clients.append(client),
                on_out_of_files=lambda error: pytest.fail(str(error)),
                on_closed=lambda: closed.append(True),
            )
            for _ in range(2)
        ]
        for port in ports:
            port.open()
        # Both see that the broker is away, before either sees that the port is closed.
        for port in ports:
            port.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(listening.getsockname())
        ports[0].open()
        with socket.create_connection(listening.getsockname()):
            await eventually(lambda: bool(clients), "the client")
            clients[0].setblocking(False)
            # It has sent nothing, and has not closed.
            with pytest.raises(BlockingIOError):
                clients[0].recv(1)
        clients[0].close()
        for port in ports:
            port.end()
    assert closed == []
