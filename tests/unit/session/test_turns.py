"""The cost of one client in a turn: at most one call, and work that is charged."""

from __future__ import annotations

from receiver.session.call import OpenCall
from receiver.wire.api_keys import METADATA
from receiver.wire.uuid import Uuid
from tests.testbed.scripted_broker import framed, parse, produce_frame, split
from tests.unit.session.support import Wire, api_versions, push, sasl_handshake
from tests.unit.session.test_shortcut import with_answered_marker

INSTANCE = Uuid(bytes(15) + b"\x09")


def test_one_chunk_of_requests_decides_one_of_them() -> None:
    wire = with_answered_marker()
    wire.send(b"".join(push(INSTANCE, 1, b"x", correlation_id=number) for number in range(5)))
    assert len(wire.events.pushes) == 1
    assert [parse(data).api_key for data in split(bytes(wire.to_broker))] == [METADATA] * 4
    wire.answer()
    assert len(wire.events.pushes) == 5
    assert [int.from_bytes(answer[:4], "big") for answer in wire.received()] == [0, 1, 2, 3, 4]


def test_responses_are_read_one_by_one_while_pushes_wait() -> None:
    wire = Wire()
    wire.send(b"".join(push(INSTANCE, 1, b"x", correlation_id=number) for number in range(5)))
    answers = b"".join(
        framed(answer)
        for data in split(bytes(wire.to_broker))
        if (answer := wire.answers.to(data)) is not None
    )
    decided = []
    while answers:
        assert wire.session.may_call
        size = wire.session.response_bytes_in_a_turn()
        before = len(wire.events.pushes)
        wire.receive(answers[:size])
        answers = answers[size:]
        decided.append(len(wire.events.pushes) - before)
    assert sum(decided) == 5
    assert max(decided) == 1
    assert not wire.session.may_call


def test_nothing_is_read_from_the_broker_while_a_call_is_open() -> None:
    wire = with_answered_marker()
    wire.session.requests.feed(memoryview(push(INSTANCE, 1, b"x")))
    (call,) = wire.session.take_effects()
    assert isinstance(call, OpenCall)
    assert wire.session.calling
    assert wire.session.awaiting
    assert wire.session.held_bytes > 0
    assert wire.session.answered(b"answer") == b"answer"
    assert wire.session.answered(b"of no open call") == b""
    assert (wire.session.calling, wire.session.held_bytes) == (False, 0)


def test_work_is_reported_before_the_login_and_once() -> None:
    wire = Wire(security_protocol="SASL_PLAINTEXT")
    for request in (api_versions(3), sasl_handshake(1)):
        wire.session.requests.feed(memoryview(request))
        assert wire.session.take_worked()
        assert not wire.session.take_worked()
    wire.session.requests.feed(memoryview(produce_frame(1, b"records")))
    assert not wire.session.take_worked()
