"""Relays that share a port have as many connections as each other."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from collections.abc import Iterator

import pytest

from receiver.gateway.listeners import port
from receiver.gateway.listeners.port import Port
from receiver.gateway.spread import Spread
from receiver.supervisor.shared_counts import SharedCounts
from tests.testbed.ports import LOOPBACK, listening_on
from tests.unit.gateway.support import eventually, on_loop


class Relay:
    """A relay that accepts clients on a socket that it shares.

    Attributes:
        clients: The sockets that it has accepted.
    """

    def __init__(self, counts: SharedCounts, listening: socket.socket) -> None:
        self.clients: list[socket.socket] = []
        self.counts = counts.claim()
        self.spread = Spread(self.counts)
        self.port = Port(
            listening.dup(),
            self.spread,
            on_client=self._take,
            on_out_of_files=lambda error: pytest.fail(str(error)),
            on_closed=lambda: pytest.fail("nobody closes the port"),
        )

    def _take(self, client: socket.socket, _address: str, _port: int) -> None:
        self.clients.append(client)
        self.spread.add(1)

    def open(self) -> None:
        self.spread.start()
        self.port.open()

    def lose(self, count: int) -> None:
        for _ in range(count):
            self.clients.pop().close()
            self.spread.add(-1)


@contextlib.contextmanager
def relays(count: int) -> Iterator[tuple[list[Relay], tuple[str, int]]]:
    """Relays that share a port, and its address."""
    counts = SharedCounts()
    with listening_on(LOOPBACK) as listening:
        found = [Relay(counts, listening) for _ in range(count)]
        try:
            yield found, listening.getsockname()
        finally:
            for relay in found:
                relay.port.end()
                relay.lose(len(relay.clients))


async def connect(address: tuple[str, int], relays_: list[Relay], count: int) -> None:
    """Open connections one after the other; the system closes them."""
    for _ in range(count):
        before = sum(len(relay.clients) for relay in relays_)
        with socket.create_connection(address):

            def taken(before: int = before) -> bool:
                return sum(len(relay.clients) for relay in relays_) > before

            await eventually(taken, "a relay that takes the client")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client waits so long that a relay takes it in another one's place, on any machine."""
    monkeypatch.setattr(port, "PATIENCE_S", 3600.0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("count", [2, 4, 16])
def test_connections_are_spread_evenly(count: int) -> None:
    async def main() -> None:
        with relays(count) as (all_relays, address):
            for relay in all_relays:
                relay.open()
            await connect(address, all_relays, 4 * count)
            assert Counter(len(relay.clients) for relay in all_relays) == {4: count}

    on_loop(main())


@pytest.mark.usefixtures("patient")
def test_a_new_relay_gets_clients_until_it_has_as_many() -> None:
    async def main() -> None:
        with relays(2) as ((first, second), address):
            first.open()
            await connect(address, [first, second], 6)
            second.open()
            await connect(address, [first, second], 6)
            assert [len(first.clients), len(second.clients)] == [6, 6]
            first.lose(3)
            await connect(address, [first, second], 3)
            assert [len(first.clients), len(second.clients)] == [6, 6]

    on_loop(main())


def test_a_relay_that_takes_no_clients_holds_none_up() -> None:
    async def main() -> None:
        with relays(2) as ((first, hangs), address):
            first.open()
            hangs.spread.start()  # and it never looks at the port
            await connect(address, [first, hangs], 5)
            assert len(first.clients) == 5

    on_loop(main())


def test_nobody_waits_for_a_relay_that_has_ended() -> None:
    counts = SharedCounts()
    stays, drains, dies = (Spread(counts.claim()) for _ in range(3))
    for spread in (stays, drains, dies):
        spread.start()
    stays.add(10)
    assert stays.leaves_next()
    drains.stop()
    assert stays.leaves_next()
    counts.release(dies._counts)
    assert not stays.leaves_next()
    drains.add(-1)  # connections of a relay that drains end, and it still takes none
    assert not stays.leaves_next()


def test_a_relay_may_have_a_few_more_than_another() -> None:
    counts = SharedCounts()
    ours, theirs = Spread(counts.claim()), Spread(counts.claim())
    ours.start()
    theirs.start()
    theirs.add(640)
    ours.add(660)
    assert not ours.leaves_next()
    ours.add(1)
    assert ours.leaves_next()


def test_nobody_waits_for_a_slow_relay_until_it_takes_a_client() -> None:
    counts = SharedCounts()
    ours, theirs, slow = (Spread(counts.claim()) for _ in range(3))
    for spread in (ours, theirs, slow):
        spread.start()
    ours.add(5)
    theirs.add(5)
    assert ours.leaves_next()
    ours.others_are_slow()
    assert not ours.leaves_next()
    ours.add(1)
    assert ours.leaves_next()  # the next one is for a third relay, which is not slow
    theirs.add(1)
    assert not ours.leaves_next()
    slow.add(1)
    assert ours.leaves_next()
