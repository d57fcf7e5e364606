"""A peer's share of an event loop turn is bounded, whatever it sends."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import Counter
from collections.abc import Callable

import pytest

from receiver.brokers.upstream import Upstream
from receiver.event_loop import DirectEventLoop, running_loop
from receiver.gateway.connection.closing import CloseReason
from receiver.gateway.connection.direction import Direction
from receiver.gateway.connection.tls_direction import TlsDirection
from receiver.gateway.connection.tls_socket import MAX_RECORDS_IN_A_READ, MAX_RECORDS_WITHOUT_DATA, wrap
from receiver.gateway.handshake import HandshakeTurns
from receiver.session.session import HEADER_BYTES_IN_A_TURN, Session
from receiver.telemetry.identity import ClientIdentity
from receiver.turns import SHARE_S, Share
from tests.testbed.scripted_broker import RANGES, ScriptedBroker, framed, produce_frame
from tests.testbed.tls13 import Tls13Client
from tests.unit.gateway.support import (
    Gate,
    Relayed,
    connected,
    on_loop,
    opened,
    pair,
    receive,
    receive_frame,
    relayed,
    send,
    system_buffers,
)
from tests.unit.gateway.tls import Certificates

UNKNOWN_KEY = framed(struct.pack(">hhi", 30_000, 0, 7))


class Ticks:
    """A clock that only callbacks move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def ticking_loop(ticks: Ticks) -> DirectEventLoop:
    """The running loop, whose turns have this clock from now on."""
    loop = running_loop()
    loop._direct.turns._clock = ticks
    return loop


def busy(ticks: Ticks, calls: list[str], name: str, seconds: float) -> Callable[[], bool]:
    """A callback that always has more to do."""

    def work() -> bool:
        calls.append(name)
        ticks.now += seconds
        return True

    return work


