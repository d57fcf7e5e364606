"""Bytes that pass a session unchanged, errors that end it, and its congestion."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from receiver.brokers.upstream import Upstream
from receiver.session.exchanges import watched_keys
from receiver.wire.errors import WireError
from tests.testbed.scripted_broker import framed, parse, produce_frame, request_frame, split
from tests.unit.session.support import (
    BYTE_BY_BYTE,
    MAX_FRAME_BYTES,
    MAX_PUSH_BYTES,
    WHOLE,
    Wire,
    api_versions,
    correlation_id_of,
    get_subscriptions,
    push,
    read_api_versions,
    read_subscriptions,
    sasl_handshake,
)

Wiring = Callable[..., Wire]

TOKEN_LIKE_GET = framed(struct.pack(">hhi", 71, 0, 9) + b"Gina\0Gina\0secret")
TOKEN_LIKE_API_VERSIONS = framed(struct.pack(">hhi", 18, 0, 9) + b"\xff\xff")


def after_the_first_request() -> Wire:
    wire = Wire()
    wire.exchange(produce_frame(0))
    return wire


def test_unwatched_frames_are_not_copied() -> None:
    wire = after_the_first_request()
    for count in (1, 3):
        chunk = memoryview(bytearray(produce_frame(1, b"x" * 1000) * count))
        assert wire.session.requests.feed(chunk) is chunk
        assert wire.session.responses.feed(chunk) is chunk


def test_an_unwatched_frame_in_many_chunks_is_not_copied() -> None:
    wire = after_the_first_request()
    data = bytearray(produce_frame(1, bytes(1000)) * 2)
    start = 0
    for end in (500, 700, 1014, 1100, len(data)):
        chunk = memoryview(data)[start:end]
        assert wire.session.requests.feed(chunk) is chunk
        start = end
    assert wire.session.due == 0


def test_all_other_requests_and_responses_pass(wire: Wire) -> None:
    others = [key for key in range(95) if key not in watched_keys(Upstream())]
    sent = b"".join(request_frame(key, 0, key, b"\0\0\0\1" + bytes([key])) for key in others)
    wire.send(sent)
    assert [request.data for request in wire.forwarded()] == split(sent)
    assert not wire.awaits()
    wire.receive(sent)
    assert wire.received() == split(sent)


def test_unknown_api_keys_pass(wire: Wire) -> None:
    sent = b"".join(request_frame(key, 7, key, b"new") for key in (95, 1000, 32767, -1, -32768))
    wire.send(sent)
    assert [request.data for request in wire.forwarded()] == split(sent)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 7, MAX_FRAME_BYTES + 1, 2**31 - 1])
def test_an_invalid_request_length_ends_the_connection(wire: Wire, length: int) -> None:
    expected = f"a frame length from 8 to {MAX_FRAME_BYTES} at offset 0, found {length}$"
    with pytest.raises(WireError, match=expected):
        wire.send(struct.pack(">i", length) + b"whatever")


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"]
)
def test_garbage_before_the_first_frame_ends_the_connection(wire: Wire, garbage: bytes) -> None:
    with pytest.raises(WireError, match="frame length"):
        wire.send(garbage)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3])
def test_an_invalid_response_length_ends_the_connection(wire: Wire, length: int) -> None:
    with pytest.raises(WireError, match="frame length"):
        wire.receive(struct.pack(">i", length) + b"whatever")


def test_an_unwatched_response_may_have_any_length() -> None:
    wire = Wire()
    head = memoryview(bytearray(struct.pack(">ii", 2**31 - 1, 1)))
    assert wire.session.responses.feed(head) is head


def test_an_awaited_response_has_a_limit() -> None:
    wire = Wire()
    wire.send(api_versions(3))
    (request,) = wire.forwarded()
    wire.session.responses.feed(memoryview(struct.pack(">ii", 5_000_000, request.correlation_id)))
    with pytest.raises(WireError, match="at most 4194304 bytes"):
        wire.session.responses.feed(memoryview(bytes(5_000_000)))


def test_a_malformed_answer_of_the_brokers_ends_the_connection(wire: Wire) -> None:
    wire.send(api_versions(3))
    (request,) = wire.forwarded()
    with pytest.raises(WireError):
        wire.receive(framed(struct.pack(">ihB", request.correlation_id, 0, 200)))


def test_due_is_the_missing_part_of_the_current_request() -> None:
    for request in (produce_frame(1, bytes(100)), api_versions(3), push(b"\1" * 16, 1, bytes(300_000))):  # type: ignore[arg-type]
        wire = Wire(arrival=WHOLE)
        for position in range(min(len(request), 300)):
            size = 1
            wire.session.requests.feed(memoryview(request[position : position + size]))
            due = wire.session.due
            assert 0 < due <= len(request) - position - 1 or (due == 0 and position == len(request) - 1)
        rest = len(request) - position - 1
        if rest:
            assert wire.session.due == rest
            wire.session.requests.feed(memoryview(request[position + 1 :]))
        assert wire.session.due == 0


# -- SaslHandshake -------------------------------------------------------------------------------


def test_requests_are_still_watched_after_handshake_v1(wire: Wire) -> None:
    wire.exchange(sasl_handshake(1))
    assert read_api_versions(wire.exchange(api_versions(3)), 3).error_code == 0


@pytest.mark.parametrize("token", [b"\0alice\0secret", TOKEN_LIKE_GET[4:], TOKEN_LIKE_API_VERSIONS[4:], b""])
@pytest.mark.parametrize("arrival", [WHOLE, BYTE_BY_BYTE])
def test_nothing_is_watched_after_handshake_v0(arrival: str, token: bytes) -> None:
    wire = Wire(arrival=arrival)
    handshake = sasl_handshake(0)
    wire.send(handshake)
    assert bytes(wire.to_broker) == handshake
    wire.answer()
    assert len(wire.received()) == 1
    wire.send(framed(token))
    assert bytes(wire.to_broker) == framed(token)
    wire.answer()
    assert wire.received() == [b""]
    wire.send(get_subscriptions())
    assert bytes(wire.to_broker) == get_subscriptions()
    assert wire.session.due == 0


@pytest.mark.parametrize("arrival", [WHOLE, BYTE_BY_BYTE])
def test_responses_pending_at_handshake_v0_are_still_replaced(arrival: str) -> None:
    wire = Wire(arrival=arrival)
    token = framed(b"\0alice\0secret")
    wire.send(api_versions(99, 1) + get_subscriptions(correlation_id=2) + sasl_handshake(0, 3) + token)
    assert wire.awaits()
    *requests, last = split(bytes(wire.to_broker))
    assert last == token[4:]
    assert len(requests) == 3
    # The tokens' answers may look like any answer too, even like a marker's.
    token_answer = framed(struct.pack(">i", parse(requests[0]).correlation_id))
    wire.to_broker[-len(token) :] = b""
    wire.answer()
    wire.receive(token_answer)
    first, second, third, fourth = wire.received()
    assert read_api_versions(first, 0).error_code == 35
    assert read_subscriptions(second, 2).error_code == 0
    assert correlation_id_of(third) == 3
    assert fourth == token_answer[4:]
    assert not wire.awaits()
    chunk = memoryview(b"\0")
    assert wire.session.responses.feed(chunk) is chunk
    assert wire.session.requests.feed(chunk) is chunk


# -- bounds --------------------------------------------------------------------------------------


def test_many_pending_requests_congest_until_their_responses_arrive() -> None:
    wire = Wire(max_push_bytes=1 << 20)  # of whose bytes they hold little
    for correlation_id in range(1, 16):
        wire.send(api_versions(3, correlation_id))
        assert not wire.congested()
    wire.send(api_versions(3, 16))
    assert wire.congested()
    wire.answer()
    assert not wire.congested()
    assert [correlation_id_of(answer) for answer in wire.received()] == list(range(1, 17))


def test_held_pushes_congest() -> None:
    wire = Wire()
    sent = 0
    while not wire.congested():
        wire.send(push(b"\1" * 16, 1, bytes(MAX_PUSH_BYTES), correlation_id=sent))  # type: ignore[arg-type]
        sent += 1
    assert sent == 2
    wire.answer()
    assert not wire.congested()
    assert len(wire.received()) == 2


def test_requests_after_one_that_closes_the_connection_are_not_answered(wiring: Wiring) -> None:
    wire = wiring()
    wire.send(
        produce_frame(1, b"before") + api_versions(3, 2, client_software_name="") + produce_frame(3, b"after")
    )
    wire.send(produce_frame(4, b"later"))
    wire.answer()
    assert wire.session.closing
    assert [correlation_id_of(answer) for answer in wire.received()] == [1, 2]
    wire.receive(produce_frame(5))
    assert wire.received() == []


def test_requests_cut_at_every_byte_give_the_same_result() -> None:
    requests = [
        produce_frame(1, bytes(50)),
        api_versions(5, 2),
        get_subscriptions(correlation_id=3),
        produce_frame(4, acks=0),
        api_versions(77, 5),
    ]
    stream = b"".join(requests)
    whole = Wire()
    whole.send(stream)
    whole.answer()
    expected = bytes(whole.to_client)
    chooser = random.Random(714)
    for _ in range(200):
        wire = Wire()
        cuts = sorted(chooser.sample(range(1, len(stream)), 3))
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            wire.send(stream[start:end])
        wire.answer()
        assert bytes(wire.to_client) == expected


def test_a_response_that_began_before_handshake_v0_arrives_whole() -> None:
    wire = Wire()
    wire.send(produce_frame(5))
    answer = framed(struct.pack(">ih", 5, 0))
    wire.receive(answer[:6])
    wire.send(sasl_handshake(0))
    wire.receive(answer[6:])
    assert bytes(wire.to_client) == answer
