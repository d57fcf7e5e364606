"""Bounds on the memory of waiting requests, and on the time one may take."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from receiver.gateway.connection.closing import CloseReason
from receiver.gateway.connection.system_buffers import MOST_UNSENT, bytes_to_send
from receiver.settings.limits import LimitsSettings
from receiver.supervisor.shared_counts import SharedCounts
from receiver.wire.uuid import Uuid
from tests.testbed.ports import LOOPBACK
from tests.testbed.scripted_broker import ScriptedBroker, framed, produce_frame
from tests.unit.gateway.support import (
    Gate,
    Relayed,
    at_end,
    connected,
    eventually,
    on_loop,
    opened,
    receive,
    receive_frame,
    relayed,
    send,
    system_buffers,
)
from tests.unit.session.support import get_subscriptions, push

MIB = 1 << 20
LEAST_BYTES, LEAST_MS = MIB, 100

#: Room for four pushes of 300,000 bytes, each of which is no more than a source's share.
FOUR_BYTES = 1_240_000

INSTANCE = Uuid(b"\x01" * 16)

#: Whether a program has set a buffer's size (linux 5.14, asm-generic/socket.h).
SO_BUF_LOCK = 72
RECEIVE_BUFFER_IS_SET = 2

LONG_ANSWER = framed(b"\0\0\0\1" + bytes(5_000_000))

#: A push of which the receiver keeps 300,000 bytes until it is whole.
LONG_PUSH = push(INSTANCE, 1, bytes(300_001))


def gate(**settings: Any) -> Gate:
    return Gate(max_push_bytes=MIB, limits=LimitsSettings(**settings))


def pending(gate_: Gate) -> asyncio.TimerHandle | None:
    return gate_.memory._timer


async def begin(wire: Relayed, size: int = 300_000) -> None:
    """Begin a push, and wait until the relay keeps so much of it."""
    await send(wire.client, LONG_PUSH[:size])
    await eventually(lambda: wire.closed is not None or wire.session.held_bytes >= size, "its bytes")


@contextlib.asynccontextmanager
async def relayed_from(gate_: Gate, *sources: str) -> AsyncIterator[list[Relayed]]:
    """A relay for a client at each of these addresses."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(relayed(gate_, source_address=source)) for source in sources]


def backed_up(wire: Relayed) -> bool:
    return wire.closed is not None or not wire.relay._down.flushed


def still_open(wires: Iterable[Relayed]) -> bool:
    return all(wire.closed is None for wire in wires)


def test_the_oldest_unfinished_request_goes_where_all_together_are_too_much() -> None:
    """A flood of them pushes out its own, not those of clients that finish what they begin."""

    async def main() -> None:
        gate_ = gate(max_held_bytes=FOUR_BYTES)
        async with relayed_from(gate_, *(f"192.0.2.{n}" for n in range(5))) as wires:
            *first, last = wires
            for wire in first:
                await begin(wire)
            assert gate_.memory.total == 1_200_000
            await begin(last)
            assert await first[0].reason() is CloseReason.HELD_BYTES
            assert await at_end(first[0].client)
            assert still_open(wires[1:])
            assert gate_.memory.total == 1_200_000
            await send(last.client, LONG_PUSH[300_000:])
            await receive_frame(last.broker)  # the marker: the request is whole
            assert still_open(wires[1:])
        assert gate_.memory.total == 0
        assert not gate_.memory._incomplete
        assert not gate_.memory._sources

    on_loop(main())


@pytest.mark.parametrize(
    ("one", "other"), [("192.0.2.7", "192.0.2.7"), ("2001:db8::1", "2001:db8:0:1::2")], ids=["IPv4", "IPv6"]
)
def test_a_source_with_more_than_its_share_loses_its_own_oldest_request(one: str, other: str) -> None:
    async def main() -> None:
        gate_ = gate(max_held_bytes=FOUR_BYTES)
        async with relayed_from(gate_, "192.0.2.8", one, other, "2001:db8:1::") as wires:
            bystander, first, second, neighbour = wires
            await begin(bystander)
            await begin(first)
            await begin(neighbour)
            await begin(second)
            assert await first.reason() is CloseReason.HELD_BYTES
            assert still_open((bystander, second, neighbour))
            assert gate_.memory.total == 900_000

    on_loop(main())


