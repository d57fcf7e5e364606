"""A closed connection frees its memory without the garbage collector."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable, Iterator

import pytest

from receiver.gateway.connection.closing import CloseReason
from receiver.link.messages import Report
from receiver.settings.limits import LimitsSettings
from receiver.wire.uuid import Uuid
from tests.testbed.scripted_broker import ScriptedBroker, framed, produce_frame
from tests.unit.gateway.support import (
    Gate,
    Relayed,
    connected,
    eventually,
    is_reset,
    on_loop,
    opened,
    receive_frame,
    reset,
    send,
)
from tests.unit.gateway.tls import Certificates, PlainPeer, TlsPeer, tls_relayed
from tests.unit.session.support import api_versions, get_subscriptions, push

End = PlainPeer | TlsPeer
Closing = Callable[[Relayed, End, End], Awaitable[object]]

PUSH = push(Uuid(b"\x01" * 16), 1, bytes(1_100_000))
LIMITS = LimitsSettings(max_held_bytes=16 << 20)
#: Only for what waits for it: a request may take longer on a busy machine.
IMPATIENT = LimitsSettings(max_held_bytes=16 << 20, request_timeout_ms=1500)
GARBAGE = b"\xff\xff\xff\xff"


@contextlib.contextmanager
def uncollected() -> Iterator[Callable[[], list[object]]]:
    """Disable the garbage collector; yield a function that lists new objects."""
    gc.disable()
    gc.freeze()  # gc.get_objects() leaves frozen objects out, which are most of the test process
    try:
        # What the limits have counted stays until it is reported, and what was moved, in sums.
        yield lambda: [
            object_
            for object_ in gc.get_objects()
            if (module := str(type(object_).__module__)).startswith("receiver.")
            and not module.endswith((".limits", ".usage_store", ".traffic_metrics"))
        ]
    finally:
        gc.unfreeze()
        gc.enable()


async def half_a_push(wire: Relayed) -> None:
    await eventually(lambda: wire.session.held_bytes >= 300_000, "half a push")


async def both_close(_: Relayed, client: End, broker: End) -> None:
    client.end.close()
    broker.end.close()


async def client_resets(_: Relayed, client: End, __: End) -> None:
    reset(client.end)


async def broker_resets(_: Relayed, __: End, broker: End) -> None:
    reset(broker.end)


async def client_sends_garbage(_: Relayed, client: End, broker: End) -> None:
    await client.send(PUSH[300_000:] + GARBAGE)  # the push that was begun is whole
    await asyncio.sleep(0.05)
    broker.end.close()


async def broker_sends_garbage(_: Relayed, __: End, broker: End) -> None:
    await broker.send(produce_frame(1, bytes(100))[50:] + GARBAGE)


async def client_garbles_tls(_: Relayed, client: End, __: End) -> None:
    await asyncio.get_running_loop().sock_sendall(client.end, bytes(100))


async def request_takes_too_long(_: Relayed, __: End, ___: End) -> None:
    await asyncio.sleep(1)


async def too_much_is_held(wire: Relayed, client: End, __: End) -> None:
    wire.gate.memory.replace_settings(LimitsSettings(max_held_bytes=1 << 20))
    await client.send(PUSH[300_000:300_100])


async def client_reads_nothing(wire: Relayed, _: End, broker: End) -> None:
    sender = asyncio.create_task(broker.send(produce_frame(1, bytes(100))[50:] + framed(bytes(8_000_000))))
    await eventually(lambda: not wire.relay._down.flushed, "a backlog")
    sender.cancel()
    wire.relay.close(CloseReason.DRAINED)


async def drained(wire: Relayed, _: End, __: End) -> None:
    wire.relay.drain()
    await asyncio.sleep(0.05)
    wire.relay.close(CloseReason.DRAINED)


async def a_mistake_of_ours(wire: Relayed, _: End, __: End) -> None:
    wire.relay.fail(RuntimeError("ours"))


CLOSINGS = pytest.mark.parametrize(
    ("closing", "reason"),
    [
        (both_close, "client_closed broker_closed client_reset broker_reset"),
        (client_resets, "client_reset client_tls_error"),
        (broker_resets, "broker_reset broker_tls_error"),
        (client_sends_garbage, "client_protocol_error"),
        (broker_sends_garbage, "broker_protocol_error"),
        (request_takes_too_long, "request_timeout"),
        (too_much_is_held, "held_bytes"),
        (client_reads_nothing, "drained"),
        (drained, "drained"),
        (a_mistake_of_ours, "internal_error"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)


async def close_and_look(
    certificates: Certificates, closing: Closing, reason: str, *, client: bool, broker: bool
) -> None:
    limits = IMPATIENT if closing is request_takes_too_long else LIMITS
    gate = Gate(max_push_bytes=1 << 20, limits=limits)
    await eventually(lambda: bool(gate.relays.brokers), "what the relay knows of the broker")
    with uncollected() as come:
        async with tls_relayed(certificates, client=client, broker=broker, small_buffers=True, gate=gate) as (
            wire,
            one,
            other,
        ):
            # A marker waits for its answer, a push is half there, and half a response.
            await one.send(get_subscriptions() + PUSH[:300_000])
            await other.receive_frame()
            await other.send(produce_frame(1, bytes(100))[:50])
            await half_a_push(wire)
            await closing(wire, one, other)
            assert await wire.reason() in reason.split()
            wire.closed = None
        del wire.relay, wire, one, other  # the relay knows whom it tells of its end
        await asyncio.sleep(0)
        # A report of what was counted is kept until the core has taken it.
        await eventually(
            lambda: not any(isinstance(item, Report) for item in come()), "the report to be taken"
        )
        await gate.forget_closed()
        assert come() == []
    assert gate.memory.total == 0


@CLOSINGS
def test_nothing_is_left_of_a_connection(certificates: Certificates, closing: Closing, reason: str) -> None:
    on_loop(close_and_look(certificates, closing, reason, client=False, broker=False))


@pytest.mark.parametrize(("client", "broker"), [(True, False), (False, True)], ids=["client", "broker"])
@CLOSINGS
def test_nothing_is_left_of_a_tls_connection(
    certificates: Certificates, closing: Closing, reason: str, client: bool, broker: bool
) -> None:
    on_loop(close_and_look(certificates, closing, reason, client=client, broker=broker))


def test_nothing_is_left_of_a_connection_whose_tls_breaks(certificates: Certificates) -> None:
    on_loop(close_and_look(certificates, client_garbles_tls, "client_tls_error", client=True, broker=False))


def test_nothing_is_left_of_a_listeners_connections() -> None:
    """Neither of one that was served, nor of one that was refused."""

    async def main() -> None:
        gate = Gate()
        with ScriptedBroker() as broker:
            async with opened(gate.listener(broker.port, max_connections=1)) as listener:
                await eventually(lambda: listener.upstream_problem is None, "the probe of the broker")

                async def serve_one_and_refuse_another() -> None:
                    async with connected(listener) as client:
                        await send(client, api_versions(3))
                        await receive_frame(client)
                        assert await is_reset(listener)
                    await eventually(lambda: len(gate.registry) == 0, "its end")
                    gate.disconnected.clear()

                await serve_one_and_refuse_another()
                with uncollected() as come:
                    await serve_one_and_refuse_another()
                    await gate.forget_closed()
                    await eventually(lambda: come() == [], "nothing to be left")

    on_loop(main())
