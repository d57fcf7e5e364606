"""The relay between two real sockets: bytes, ends, resets and back-pressure."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest

from receiver.gateway.connection.closing import CloseReason
from receiver.gateway.connection.direction import BUFFER_BYTES
from receiver.wire import api_keys
from receiver.wire.frame_rewriter import END_OF_REQUESTS
from receiver.wire.uuid import Uuid
from tests.testbed.scripted_broker import Answers, framed, parse, produce_frame, request_frame
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
from tests.unit.session.support import (
    api_versions,
    correlation_id_of,
    get_subscriptions,
    push,
    read_api_versions,
    read_subscriptions,
)

FETCH = request_frame(api_keys.FETCH, 16, 2, bytes(60))


def rewriting_gate(**arguments: Any) -> Gate:
    """A gate that replaces the addresses of brokers."""
    return Gate(replace_address=lambda broker: ("gateway.example", broker.node_id), **arguments)


def waits_for_a_request(gate: Gate) -> bool:
    """Whether a timer runs for an incomplete request."""
    return gate.memory._timer is not None


async def exchange(wire: Relayed, request: bytes, answers: Answers) -> bytes:
    """The client sends one request, the broker answers it; return what the client gets."""
    await send(wire.client, request)
    answer = answers.to(await receive_frame(wire.broker))
    assert answer is not None
    await send(wire.broker, framed(answer))
    return await receive_frame(wire.client)


def test_bytes_pass_both_ways_and_ours_are_answered() -> None:
    async def main() -> None:
        answers = Answers()
        async with relayed() as wire:
            assert (await exchange(wire, produce_frame(1, b"x" * 100), answers)).endswith(b"x" * 100)
            assert read_api_versions(await exchange(wire, api_versions(3), answers), 3).error_code == 0
            assert read_subscriptions(await exchange(wire, get_subscriptions(), answers)).error_code == 0
            assert wire.relay.traffic[0] == len(
                produce_frame(1, b"x" * 100) + api_versions(3) + get_subscriptions()
            )

    on_loop(main())


def test_the_log_names_the_instance_of_the_latest_telemetry_request() -> None:
    async def main() -> None:
        answers = Answers()
        async with relayed() as wire:
            got = read_subscriptions(await exchange(wire, get_subscriptions(), answers))
            assert wire.relay.identity.client_instance_id == got.client_instance_id  # it asked for one
            instance = Uuid(bytes(range(16)))
            await send(wire.client, get_subscriptions(instance))
            await receive_frame(wire.client)
            assert wire.relay.identity.client_instance_id == instance
            await exchange(wire, api_versions(3), answers)  # names the software: another identity
            assert wire.relay.identity.client_software_name == "raw"
            assert wire.relay.identity.client_instance_id == instance

    on_loop(main())


@pytest.mark.parametrize("size", [1, BUFFER_BYTES - 4, BUFFER_BYTES + 1, 10 * BUFFER_BYTES])
def test_any_size_passes_whole(size: int) -> None:
    async def main() -> None:
        async with relayed() as wire:
            data = produce_frame(1, bytes(range(256)) * (size // 256) + b"!")
            for source, sink in ((wire.client, wire.broker), (wire.broker, wire.client)):
                _, arrived = await asyncio.gather(send(source, data), receive(sink, len(data)))
                assert arrived == data

    on_loop(main())


def test_a_client_that_ends_within_a_request_still_gets_its_answers() -> None:
    """The request whose rest never comes is forgotten, and does not time out."""

    async def main() -> None:
        gate = Gate()
        async with relayed(gate) as wire:
            await send(wire.client, FETCH + api_versions(3)[:20])
            await receive_frame(wire.broker)
            await eventually(lambda: wire.session.held_bytes > 0, "a part of a request")
            assert waits_for_a_request(gate)
            wire.client.shutdown(socket.SHUT_WR)
            assert await at_end(wire.broker)
            assert not waits_for_a_request(gate)
            assert gate.memory.total == wire.session.due == 0
            await send(wire.broker, framed(b"\0\0\0\2answer"))
            assert await receive_frame(wire.client) == b"\0\0\0\2answer"

    on_loop(main())


def test_a_clients_end_reaches_the_broker_and_the_rest_still_the_client() -> None:
    async def main() -> None:
        async with relayed() as wire:
            await send(wire.client, produce_frame(1, b"last words"))
            wire.client.shutdown(1)
            assert parse(await receive_frame(wire.broker)).body.endswith(b"last words")
            assert await at_end(wire.broker)
            await send(wire.broker, framed(b"\0\0\0\1answer"))
            assert await receive_frame(wire.client) == b"\0\0\0\1answer"
            wire.broker.close()
            assert await at_end(wire.client)
            assert await wire.reason() is CloseReason.CLIENT_CLOSED

    on_loop(main())


def test_a_brokers_end_reaches_the_client_and_the_rest_still_the_broker() -> None:
    async def main() -> None:
        async with relayed() as wire:
            await send(wire.broker, framed(b"\0\0\0\1last words"))
            wire.broker.shutdown(1)
            assert await receive_frame(wire.client) == b"\0\0\0\1last words"
            assert await at_end(wire.client)
            await send(wire.client, produce_frame(1, b"more"))
            assert parse(await receive_frame(wire.broker)).body.endswith(b"more")
            wire.client.close()
            assert await at_end(wire.broker)
            assert await wire.reason() is CloseReason.BROKER_CLOSED

    on_loop(main())


def test_a_frame_that_is_cut_by_the_end_arrives_as_far_as_it_goes() -> None:
    async def main() -> None:
        async with relayed() as wire:
            await send(wire.client, produce_frame(1, bytes(1000))[:500])
            wire.client.shutdown(1)
            assert await receive(wire.broker, 2000) == produce_frame(1, bytes(1000))[:500]

    on_loop(main())


@pytest.mark.parametrize("resets", ["client", "broker"])
def test_a_reset_goes_on_as_a_reset(resets: str) -> None:
    async def main() -> None:
        async with relayed() as wire:
            await send(wire.client, produce_frame(1))
            await receive_frame(wire.broker)
            gone, left = (wire.client, wire.broker) if resets == "client" else (wire.broker, wire.client)
            reset(gone)
            assert not await at_end(left)
            assert await wire.reason() == f"{resets}_reset"

    on_loop(main())


@pytest.mark.parametrize("resets", ["client", "broker"])
def test_what_came_before_a_reset_arrives_though_the_other_side_still_sends(resets: str) -> None:
    async def main() -> None:
        async with relayed() as wire:
            before, behind = produce_frame(1, b"before"), produce_frame(2, b"behind")
            gone, left = (wire.client, wire.broker) if resets == "client" else (wire.broker, wire.client)
            gone.send(before)
            reset(gone)
            left.send(behind)
            # These bytes meet the reset before anything was read from the peer that is gone.
            (wire.relay._down if resets == "client" else wire.relay._up).readable()
            assert await receive_frame(left) == before[4:]
            assert not await at_end(left)
            assert await wire.reason() == f"{resets}_reset"

    on_loop(main())


def test_responses_before_a_reset_arrive_though_the_client_sends_malformed_bytes() -> None:
    async def main() -> None:
        async with relayed() as wire:
            await send(wire.client, FETCH)
            await receive_frame(wire.broker)
            wire.broker.send(framed(b"\0\0\0\2answer"))
            reset(wire.broker)
            wire.client.send(END_OF_REQUESTS)
            # The malformed bytes meet the reset before the response was read.
            wire.relay._up.readable()
            assert await receive_frame(wire.client) == b"\0\0\0\2answer"
            assert await wire.reason() is CloseReason.CLIENT_PROTOCOL_ERROR

    on_loop(main())


def test_responses_before_a_reset_reach_a_slow_client_that_sends_malformed_bytes() -> None:
    async def main() -> None:
        async with relayed(small_buffers=True) as wire:
            answer = framed(b"\0\0\0\1" + bytes(range(256)) * 1000)
            await send(wire.broker, answer)
            await send(wire.client, END_OF_REQUESTS)
            reset(wire.broker)
            assert await receive(wire.client, len(answer)) == answer
            assert await wire.reason() is CloseReason.CLIENT_PROTOCOL_ERROR

    on_loop(main())


def test_responses_before_a_reset_reach_a_slow_client() -> None:
    async def main() -> None:
        async with relayed(small_buffers=True) as wire:
            answer = framed(b"\0\0\0\1" + bytes(range(256)) * 1000)
            await send(wire.broker, answer)
            reset(wire.broker)
            assert await receive(wire.client, len(answer)) == answer
            assert await wire.reason() is CloseReason.BROKER_RESET

    on_loop(main())


def test_a_peer_that_reads_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receiver.gateway.connection.connection._FAILED_S", 0.1)

    async def main() -> None:
        async with relayed(small_buffers=True) as wire:
            sender = asyncio.create_task(send(wire.broker, framed(b"\0\0\0\1" + bytes(5_000_000))))
            await eventually(lambda: bool(wire.relay._down._backlog), "a backlog")
            sender.cancel()
            reset(wire.broker)
            # The broker's end is noticed once the client reads, or sends.
            await send(wire.client, produce_frame(1))
            assert await wire.reason() is CloseReason.BROKER_RESET

    on_loop(main())


@pytest.mark.parametrize("slow", ["client", "broker"])
def test_a_slow_reader_slows_its_peer_and_loses_nothing(slow: str) -> None:
    async def main() -> None:
        async with relayed(small_buffers=True) as wire:
            source, sink = (wire.broker, wire.client) if slow == "client" else (wire.client, wire.broker)
            frame = produce_frame(1, bytes(range(256)) * 4000)
            sender = asyncio.create_task(send(source, frame * 5))
            direction = wire.relay._down if slow == "client" else wire.relay._up
            before = -1
            while before != direction.bytes_read:  # until nobody reads any more
                before = direction.bytes_read
                await asyncio.sleep(0.2)
            assert before < 3 * BUFFER_BYTES
            assert len(direction._backlog) <= BUFFER_BYTES
            assert not sender.done()
            arrived = await receive(sink, 5 * len(frame))
            await sender
            assert hashlib.sha256(arrived).digest() == hashlib.sha256(frame * 5).digest()

    on_loop(main())


def test_the_end_after_a_slow_reader_comes_behind_the_last_byte() -> None:
    async def main() -> None:
        async with relayed(small_buffers=True) as wire:
            frame = framed(b"\0\0\0\1" + bytes(1_000_000))
            sender = asyncio.create_task(send(wire.broker, frame))
            await asyncio.sleep(0.05)
            reader = asyncio.create_task(receive(wire.client, len(frame)))
            await sender
            wire.broker.close()
            assert len(await reader) == len(frame)
            assert await at_end(wire.client)
            wire.client.close()
            await wire.reason()

    on_loop(main())


def test_a_client_that_is_gone_while_its_answer_waits_is_noticed() -> None:
    async def main() -> None:
        async with relayed(small_buffers=True) as wire:
            sender = asyncio.create_task(send(wire.broker, framed(b"\0\0\0\1" + bytes(5_000_000))))
            await eventually(lambda: bool(wire.relay._down._backlog), "a backlog")
            reset(wire.client)
            assert await wire.reason() is CloseReason.CLIENT_RESET
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                await sender

    on_loop(main())


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">i", -1), struct.pack(">i", 2**31 - 1)]
)
def test_garbage_from_the_client_ends_the_connection_after_the_answers_in_front_of_it(garbage: bytes) -> None:
    async def main() -> None:
        async with relayed() as wire:
            await send(wire.client, produce_frame(1, b"good") + garbage)
            assert (await receive_frame(wire.broker)).endswith(b"good")
            assert await receive(wire.broker, 4) == END_OF_REQUESTS
            await send(wire.broker, framed(b"\0\0\0\1answer"))
            assert (await receive_frame(wire.client)).endswith(b"answer")
            wire.broker.shutdown(socket.SHUT_WR)
            assert await wire.reason() is CloseReason.CLIENT_PROTOCOL_ERROR
            assert await at_end(wire.client)

    on_loop(main())


def test_a_push_that_the_core_can_not_read_ends_its_connection_after_the_answers_in_front_of_it() -> None:
    async def main() -> None:
        gate = Gate()
        cut = push(Uuid(bytes(range(16))), 1, b"")[4:-3]
        async with relayed(gate) as other, relayed(gate) as wire:
            await send(wire.client, produce_frame(1, b"good") + framed(cut))
            answers = Answers()
            produced, marker = [answers.to(await receive_frame(wire.broker)) for _ in range(2)]
            assert produced is not None
            assert marker is not None
            await send(wire.broker, framed(produced) + framed(marker))
            assert (await receive_frame(wire.client)).endswith(b"good")
            assert await receive(wire.broker, 4) == END_OF_REQUESTS
            wire.broker.shutdown(socket.SHUT_WR)
            assert await wire.reason() is CloseReason.CLIENT_PROTOCOL_ERROR
            assert wire.closed is not None
            assert "ClientInstanceId" in str(wire.closed[1])
            assert await at_end(wire.client)
            assert read_subscriptions(await exchange(other, get_subscriptions(), answers)).error_code == 0

    on_loop(main())


def test_a_broker_that_does_not_close_after_garbage_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("receiver.gateway.connection.connection._REFUSED_S", 0.1)

    async def main() -> None:
        async with relayed() as wire:
            await send(wire.client, struct.pack(">i", -1))
            assert await wire.reason() is CloseReason.CLIENT_PROTOCOL_ERROR
            assert await at_end(wire.client)

    on_loop(main())


def test_garbage_from_the_broker_closes_both_sides() -> None:
    async def main() -> None:
        async with relayed() as wire:
            await send(wire.broker, struct.pack(">i", -5) + b"what")
            assert await wire.reason() is CloseReason.BROKER_PROTOCOL_ERROR
            assert await at_end(wire.client)

    on_loop(main())


def test_a_mistake_of_ours_ends_the_connection_and_says_so() -> None:
    async def main() -> None:
        gate = Gate()

        def broken(*_: object, **__: object) -> None:
            raise ZeroDivisionError("ours")

        gate.events.report = broken  # type: ignore[method-assign]
        async with relayed(gate) as wire:
            await send(wire.client, api_versions(3))
            answer = Answers().to(await receive_frame(wire.broker))
            assert answer is not None
            await send(wire.broker, framed(answer))
            assert await wire.reason() is CloseReason.INTERNAL_ERROR
            assert wire.closed is not None
            assert isinstance(wire.closed[1], ZeroDivisionError)

    on_loop(main())


def test_a_refused_software_gets_its_answer_and_then_the_end() -> None:
    async def main() -> None:
        answers = Answers()
        async with relayed() as wire:
            refused = api_versions(3, client_software_name="not valid!")
            await send(wire.client, refused + produce_frame(2, b"too late"))
            marker = answers.to(await receive_frame(wire.broker))
            assert marker is not None
            await send(wire.broker, framed(marker))
            answer = await receive_frame(wire.client)
            assert read_api_versions(answer, 3).error_code == 42
            assert await wire.reason() is CloseReason.INVALID_REQUEST
            assert await receive(wire.broker, 1) == b""

    on_loop(main())


def test_a_client_with_too_many_answers_due_is_not_read_from_until_they_come() -> None:
    async def main() -> None:
        answers = Answers()
        async with relayed() as wire:
            markers = []
            while not wire.session.congested:
                await send(wire.client, api_versions(3))
                markers.append(await receive_frame(wire.broker))
            await send(wire.client, produce_frame(9, b"waits"))
            read = wire.relay.traffic[0]
            assert await is_silent(receive(wire.broker, 1))
            assert wire.relay.traffic[0] == read
            for marker in markers:
                answer = answers.to(marker)
                assert answer is not None
                await send(wire.broker, framed(answer))
                await receive_frame(wire.client)
            assert parse(await receive_frame(wire.broker)).body.endswith(b"waits")

    on_loop(main())


# -- drain -----------------------------------------------------------------------------------------


def test_a_retired_connection_takes_requests_and_closes_between_two() -> None:
    async def main() -> None:
        async with relayed() as wire:
            produce = produce_frame(1, b"one in flight")
            await send(wire.client, produce)
            assert await receive(wire.broker, len(produce)) == produce
            wire.relay.retire()
            await send(wire.client, get_subscriptions())
            answer = Answers().to(await receive_frame(wire.broker))
            assert answer is not None
            await send(wire.broker, framed(b"\0\0\0\1answer"))
            assert await receive_frame(wire.client) == b"\0\0\0\1answer"
            assert not wire.quiet()
            await send(wire.broker, framed(answer))
            assert read_subscriptions(await receive_frame(wire.client)).error_code == 0
            assert not wire.relay.is_drained(asyncio.get_running_loop().time()), "a push may follow at once"
            assert wire.quiet()

    on_loop(main())


@pytest.mark.parametrize("gate", [Gate, rewriting_gate], ids=["addresses kept", "addresses replaced"])
@pytest.mark.parametrize("cut", [0, 1, 5, 9], ids=lambda cut: f"cut at {cut}")
def test_a_retired_connection_closes_while_only_a_fetch_waits(cut: int, gate: Callable[[], Gate]) -> None:
    async def main() -> None:
        async with relayed(gate()) as wire:
            wire.relay.retire()
            await send(wire.client, get_subscriptions())
            marker = await receive_frame(wire.broker)
            await send(wire.client, FETCH[:cut])
            await eventually(lambda: not cut or bool(wire.session.due), "the first part")
            await send(wire.client, FETCH[cut:])
            assert len(await receive_frame(wire.broker)) == len(FETCH) - 4
            assert not wire.quiet(), "a get is in flight too"
            answer = Answers().to(marker)
            assert answer is not None
            await send(wire.broker, framed(answer))
            assert read_subscriptions(await receive_frame(wire.client)).error_code == 0
            await eventually(wire.quiet, "only the fetch")
            assert not wire.relay.is_drained(asyncio.get_running_loop().time())
            await send(wire.client, produce_frame(3))
            await receive_frame(wire.broker)
            assert not wire.quiet()

    on_loop(main())


def test_a_retired_connection_does_not_close_within_a_request() -> None:
    async def main() -> None:
        async with relayed() as wire:
            request = produce_frame(1, bytes(1000))
            wire.relay.retire()
            await send(wire.client, request[:3])
            await eventually(lambda: wire.relay.traffic[0] == 3, "the first part")
            assert not wire.quiet()
            await send(wire.client, request[3:])
            assert await receive(wire.broker, len(request)) == request
            await send(wire.broker, framed(b"\0\0\0\1answer")[:9])
            assert await receive(wire.client, 9) == framed(b"\0\0\0\1answer")[:9]
            assert not wire.quiet()
            await send(wire.broker, framed(b"\0\0\0\1answer")[9:])
            assert await receive(wire.client, 5) == b"nswer"
            assert wire.quiet()

    on_loop(main())


def test_a_request_that_the_drain_cuts_in_two_is_completed_and_answered() -> None:
    async def main() -> None:
        request = produce_frame(1, bytes(1000))
        async with relayed() as wire:
            await send(wire.client, request[:300])
            assert await receive(wire.broker, 300) == request[:300]
            wire.relay.drain()
            assert not wire.quiet()
            await send(wire.client, request[300:] + produce_frame(2, b"too late"))
            assert await receive(wire.broker, len(request) - 300) == request[300:]
            assert wire.quiet()
            assert await is_silent(receive(wire.broker, 1))
            await send(wire.broker, framed(b"\0\0\0\1answer"))
            assert await receive_frame(wire.client) == b"\0\0\0\1answer"

    on_loop(main())


@pytest.mark.parametrize("cut", [1, 3, 5, 9])
@pytest.mark.parametrize(
    "request_", [produce_frame(1, bytes(100)), get_subscriptions()], ids=["passed", "watched"]
)
def test_a_request_cut_in_its_head_is_completed(request_: bytes, cut: int) -> None:
    async def main() -> None:
        async with relayed() as wire:
            await send(wire.client, request_[:cut])
            await eventually(lambda: wire.relay.traffic[0] == cut, "the first part")
            wire.relay.drain()
            await send(wire.client, request_[cut:] + produce_frame(2))
            answer = Answers().to(await receive_frame(wire.broker))
            assert answer is not None
            await send(wire.broker, framed(answer))
            assert correlation_id_of(await receive_frame(wire.client)) == parse(request_[4:]).correlation_id
            assert await is_silent(receive(wire.broker, 1), 0.02)

    on_loop(main())


def test_an_answer_of_ours_in_flight_is_waited_for() -> None:
    async def main() -> None:
        async with relayed() as wire:
            await send(wire.client, get_subscriptions())
            marker = await receive_frame(wire.broker)
            wire.relay.drain()
            assert not wire.quiet()
            answer = Answers().to(marker)
            assert answer is not None
            await send(wire.broker, framed(answer))
            assert read_subscriptions(await receive_frame(wire.client)).error_code == 0
            assert wire.quiet()

    on_loop(main())


def test_a_request_that_is_cut_while_its_client_is_paused_is_completed_too() -> None:
    async def main() -> None:
        answers = Answers()
        async with relayed() as wire:
            request = produce_frame(9, b"half" * 100)
            # Until its client instance is decided, a connection reads little at once.
            await exchange(wire, api_versions(3), answers)
            # One send, so that the relay reads the answers' worth and half a request at once.
            await send(wire.client, api_versions(3) * 16 + request[:100])
            markers = [await receive_frame(wire.broker) for _ in range(16)]
            assert await receive(wire.broker, 100) == request[:100]
            assert wire.session.congested
            wire.relay.drain()
            for marker in markers:
                answer = answers.to(marker)
                assert answer is not None
                await send(wire.broker, framed(answer))
                await receive_frame(wire.client)
            await send(wire.client, request[100:])
            assert await receive(wire.broker, len(request) - 100) == request[100:]

    on_loop(main())


def test_a_client_with_many_fetches_is_read_again_after_their_responses() -> None:
    """Responses that pass unchanged end the pause too, although the relay need not rewrite them."""
    fetches = [request_frame(api_keys.FETCH, 16, number, bytes(60)) for number in range(2000)]
    # No topics, and no tagged fields.
    nothing = bytes(1 + 10) + b"\x01\0"

    async def main() -> None:
        # Pending requests may hold twice the bytes of a push, and this is about their work.
        async with relayed(gate=rewriting_gate(max_push_bytes=1 << 17)) as wire:
            sending = asyncio.create_task(send(wire.client, b"".join(fetches)))
            ids = [(await receive_frame(wire.broker))[4:8] for _ in range(500)]
            for number in range(len(fetches)):
                own = ids[number] if number < len(ids) else (await receive_frame(wire.broker))[4:8]
                await send(wire.broker, framed(own + nothing))
                assert await receive_frame(wire.client) == struct.pack(">i", number) + nothing
            await sending

    on_loop(main())
