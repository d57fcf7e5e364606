"""Where addresses are rewritten, a connection reads as much as takes about a millisecond."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from typing import Final

import pytest

from receiver.gateway.connection import connection
from receiver.gateway.connection.closing import CloseReason, has_unsent
from receiver.gateway.connection.direction import BUFFER_BYTES, Direction
from receiver.settings.limits import LimitsSettings, PeerLimitsSettings
from receiver.wire import api_keys
from receiver.wire.addressed_framing import AddressedRequests, AddressedResponses
from tests.testbed.scripted_broker import Answers, framed, produce_frame, request_frame
from tests.unit.gateway.support import (
    Gate,
    Relayed,
    eventually,
    on_loop,
    receive,
    receive_frame,
    relayed,
    reset,
    send,
)
from tests.unit.session.support import Clock, api_versions

#: Bytes that are read behind a frame, and the fewest where they are costly.
STARTS_WITH: Final = 2_048
FEWEST: Final = 512

FETCH: Final = request_frame(api_keys.FETCH, 16, 1, bytes(60))
#: No topics, and no tagged fields.
NOTHING: Final = bytes(1 + 10) + b"\x01\0"


class Costly:
    """Makes each byte of frames cost CPU time in the reads that it watches.

    Attributes:
        reads: The bytes of each read.
        rooms: The most bytes that each read could have taken.
        behind: Those of them that were not the rest of a frame.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: Clock, seconds_a_byte: float) -> None:
        self.reads: list[int] = []
        self.rooms: list[int] = []
        self.behind: list[int] = []
        for kind in (AddressedRequests, AddressedResponses):
            real = kind.passing

            def passing(rewriter, chunk, real=real):  # type: ignore[no-untyped-def]
                idle = rewriter.idle_bytes
                clock.now += bool(self.reads) * seconds_a_byte * max(len(chunk) - idle, 0)
                return real(rewriter, chunk)

            monkeypatch.setattr(kind, "passing", passing)

    def watch(self, direction: Direction) -> None:
        real = direction._recv_into

        def recv_into(buffer: bytearray, room: int) -> int:
            self.behind.append(room - direction._rewriter.idle_bytes)
            self.rooms.append(room)
            self.reads.append(count := real(buffer, room))
            return count

        direction._recv_into = recv_into
        direction._source_fd = -1  # so that Python moves the bytes


def gate(clock: Clock, **arguments: object) -> Gate:
    return Gate(
        replace_address=lambda broker: ("gateway.example", broker.node_id),
        clock=clock,
        max_push_bytes=1 << 20,
        **arguments,  # type: ignore[arg-type]
    )


@contextlib.asynccontextmanager
async def decided(made: Gate) -> AsyncIterator[Relayed]:
    """A relay whose client has been decided about (KIP-1313), so that its requests pass."""
    async with relayed(made) as wire:
        await send(wire.client, api_versions(3))
        answer = Answers().to(await receive_frame(wire.broker))
        assert answer is not None
        await send(wire.broker, framed(answer))
        await receive_frame(wire.client)
        yield wire


def clocked(seconds_a_byte: float, monkeypatch: pytest.MonkeyPatch) -> tuple[Gate, Costly]:
    clock = Clock()
    unlimited = PeerLimitsSettings(core_ms_per_second=None)
    made = gate(clock, limits=LimitsSettings(source_address=unlimited))
    return made, Costly(monkeypatch, clock, seconds_a_byte)