async def until(condition: Callable[[], bool]) -> None:
    """Give the event loop one turn after the other."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("ten thousand turns were not enough")


@contextlib.contextmanager
def readable_sockets(count: int):  # type: ignore[no-untyped-def]
    pairs = [pair() for _ in range(count)]
    for _, other in pairs:
        other.send(b"x")
    try:
        yield [item for item, _ in pairs]
    finally:
        for item, other in pairs:
            item.close()
            other.close()


def test_a_peer_with_many_connections_has_no_more_of_a_turn_than_one() -> None:
    ticks, calls = Ticks(), list[str]()

    async def main() -> None:
        loop = ticking_loop(ticks)
        hostile, innocent = Share(), Share()
        with readable_sockets(41) as sides:
            for side in sides[1:]:
                loop.set_direct_reader(side.fileno(), busy(ticks, calls, "hostile", SHARE_S / 4), hostile)
            loop.set_direct_reader(sides[0].fileno(), busy(ticks, calls, "innocent", 0.0), innocent)
            await until(lambda: calls.count("innocent") >= 50)
            for side in sides:
                loop.set_direct_reader(side.fileno(), None)
        assert loop.deferred > 0

    on_loop(main())
    # In each turn the hostile peer has its share: four calls. The innocent one is called in each
    # turn.
    between, run = Counter[int](), 0
    for name in calls:
        if name == "hostile":
            run += 1
        else:
            between[run] += 1
            run = 0
    assert max(between) <= 8


def test_the_connections_of_a_peer_take_turns() -> None:
    ticks, calls = Ticks(), list[str]()

    async def main() -> None:
        loop, share = ticking_loop(ticks), Share()
        with readable_sockets(10) as sides:
            for number, side in enumerate(sides):
                loop.set_direct_reader(side.fileno(), busy(ticks, calls, str(number), SHARE_S), share)
            await until(lambda: len(calls) >= 100)
            for side in sides:
                loop.set_direct_reader(side.fileno(), None)

    on_loop(main())
    assert set(Counter(calls[:100]).values()) <= {9, 10, 11}


def test_a_long_callback_of_one_peer_is_followed_by_the_others() -> None:
    ticks, calls = Ticks(), list[str]()

    async def main() -> None:
        loop = ticking_loop(ticks)
        with readable_sockets(3) as sides:
            for name, item in zip("abc", sides, strict=True):
                seconds = 50 * SHARE_S if name == "a" else 0.0
                loop.set_direct_reader(item.fileno(), busy(ticks, calls, name, seconds), Share())
            await until(lambda: len(calls) >= 30)
            for side in sides:
                loop.set_direct_reader(side.fileno(), None)

    on_loop(main())
    assert set(Counter(calls[:30]).values()) <= {9, 10, 11}


# -- TLS records -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def tls13_relayed(certificates: Certificates):  # type: ignore[no-untyped-def]
    """A relay, its TLS socket, and a client that writes its records itself."""
    outer, inner = pair()
    tls = wrap(certificates.listener_context(), inner, server_side=True)
    client = Tls13Client(certificates.server.ca)
    outer.send(client.shake_hands(b""))
    while not client.is_ready:
        tls.do_handshake()
        await asyncio.sleep(0)
        outer.send(client.shake_hands(outer.recv(1 << 16)))
    await until(lambda: tls.do_handshake() is None)
    wire = Relayed(client=(outer, tls))
    try:
        yield wire, client.records, tls
    finally:
        wire.close()


def test_a_flood_of_key_updates_closes_the_connection(certificates: Certificates) -> None:
    async def main() -> None:
        async with tls13_relayed(certificates) as (wire, records, _):
            flood = b"".join(records.key_update() for _ in range(2_000))
            await send(wire.client, flood)
            assert await wire.reason() is CloseReason.CLIENT_TLS_ERROR
            assert wire.closed is not None
            assert str(wire.closed[1]) == (
                f"more than {MAX_RECORDS_WITHOUT_DATA} records without application data"
            )

    on_loop(main())


def test_key_updates_between_data_are_counted_too(certificates: Certificates) -> None:
    async def main() -> None:
        async with tls13_relayed(certificates) as (wire, records, _):
            with contextlib.suppress(ConnectionError):
                for number in range(MAX_RECORDS_WITHOUT_DATA + 10):
                    await send(wire.client, records.application_data(produce_frame(number)))
                    await send(wire.client, records.key_update(requested=True))
            assert await wire.reason() is CloseReason.CLIENT_TLS_ERROR

    on_loop(main())


def test_empty_records_are_counted_too(certificates: Certificates) -> None:
    async def main() -> None:
        async with tls13_relayed(certificates) as (wire, records, _):
            with contextlib.suppress(ConnectionError):
                for number in range(MAX_RECORDS_WITHOUT_DATA + 10):
                    await send(wire.client, records.application_data(produce_frame(number)))
                    await send(wire.client, records.application_data(b"", padding=number))
            assert await wire.reason() is CloseReason.CLIENT_TLS_ERROR

    on_loop(main())


def test_as_many_key_updates_as_a_client_of_good_will_sends_pass(certificates: Certificates) -> None:
    async def main() -> None:
        async with tls13_relayed(certificates) as (wire, records, _):
            for number in range(MAX_RECORDS_WITHOUT_DATA // 2):
                await send(wire.client, records.key_update(requested=True))
                await send(wire.client, records.application_data(produce_frame(number, b"data")))
                assert (await receive_frame(wire.broker)).endswith(b"data")
            assert wire.closed is None

    on_loop(main())


def test_one_read_takes_a_bounded_number_of_records(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    real = TlsDirection.readable

    def readable(direction: TlsDirection) -> bool:
        before = direction.bytes_read
        again = real(direction)
        taken.append(direction.bytes_read - before)
        return again

    monkeypatch.setattr(TlsDirection, "readable", readable)

    async def main() -> None:
        async with tls13_relayed(certificates) as (wire, records, _):
            data = produce_frame(1, bytes(6_000))
            pieces = [data[at : at + 3] for at in range(0, len(data), 3)]
            sender = asyncio.create_task(
                send(wire.client, b"".join(records.application_data(piece) for piece in pieces))
            )
            assert await receive(wire.broker, len(data)) == data
            await sender

    on_loop(main())
    assert 0 < max(taken) <= 3 * MAX_RECORDS_IN_A_READ


# -- headers ---------------------------------------------------------------------------------------


class Headers:
    """Counts the headers that a session reads in each call of a direction."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.in_a_call: list[int] = []
        count = self.in_a_call
        real_readable = Direction.readable
        real_head = Session._replace_head

        def readable(direction: Direction) -> bool:
            count.append(0)
            return real_readable(direction)

        def replace_head(session: Session, head: bytes, length: int) -> tuple[bytes, bool] | None:
            count[-1] += 1
            return real_head(session, head, length)

        monkeypatch.setattr(Direction, "readable", readable)
        monkeypatch.setattr(Session, "_replace_head", replace_head)