def test_a_source_with_more_than_its_share_of_whole_requests_loses_the_oldest() -> None:
    async def main() -> None:
        gate_ = gate(max_held_bytes=FOUR_BYTES)
        async with relayed_from(gate_, "192.0.2.7", "192.0.2.7", "192.0.2.8") as wires:
            first, second, bystander = wires
            await begin(bystander)
            await send(first.client, LONG_PUSH)
            await receive_frame(first.broker)
            await send(second.client, LONG_PUSH)
            assert await first.reason() is CloseReason.HELD_BYTES
            assert still_open((second, bystander))

    on_loop(main())


def test_a_request_that_is_too_much_by_itself_goes() -> None:
    async def main() -> None:
        gate_ = Gate(max_push_bytes=2 * MIB, limits=LimitsSettings(max_held_bytes=LEAST_BYTES))
        async with relayed(gate_) as wire:
            await send(wire.client, push(INSTANCE, 1, bytes(2 * MIB))[: MIB + 1000])
            assert await wire.reason() is CloseReason.HELD_BYTES
        assert gate_.memory.total == 0

    on_loop(main())


def test_requests_that_wait_for_the_broker_count_too() -> None:
    async def main() -> None:
        gate_ = gate(max_held_bytes=FOUR_BYTES)
        async with relayed_from(gate_, *(f"192.0.2.{n}" for n in range(5))) as wires:
            *first, last = wires
            for wire in first:
                await send(wire.client, LONG_PUSH)
                await receive_frame(wire.broker)
            await eventually(lambda: gate_.memory.total >= 1_200_000, "all")
            assert pending(gate_) is None, "no request is unfinished"
            await send(last.client, LONG_PUSH)
            assert await wires[0].reason() is CloseReason.HELD_BYTES
            assert still_open(wires[1:])

    on_loop(main())


def test_the_source_that_keeps_most_loses_a_connection_and_not_the_newcomer() -> None:
    async def main() -> None:
        gate_ = gate(max_held_bytes=1_900_000)
        async with relayed_from(
            gate_, *["192.0.2.1"] * 2, *(f"192.0.2.{n}" for n in (2, 3, 4, 5, 6))
        ) as wires:
            for wire in wires[2:]:  # each of these was first
                await begin(wire)
            for wire in wires[:2]:
                await begin(wire, 230_000)
            assert await wires[0].reason() is CloseReason.HELD_BYTES
            assert still_open(wires[1:])

    on_loop(main())


def test_a_request_that_takes_too_long_ends_the_connection() -> None:
    async def main() -> None:
        gate_ = gate(request_timeout_ms=LEAST_MS)
        async with relayed(gate_) as slow, relayed(gate_) as idle, relayed(gate_) as passing:
            await send(passing.client, produce_frame(1, bytes(100))[:50])  # nobody keeps any of it
            await begin(slow, 1000)
            started = asyncio.get_running_loop().time()
            assert await slow.reason() is CloseReason.REQUEST_TIMEOUT
            assert asyncio.get_running_loop().time() - started > 0.05
            assert await at_end(slow.client)
            assert (idle.closed, passing.closed) == (None, None)
        assert pending(gate_) is None

    on_loop(main())


def test_each_request_has_its_own_time() -> None:
    """One that ends and one that begins in the same chunk are two."""

    async def main() -> None:
        gate_ = gate()
        async with relayed(gate_) as wire:
            request = get_subscriptions()
            await send(wire.client, request[:20])
            await eventually(lambda: pending(gate_) is not None, "the first one's time")
            (first,) = gate_.memory._incomplete.values()
            await send(wire.client, request[20:] + request[:20])
            await receive_frame(wire.broker)
            (second,) = gate_.memory._incomplete.values()
            assert second.deadline > first.deadline

    on_loop(main())