@pytest.mark.parametrize(
    ("ms_of_2_kib", "fewest", "most"),
    [(0.5, STARTS_WITH, STARTS_WITH), (2.0, 1_000, STARTS_WITH), (1_000.0, FEWEST, 2 * FEWEST)],
)
def test_a_read_behind_a_frame_takes_about_a_millisecond(
    ms_of_2_kib: float, fewest: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        made, costly = clocked(ms_of_2_kib / 1_000 / STARTS_WITH, monkeypatch)
        async with decided(made) as wire:
            costly.watch(wire.relay._up)
            data = FETCH * 400
            sender = asyncio.create_task(send(wire.client, data))
            await receive(wire.broker, len(data))
            await sender
            assert costly.behind[0] == STARTS_WITH
            assert min(costly.behind) >= fewest
            assert max(costly.behind[1:]) <= most

    on_loop(main())


def test_the_rest_of_a_large_frame_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        made, costly = clocked(1e-6, monkeypatch)
        async with decided(made) as wire:
            costly.watch(wire.relay._up)
            data = produce_frame(1, bytes(100_000))
            await send(wire.client, data)
            await receive(wire.broker, len(data))
            assert max(costly.reads) > 90_000
            costly.rooms.clear()
            costly.watch(wire.relay._down)
            answer = framed(struct.pack(">i", 1) + bytes(100_000))
            await send(wire.broker, answer)
            await receive(wire.client, len(answer))
            assert costly.rooms[0] == STARTS_WITH
            assert costly.rooms[1] > 90_000

    on_loop(main())


def test_where_addresses_are_kept_a_read_takes_a_whole_buffer() -> None:
    async def main() -> None:
        async with decided(Gate()) as wire:
            rooms: list[int] = []
            wire.relay._up._source_fd = -1  # so that Python reads, also with the compiled data path
            real = wire.relay._up._recv_into

            def recv_into(buffer: bytearray, room: int) -> int:
                rooms.append(room)
                return real(buffer, room)

            wire.relay._up._recv_into = recv_into
            await send(wire.client, FETCH)
            await receive(wire.broker, len(FETCH))
            assert rooms == [BUFFER_BYTES]

    on_loop(main())


def test_a_client_whose_bytes_are_costly_is_muted_while_they_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        clock = Clock()
        # A client may use the milliseconds of some seconds at once.
        made = gate(clock, limits=LimitsSettings(source_address=PeerLimitsSettings(core_ms_per_second=10)))
        costly = Costly(monkeypatch, clock, 2e-3 / STARTS_WITH)
        async with decided(made) as wire:
            costly.watch(wire.relay._up)
            mutes: list[int] = []
            real = wire.relay._mute_client

            def mute(now: float) -> None:
                real(now)
                mutes.append(sum(costly.reads))

            monkeypatch.setattr(connection.Connection, "_mute_client", lambda _, now: mute(now))
            data = FETCH * 5_000
            sender = asyncio.create_task(send(wire.client, data))
            ids = asyncio.create_task(answer_all(wire))
            await eventually(lambda: bool(mutes), "a mute")
            assert wire.relay._up.paused
            wire.relay._muted.cancel()  # type: ignore[union-attr]
            exceeded = {"limit": "core_time", "scope": "source_address"}
            assert made.value("limit_exceeded_total", **exceeded) >= 1
            assert mutes[0] < len(data)
            sender.cancel()
            ids.cancel()

    on_loop(main())


async def answer_all(wire: Relayed) -> None:
    while True:
        request = await receive_frame(wire.broker)
        await send(wire.broker, framed(request[4:8] + NOTHING))


@pytest.mark.parametrize("seen_at", ["a read", "a write"])
def test_a_client_that_is_gone_costs_no_more_than_its_bytes(
    seen_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_FAILED_S", 3_600.0)
    if seen_at == "a write":
        monkeypatch.setattr(connection, "is_reset", lambda _: False)

    async def main() -> None:
        async with decided(gate(Clock())) as wire:
            up, fetches = wire.relay._up, [_fetch(number) for number in range(1_200)]
            up.paused = True
            up.update()
            await send(wire.client, b"".join(fetches))
            await eventually(lambda: not has_unsent(wire.client), "all bytes at the relay")
            reset(wire.client)
            up.paused = False
            up.update()
            received = []
            if seen_at == "a write":
                await eventually(lambda: wire.session.congested, "as many requests as may be pending")
                received.append(await receive_frame(wire.broker))
                await send(wire.broker, framed(received[0][4:8] + NOTHING))
            received += [await receive_frame(wire.broker) for _ in fetches[len(received) :]]
            assert await wire.reason() is CloseReason.CLIENT_RESET
            passed = [request[4:8] == sent[8:12] for request, sent in zip(received, fetches, strict=True)]
            assert not any(passed[:20])
            assert all(passed[200 if seen_at == "a read" else 1_000 :])
            assert wire.gate.memory.total == 0

    on_loop(main())


def _fetch(number: int) -> bytes:
    return request_frame(api_keys.FETCH, 16, number, bytes(60))
