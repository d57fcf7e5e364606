"""A relay stops reading from a throttled client (KIP-219), and for how long."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from receiver.gateway.connection.closing import CloseReason
from receiver.gateway.connection.mute import Mute
from receiver.session.exchange import SessionEnd
from receiver.settings.limits import LimitsSettings, PeerLimitsSettings, PrincipalLimitsSettings
from receiver.telemetry.control.limits import LimitName
from tests.testbed.scripted_broker import Answers, framed, produce_frame
from tests.unit.gateway.support import (
    Gate,
    Relayed,
    at_end,
    eventually,
    is_silent,
    on_loop,
    receive,
    receive_frame,
    relayed,
    reset,
    send,
)
from tests.unit.session.support import Clock, api_versions, get_subscriptions, read_subscriptions
from tests.unit.session.test_login import SaslAnswers, handshake, plain

ONE_A_SECOND = LimitsSettings(source_address=PeerLimitsSettings(telemetry_requests_per_second=1))
#: What a limit of one a second lets through at once.
BURST = 10
#: So many more at once, and the connection is not read from for as long as there is.
MORE = 9


class Processor(Clock):
    """A clock whose CPU time advances with each reading."""

    used_s = 0.0

    def cpu(self) -> float:
        self.used_s += 0.5
        return self.used_s


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


def test_every_word_of_a_sessions_end_is_a_reason_to_close() -> None:
    assert {CloseReason(end) for end in SessionEnd} == {CloseReason.INVALID_REQUEST, CloseReason.LIMIT}


def test_work_before_the_login_is_charged() -> None:
    async def main() -> None:
        gate = Gate(
            limits=LimitsSettings(source_address=PeerLimitsSettings(core_ms_per_second=10)),
            clock=Processor(),
        )
        async with relayed(gate, security_protocol="SASL_PLAINTEXT") as wire:
            await send(wire.client, api_versions(3))
            await receive_frame(wire.broker)
            # The mute itself may be over when this process gets to run again.
            exceeded = {"limit": "core_time", "scope": "source_address"}
            await eventually(lambda: gate.value("limit_exceeded_total", **exceeded) == 1, "a mute")
            assert gate.limits.over(LimitName.CORE_TIME, wire.relay.identity, gate.clock.now) is not None

    on_loop(main())


def test_a_login_over_the_principals_limit_ends_the_connection_behind_its_answer() -> None:
    async def main() -> None:
        gate = Gate(limits=LimitsSettings(principal=PrincipalLimitsSettings(connections=1)))
        async with (
            relayed(gate, security_protocol="SASL_PLAINTEXT") as first,
            relayed(gate, security_protocol="SASL_PLAINTEXT") as second,
        ):
            for wire in (first, second):
                answers = SaslAnswers([(0, b"")])
                for request in (handshake(), plain("alice")):
                    await send(wire.client, request)
                    answer = answers.to(await receive_frame(wire.broker))
                    assert answer is not None
                    await send(wire.broker, framed(answer))
                    await receive_frame(wire.client)
            assert await second.reason() is CloseReason.LIMIT
            assert first.closed is None
            assert gate.value("limit_exceeded_total", limit="connections", scope="principal") == 1

    on_loop(main())


def test_a_flood_counts_as_many_new_connections() -> None:
    async def main() -> None:
        one_a_second = PeerLimitsSettings(new_connections_per_second=1)
        gate = Gate(limits=LimitsSettings(source_address=one_a_second))
        async with relayed(gate) as wire:
            source = wire.relay.identity.source_address
            await send(wire.client, get_subscriptions() * 33)
            await eventually(
                lambda: gate.limits.connection_opened(source, gate.clock.now) is not None, "the refusal"
            )
            assert gate.limits.connection_opened(source, gate.clock.now + 11) is None

    on_loop(main())


def test_the_mute_doubles_while_the_client_does_not_wait() -> None:
    mute = Mute()
    assert [mute.refused(0.0) for _ in range(10)] == pytest.approx(
        [0.005 * 2**n for n in range(8)] + [1.0, 1.0]
    )


def test_a_client_that_waits_gets_the_shortest_mute() -> None:
    mute = Mute()
    assert [mute.refused(float(now)) for now in range(5)] == [0.005] * 5


def test_muted_time_does_not_count_as_waiting() -> None:
    mute = Mute()
    for _ in range(9):
        seconds = mute.refused(0.0)
    assert mute.refused(seconds - 0.5 + 0.5) == 1.0