def test_there_is_a_timer_only_while_a_request_is_unfinished() -> None:
    """Each wait of the event loop pays for one that is pending."""

    async def main() -> None:
        gate_ = gate()
        async with relayed(gate_) as one, relayed(gate_) as other:
            await send(one.client, get_subscriptions() + produce_frame(1))
            await receive_frame(one.broker)
            await receive_frame(one.broker)
            assert pending(gate_) is None
            await begin(one, 1000)
            timer = pending(gate_)
            assert timer is not None
            await begin(other, 1000)
            assert pending(gate_) is timer, "one for all"
            await send(one.client, LONG_PUSH[1000:])
            await receive_frame(one.broker)
            assert pending(gate_) is timer
            other.client.close()
            other.broker.close()
            await other.reason()
            assert pending(gate_) is None
            assert timer.cancelled()

    on_loop(main())


def test_bounds_may_be_replaced() -> None:
    async def main() -> None:
        gate_ = gate()
        async with relayed(gate_) as wire:
            await begin(wire, 1000)
            gate_.memory.replace_settings(
                LimitsSettings(max_held_bytes=LEAST_BYTES, request_timeout_ms=LEAST_MS)
            )
            async with relayed(gate_) as later:
                await begin(later, 1000)
                await asyncio.sleep(0.3)
                assert (wire.closed, later.closed) == (None, None), "the older one keeps its time"

    on_loop(main())


@pytest.mark.parametrize(
    ("settings", "size", "reason", "limit"),
    [
        ({"request_timeout_ms": LEAST_MS}, 1000, "request_timeout", "limits.request_timeout_ms"),
        ({"max_held_bytes": LEAST_BYTES}, 1 + LEAST_BYTES, "held_bytes", "limits.max_held_bytes"),
    ],
)
def test_it_is_counted_and_logged_once_in_a_while(
    settings: dict[str, Any], size: int, reason: str, limit: str
) -> None:
    async def main() -> None:
        gate_ = Gate(max_push_bytes=2 * MIB, limits=LimitsSettings(**settings))
        labels = {"listener": "CLIENT", "reason": reason}
        with ScriptedBroker() as broker, capture_logs() as log:
            async with opened(gate_.listener(broker.port)) as listener:
                for _ in range(2):
                    async with connected(listener) as client:
                        await send(client, push(INSTANCE, 1, bytes(2 * MIB))[:size])
                        with contextlib.suppress(ConnectionResetError):
                            await at_end(client)
                await eventually(lambda: gate_.value("connections_closed_total", **labels) == 2, "both")
        (entry,) = [line for line in log if line["event"] == "closed at a limit"]
        assert entry["limit"] == limit
        assert entry["source"].startswith("127.0.0.1")

    on_loop(main())


@contextlib.asynccontextmanager
async def slow_readers(*gates: Gate) -> AsyncIterator[list[Relayed]]:
    """A client on each gate that does not read a long answer, one after the other."""
    async with contextlib.AsyncExitStack() as stack:
        wires: list[Relayed] = []
        for item in gates:
            wire = await stack.enter_async_context(relayed(item, small_buffers=True))
            sender = asyncio.create_task(send(wire.broker, LONG_ANSWER))
            stack.callback(sender.cancel)
            await eventually(partial(backed_up, wire), "a backlog")
            wires.append(wire)
        yield wires


def test_what_a_slow_reader_does_not_take_counts_with_the_systems_buffers() -> None:
    async def main() -> None:
        gate_ = gate(max_held_bytes=4 * MIB)
        async with slow_readers(gate_, gate_) as (one, other):
            kept = sum(
                len(wire.relay._down._backlog) + wire.inner[1].getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
                for wire in (one, other)
            )
            to_send = gate_.memory.total - kept
            # A reader's system may have acknowledged some bytes since, and a probe takes memory.
            now = sum(bytes_to_send(wire.inner[0]) for wire in (one, other))
            assert now - 65_536 <= to_send <= 4 * MOST_UNSENT
            assert now > 0
            assert await receive(other.client, len(LONG_ANSWER)) == LONG_ANSWER
            one.relay.close(CloseReason.DRAINED)
            await eventually(lambda: gate_.memory.total == 0, "nothing is kept")

    on_loop(main())


def test_the_slow_reader_that_waits_longest_goes() -> None:
    async def main() -> None:
        gate_ = gate(max_held_bytes=4 * MIB)
        async with slow_readers(*[gate_] * 8) as wires:
            assert await wires[0].reason() is CloseReason.HELD_BYTES
            assert wires[-1].closed is None
            assert 0 < gate_.memory.total <= MIB

    on_loop(main())


