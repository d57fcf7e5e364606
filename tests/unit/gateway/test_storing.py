"""With ``spool_always`` the response waits for the disk, in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from receiver.core import telemetry_calls
from receiver.gateway.connection.closing import CloseReason
from receiver.wire.error_codes import ErrorCode
from receiver.wire.uuid import Uuid
from tests.testbed.scripted_broker import Answers, framed, produce_frame
from tests.unit.gateway.support import (
    Gate,
    Relayed,
    at_end,
    eventually,
    is_silent,
    on_loop,
    receive_frame,
    relayed,
    reset,
    send,
)
from tests.unit.session.support import get_subscriptions, push, read_push, read_subscriptions

ANSWER = framed(b"\0\0\0\1answer")
Storing = list[Callable[[bool], None]]
PAYLOADS = Path(__file__).parents[2] / "data" / "payloads"
OTLP = (PAYLOADS / "franz-producer-okprefix-02.bin").read_bytes()


class Pushing:
    """A relay whose client has its subscription, and a disk that says when it has something."""

    def __init__(self, wire: Relayed, storing: Storing, frame: bytes, *, marked: bool) -> None:
        self.wire = wire
        self.storing = storing
        self.frame = frame
        self._marked = marked

    async def push(self) -> None:
        """Push; with something in flight, the broker answers that and the marker."""
        if self._marked:
            await send(self.wire.client, produce_frame(7, b"first"))
            await receive_frame(self.wire.broker)
        await send(self.wire.client, self.frame)
        if self._marked:
            answer = Answers().to(await receive_frame(self.wire.broker))
            assert answer is not None
            await send(self.wire.broker, ANSWER + framed(answer) + ANSWER)
        while not self.storing:  # noqa: ASYNC110 # nobody tells the test
            await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No push is answered before it is stored, on any machine."""
    monkeypatch.setattr(telemetry_calls, "_STORED_S", 3600.0)


@contextlib.asynccontextmanager
async def pushing(*, marked: bool) -> AsyncIterator[Pushing]:
    gate = Gate()
    storing: Storing = []
    gate.storing = storing
    async with relayed(gate) as wire:
        await send(wire.client, get_subscriptions())
        answer = Answers().to(await receive_frame(wire.broker))
        assert answer is not None
        await send(wire.broker, framed(answer))
        got = read_subscriptions(await receive_frame(wire.client))
        frame = push(Uuid(got.client_instance_id), got.subscription_id, OTLP)
        yield Pushing(wire, storing, frame, marked=marked)


@pytest.mark.parametrize("marked", [False, True])
def test_the_answer_comes_when_the_push_is_stored(marked: bool) -> None:
    async def main() -> None:
        async with pushing(marked=marked) as test:
            await test.push()
            if marked:
                assert (await receive_frame(test.wire.client)).endswith(b"answer")
            reading = asyncio.create_task(receive_frame(test.wire.client))
            assert await is_silent(asyncio.shield(reading), 0.2)
            (stored,) = test.storing
            stored(True)
            assert read_push(await reading) == 0
            if marked:
                assert (await receive_frame(test.wire.client)).endswith(b"answer")

    on_loop(main())


def test_what_the_broker_says_behind_it_waits_too() -> None:
    async def main() -> None:
        async with pushing(marked=False) as test:
            await test.push()
            await send(test.wire.broker, ANSWER)
            reading = asyncio.create_task(receive_frame(test.wire.client))
            assert await is_silent(asyncio.shield(reading), 0.2)
            test.storing[0](True)
            assert read_push(await reading) == 0
            assert (await receive_frame(test.wire.client)).endswith(b"answer")

    on_loop(main())


@pytest.mark.parametrize("marked", [False, True])
def test_a_slow_disk_delays_no_response_beyond_the_limit(
    marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry_calls, "_STORED_S", 0.1)

    async def main() -> None:
        async with pushing(marked=marked) as test:
            await test.push()
            if marked:
                assert (await receive_frame(test.wire.client)).endswith(b"answer")
            assert read_push(await receive_frame(test.wire.client)) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            text, _ = test.wire.gate.metrics.exposition()
            assert b"kafka_telemetry_pushes_not_stored_total 1.0" in text
            test.storing[0](True)  # late, and of no more interest
            if marked:
                assert (await receive_frame(test.wire.client)).endswith(b"answer")
            await send(test.wire.broker, ANSWER)
            assert (await receive_frame(test.wire.client)).endswith(b"answer")

    on_loop(main())


@pytest.mark.parametrize("how", ["draining", "malformed bytes behind it"])
def test_nothing_overtakes_an_answer(how: str) -> None:
    async def main() -> None:
        async with pushing(marked=True) as test:
            wire = test.wire
            await send(wire.client, produce_frame(7, b"first"))
            await receive_frame(wire.broker)
            frame = test.frame
            if how == "draining":
                await send(wire.client, frame[:10])
                await eventually(lambda: wire.session.due > 0, "half a push")
                wire.relay.drain()
                await send(wire.client, frame[10:])
            else:
                await send(wire.client, frame + b"\xff\xff\xff\xff")
            answer = Answers().to(await receive_frame(wire.broker))
            assert answer is not None
            await send(wire.broker, ANSWER + framed(answer) + ANSWER)
            assert (await receive_frame(wire.client)).endswith(b"answer")
            await eventually(lambda: bool(test.storing), "the push")
            reading = asyncio.create_task(receive_frame(wire.client))
            assert await is_silent(asyncio.shield(reading), 0.2)
            test.storing[0](True)
            assert read_push(await reading) == 0
            assert (await receive_frame(wire.client)).endswith(b"answer")

    on_loop(main())


def test_a_client_may_leave_meanwhile() -> None:
    async def main() -> None:
        async with pushing(marked=False) as test:
            await test.push()
            reset(test.wire.client)
            await send(test.wire.broker, ANSWER)
            test.storing[0](True)
            assert await test.wire.reason() is CloseReason.CLIENT_RESET
            test.storing[0](True)

    on_loop(main())


def test_an_end_of_the_broker_comes_behind_the_answer() -> None:
    async def main() -> None:
        async with pushing(marked=True) as test:
            await test.push()
            test.wire.broker.close()
            test.storing[0](True)
            for _ in range(3):
                await receive_frame(test.wire.client)
            assert await at_end(test.wire.client)

    on_loop(main())


def test_a_drain_waits_for_the_answer() -> None:
    async def main() -> None:
        async with pushing(marked=False) as test:
            await test.push()
            test.wire.relay.drain()
            assert not test.wire.quiet()
            test.storing[0](True)
            assert read_push(await receive_frame(test.wire.client)) == 0
            await asyncio.sleep(0.05)
            assert test.wire.quiet()

    on_loop(main())