def test_requests_of_unknown_keys_are_soon_looked_at_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = Headers(monkeypatch)

    async def main() -> None:
        async with relayed() as wire:
            data = UNKNOWN_KEY * 20_000
            sender = asyncio.create_task(send(wire.client, data))
            assert await receive(wire.broker, len(data)) == data
            await sender
            assert not wire.session.requests.reads_all_headers

    on_loop(main())
    # As many as come with the first read; the eighth says that no client instance will be named.
    assert sum(headers.in_a_call) <= HEADER_BYTES_IN_A_TURN // len(UNKNOWN_KEY) + 1


class TranslatingGate(Gate):
    """What a gate is with ``kip1313.translate_all``."""

    def make_session(self, identity: ClientIdentity, _: Upstream) -> Session:
        upstream = Upstream(translates=True)
        upstream.learn(RANGES)
        return super().make_session(identity, upstream)


def test_headers_to_be_translated_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = Headers(monkeypatch)

    async def main() -> None:
        async with relayed(TranslatingGate()) as wire:
            data = UNKNOWN_KEY * 20_000
            sender = asyncio.create_task(send(wire.client, data))
            assert await receive(wire.broker, len(data)) == data
            await sender
            large = produce_frame(1, bytes(1_000_000))
            headers.in_a_call.clear()
            sender = asyncio.create_task(send(wire.client, large))
            assert await receive(wire.broker, len(large)) == large
            await sender
            # A large request is not read in small pieces.
            assert len(headers.in_a_call) < 100

    on_loop(main())


def test_a_read_stops_behind_a_bounded_number_of_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = Headers(monkeypatch)

    async def main() -> None:
        async with relayed(TranslatingGate()) as wire:
            data = UNKNOWN_KEY * 5_000
            sender = asyncio.create_task(send(wire.client, data))
            assert await receive(wire.broker, len(data)) == data
            await sender

    on_loop(main())
    assert sum(headers.in_a_call) == 5_000
    assert max(headers.in_a_call) <= 2 * HEADER_BYTES_IN_A_TURN // len(UNKNOWN_KEY)


# -- handshakes, buffers ---------------------------------------------------------------------------


def test_a_peer_with_many_handshakes_waits_for_itself() -> None:
    order: list[str] = []

    async def step(turns: HandshakeTurns, peer: str) -> None:
        async with turns.take(peer):
            order.append(peer)

    async def main() -> None:
        turns = HandshakeTurns()
        tasks = [asyncio.create_task(step(turns, "hostile")) for _ in range(50)]
        tasks.append(asyncio.create_task(step(turns, "innocent")))
        await asyncio.gather(*tasks)

    on_loop(main())
    assert order.index("innocent") <= 2
    assert Counter(order) == {"hostile": 50, "innocent": 1}


def test_a_handshake_that_is_given_up_leaves_its_turn_to_the_next() -> None:
    done: list[int] = []

    async def step(turns: HandshakeTurns, number: int) -> None:
        async with turns.take("peer"):
            done.append(number)

    async def main() -> None:
        turns = HandshakeTurns()
        for victim in range(5):
            done.clear()
            tasks = [asyncio.create_task(step(turns, number)) for number in range(5)]
            for _ in range(victim + 1):
                await asyncio.sleep(0)
            tasks[victim].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert {0, 1, 2, 3, 4} - {victim} <= set(done)

    on_loop(main())


def test_the_systems_buffers_are_bounded() -> None:
    async def main() -> None:
        with ScriptedBroker() as broker:
            gate = Gate()
            async with (
                opened(gate.listener(broker.port, socket_buffer_bytes=8_192)) as listener,
                connected(listener) as client,
            ):
                await send(client, produce_frame(1, b"echo"))
                await receive_frame(client)
                # Linux doubles what it is asked for, to have room for its own.
                assert max(await system_buffers(listener)) <= 2 * 8_192

    on_loop(main())
