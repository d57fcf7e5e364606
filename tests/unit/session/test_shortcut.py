"""The shortcut: telemetry is answered at once only when nothing is in flight."""

from __future__ import annotations

import struct

import pytest

from receiver.wire.api_keys import METADATA, SASL_HANDSHAKE
from receiver.wire.error_codes import ErrorCode
from receiver.wire.errors import WireError
from receiver.wire.uuid import ZERO_UUID
from tests.testbed.scripted_broker import framed, parse, produce_frame, request_frame, split
from tests.unit.session.support import Wire, api_versions, get_subscriptions, push, read_subscriptions

OTLP = b""


def with_answered_marker(security_protocol: str = "PLAINTEXT") -> Wire:
    """Return a wire on which the broker has answered a marker."""
    wire = Wire(security_protocol=security_protocol)
    read_subscriptions(wire.exchange(get_subscriptions()))
    assert [request.api_key for request in wire.seen()] == [METADATA]
    return wire


def is_answered_at_once(wire: Wire, request: bytes) -> bool:
    wire.received()
    wire.send(request)
    at_once = bool(wire.to_client)
    assert at_once != any(parse(data).api_key == METADATA for data in split(bytes(wire.to_broker)))
    return at_once


def test_the_first_request_of_a_connection_waits_for_the_broker() -> None:
    assert not is_answered_at_once(Wire(), get_subscriptions())


def test_a_request_with_nothing_in_flight_is_answered_at_once_each_time() -> None:
    wire = with_answered_marker()
    for _ in range(3):
        assert is_answered_at_once(wire, get_subscriptions(ZERO_UUID))
        assert is_answered_at_once(wire, push(ZERO_UUID, 1, OTLP))
    assert len(wire.seen()) == 1
    assert [outcome.response.error_code for _, outcome in wire.events.pushes] == [
        ErrorCode.INVALID_REQUEST
    ] * 3


def test_a_request_behind_one_in_flight_waits_for_it() -> None:
    wire = with_answered_marker()
    wire.send(produce_frame(5))
    assert not is_answered_at_once(wire, get_subscriptions())
    wire.answer()
    produced, subscriptions = wire.received()
    assert struct.unpack_from(">i", produced) == (5,)
    assert read_subscriptions(subscriptions).error_code == ErrorCode.NONE
    assert is_answered_at_once(wire, get_subscriptions())


def test_requests_in_one_chunk_are_answered_in_their_order() -> None:
    wire = with_answered_marker()
    wire.send(get_subscriptions() + produce_frame(5) + get_subscriptions() + produce_frame(6))
    wire.answer()
    first, produced, second, last = wire.received()
    assert read_subscriptions(first).error_code == read_subscriptions(second).error_code == ErrorCode.NONE
    assert [struct.unpack_from(">i", answer)[0] for answer in (produced, last)] == [5, 6]


def test_after_a_produce_without_response_markers_are_used() -> None:
    wire = with_answered_marker()
    wire.send(produce_frame(5, acks=0))
    wire.answer()
    for _ in range(2):
        assert not is_answered_at_once(wire, get_subscriptions())
        wire.answer()


def test_an_incomplete_response_is_not_interrupted() -> None:
    wire = with_answered_marker()
    wire.send(produce_frame(5))
    (request,) = split(bytes(wire.to_broker))
    wire.to_broker.clear()
    answer = framed(request[4:8] + b"x" * 100)
    wire.receive(answer[:50])
    wire.send(get_subscriptions())
    assert bytes(wire.to_client) == answer[:50]
    wire.receive(answer[50:])
    wire.answer()
    whole, subscriptions = wire.received()
    assert whole == answer[4:]
    assert read_subscriptions(subscriptions).error_code == ErrorCode.NONE


def test_an_api_versions_request_in_flight_is_waited_for() -> None:
    wire = with_answered_marker()
    wire.send(api_versions(3))
    assert not is_answered_at_once(wire, get_subscriptions())


@pytest.mark.parametrize("security_protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_with_sasl_every_request_needs_a_marker(security_protocol: str) -> None:
    wire = with_answered_marker(security_protocol)
    assert not is_answered_at_once(wire, get_subscriptions())


def test_a_login_on_a_listener_without_sasl_ends_the_shortcut() -> None:
    wire = with_answered_marker()
    assert is_answered_at_once(wire, get_subscriptions())
    wire.send(request_frame(SASL_HANDSHAKE, 1, 9, struct.pack(">h", 5) + b"PLAIN"))
    wire.answer()
    for _ in range(2):
        assert not is_answered_at_once(wire, get_subscriptions())
        wire.answer()


def test_a_flood_is_malformed_and_an_effect() -> None:
    wire = Wire()
    with pytest.raises(WireError, match="at most 32 requests for the receiver"):
        wire.send(get_subscriptions() * 33)
    wire.execute_effects()
    assert wire.events.floods == 1