def test_many_relays_leave_room_for_each_slow_reader() -> None:
    async def main() -> None:
        async with slow_readers(Gate(relays=256), Gate(relays=256)) as wires:
            await asyncio.sleep(0.3)
            assert still_open(wires)

    on_loop(main())


def test_a_source_that_fills_the_memory_on_one_relay_loses_its_own_for_another() -> None:
    async def main() -> None:
        everywhere = SharedCounts()
        one, other = (
            Gate(limits=LimitsSettings(max_held_bytes=4 * MIB), held=everywhere.claim(), relays=2)
            for _ in range(2)
        )
        # On a busy machine the first of them may be gone before the innocent client comes.
        async with slow_readers(*[one] * 6) as hostile, slow_readers(other) as innocent:
            await hostile[0].reason()
            await eventually(lambda: one.memory.total + other.memory.total <= MIB, "the source's share")
            assert still_open(innocent)

    on_loop(main())


def test_new_connections_have_small_buffers_while_memory_is_scarce() -> None:
    async def main() -> None:
        gate_ = gate(max_held_bytes=4 * MIB)

        async def buffer_bytes(broker: ScriptedBroker) -> set[int]:
            async with (
                opened(gate_.listener(broker.port, socket_buffer_bytes=393_216)) as listener,
                connected(listener),
            ):
                return await system_buffers(listener)

        with ScriptedBroker() as broker:
            usual = await buffer_bytes(broker)
            async with relayed_from(gate_, "127.0.0.2") as (wire,):
                gate_.memory.update(wire.relay, MIB - 1, None)
                assert await buffer_bytes(broker) == usual, "another source"
            async with relayed_from(gate_, LOOPBACK) as (wire,):
                gate_.memory.update(wire.relay, MIB - 1, None)
                (small,) = await buffer_bytes(broker)
                assert small <= 2 * 65_536 < min(usual)
            assert await buffer_bytes(broker) == usual

    on_loop(main())


def test_linux_tunes_the_buffers_of_a_connection_and_holds_little_that_is_unsent() -> None:
    async def main() -> None:
        with ScriptedBroker() as broker:
            async with opened(gate().listener(broker.port)) as listener, connected(listener):
                await system_buffers(listener)  # waits for the connection
                (relay,) = listener._open
                for side, fixed in ((relay._client, RECEIVE_BUFFER_IS_SET), (relay._broker, 0)):
                    assert side.getsockopt(socket.SOL_SOCKET, SO_BUF_LOCK) == fixed
                    assert side.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == MOST_UNSENT

    on_loop(main())


def test_slow_readers_have_small_buffers_while_memory_is_scarce() -> None:
    async def main() -> None:
        gate_ = gate(max_held_bytes=64 * MIB)
        async with relayed(gate_) as wire:
            for side in wire.inner:  # as after a while at full speed
                side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MIB)
                side.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MIB)
            async with relayed(gate_) as other:
                gate_.memory.update(other.relay, 9 * MIB, None)  # of a share of 16
                sender = asyncio.create_task(send(wire.broker, LONG_ANSWER * 2))
                await eventually(partial(backed_up, wire), "a backlog")
                assert wire.inner[1].getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 131_072
                held = gate_.memory.total - 9 * MIB
                assert held < 5 * MIB, "what is in the buffers still counts, and nothing more"
                assert await receive(wire.client, 2 * len(LONG_ANSWER)) == 2 * LONG_ANSWER
                await sender

    on_loop(main())


def test_a_slow_reader_has_an_eighth_of_its_sources_share_for_a_buffer() -> None:
    async def main() -> None:
        async with relayed(gate(max_held_bytes=32 * MIB)) as wire:
            broker = wire.inner[1]
            broker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MIB)  # which Linux doubles
            sender = asyncio.create_task(send(wire.broker, LONG_ANSWER * 2))
            await eventually(partial(backed_up, wire), "a backlog")
            assert broker.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == MIB
            assert await receive(wire.client, 2 * len(LONG_ANSWER)) == 2 * LONG_ANSWER
            await sender

    on_loop(main())
