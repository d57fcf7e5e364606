"""A relay stops reading from a throttled client (KIP-219)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from receiver.gateway.relay import CloseReason
from receiver.session.session import SessionEnd
from receiver.settings.limits import LimitsSettings, PeerLimitsSettings
from tests.testbed.scripted_broker import Answers, framed, produce_frame
from tests.unit.gateway.support import (
    Gate,
    Relayed,
    at_end,
    is_silent,
    on_loop,
    receive,
    receive_frame,
    relayed,
    reset,
    send,
)
from tests.unit.session.support import get_subscriptions, read_subscriptions

ONE_A_SECOND = LimitsSettings(source_address=PeerLimitsSettings(telemetry_requests_per_second=1))
#: What a limit of one a second lets through at once.
BURST = 10
#: So many more at once, and the connection is not read from for as long as there is.
MORE = 9


async def answer_all(wire: Relayed) -> None:
    """Answer whatever reaches the broker."""
    answers = Answers()
    while True:
        answer = answers.to(await receive_frame(wire.broker))
        assert answer is not None
        await send(wire.broker, framed(answer))


@contextlib.asynccontextmanager
async def muted() -> AsyncIterator[Relayed]:
    """A relay whose client has just exceeded its limit of telemetry requests."""
    async with relayed(Gate(limits=ONE_A_SECOND)) as wire:
        answering = asyncio.create_task(answer_all(wire))
        await send(wire.client, get_subscriptions() * (BURST + MORE))
        asked = []
        for _ in range(BURST + MORE):
            answer = read_subscriptions(await receive_frame(wire.client))
            assert answer.error_code == 0
            asked.append(answer.requested_metrics != ())
        # Over the limit it is asked for nothing yet.
        assert asked == [True] * BURST + [False] * MORE
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        yield wire


def test_it_is_not_read_from_until_its_time_is_over() -> None:
    async def main() -> None:
        async with muted() as wire:
            request = produce_frame(1, b"later")
            await send(wire.client, request)
            reading = asyncio.create_task(receive(wire.broker, len(request)))
            assert await is_silent(asyncio.shield(reading), 0.3)
            assert wire.relay._up.paused
            assert await reading == request
            assert not wire.relay._up.paused

    on_loop(main())


def test_the_broker_may_speak_to_it_meanwhile() -> None:
    async def main() -> None:
        async with muted() as wire:
            await send(wire.broker, framed(b"\0\0\0\1answer"))
            assert (await receive_frame(wire.client)).endswith(b"answer")
            assert wire.relay._up.paused

    on_loop(main())


def test_it_may_be_drained_and_closed_meanwhile() -> None:
    async def main() -> None:
        async with muted() as wire:
            wire.relay.drain()
            assert wire.quiet()
            timer = wire.relay._muted
            assert timer is not None
            wire.relay.close(CloseReason.DRAINED)
            assert timer.cancelled()
            assert await at_end(wire.client)

    on_loop(main())


def test_its_end_is_noticed_afterwards() -> None:
    async def main() -> None:
        async with muted() as wire:
            reset(wire.client)
            assert await wire.reason() is CloseReason.CLIENT_RESET

    on_loop(main())


def test_a_closing_session_closes_with_its_own_reason() -> None:
    async def main() -> None:
        async with relayed() as wire:
            await send(wire.client, get_subscriptions())
            marker = await receive_frame(wire.broker)
            wire.session.closing = SessionEnd.LIMIT
            answer = Answers().to(marker)
            assert answer is not None
            await send(wire.broker, framed(answer))
            assert read_subscriptions(await receive_frame(wire.client)).error_code == 0
            assert await wire.reason() is CloseReason.LIMIT

    on_loop(main())


def test_every_word_of_a_sessions_end_is_a_reason_to_close() -> None:
    assert {CloseReason(end) for end in SessionEnd} == {CloseReason.INVALID_REQUEST, CloseReason.LIMIT}
