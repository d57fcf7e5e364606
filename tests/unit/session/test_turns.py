"""The cost of one client: pushes per turn, and CPU time per peer."""

from __future__ import annotations

from receiver.settings.limits import LimitsSettings, PeerLimitsSettings
from receiver.telemetry.control.limits import LimitName, Limits
from receiver.wire.api_keys import METADATA
from receiver.wire.error_codes import ErrorCode
from receiver.wire.uuid import Uuid
from tests.testbed.scripted_broker import framed, parse, split
from tests.unit.session.support import (
    Clock,
    Wire,
    api_versions,
    get_subscriptions,
    push,
    read_push,
    read_subscriptions,
    sasl_handshake,
)
from tests.unit.session.test_shortcut import with_answered_marker

INSTANCE = Uuid(bytes(15) + b"\x09")


class Processor(Clock):
    """A clock whose CPU time advances with each reading."""

    step_s = 0.0
    used_s = 0.0

    def cpu(self) -> float:
        self.used_s += self.step_s
        return self.used_s


def limited(clock: Clock) -> Wire:
    peer = PeerLimitsSettings(core_ms_per_second=10)
    return Wire(limits=Limits(LimitsSettings(source_address=peer)), clock=clock)


def test_one_chunk_of_requests_decides_one_of_them() -> None:
    wire = with_answered_marker()
    wire.send(b"".join(push(INSTANCE, 1, b"x", correlation_id=number) for number in range(5)))
    assert len(wire.events.pushes) == 1
    assert [parse(data).api_key for data in split(bytes(wire.to_broker))] == [METADATA] * 4
    wire.answer()
    assert len(wire.events.pushes) == 5
    assert [int.from_bytes(answer[:4], "big") for answer in wire.received()] == [0, 1, 2, 3, 4]


def test_answers_of_the_broker_are_read_one_by_one_while_several_pushes_wait() -> None:
    wire = Wire()
    wire.send(b"".join(push(INSTANCE, 1, b"x", correlation_id=number) for number in range(5)))
    assert wire.session.decides_later
    answers = b"".join(
        framed(answer)
        for data in split(bytes(wire.to_broker))
        if (answer := wire.answers.to(data)) is not None
    )
    wire.to_broker.clear()
    decided = []
    while answers:
        size = wire.session.answer_bytes_in_a_turn()
        before = len(wire.events.pushes)
        wire.receive(answers[:size])
        answers = answers[size:]
        decided.append(len(wire.events.pushes) - before)
    assert sum(decided) == 5
    assert max(decided) == 1
    assert not wire.session.decides_later


def test_one_waiting_push_does_not_limit_reading() -> None:
    wire = Wire()
    wire.send(push(INSTANCE, 1, b"x"))
    assert not wire.session.decides_later


def test_only_cpu_time_is_charged() -> None:
    """On a busy machine a decision takes much wall time."""
    clock = Processor()
    wire = limited(clock)
    for _ in range(50):
        clock.now += 10.0
        instance = Uuid(clock.now.hex().encode()[:16].ljust(16, b"-"))
        assert read_subscriptions(wire.exchange(get_subscriptions(instance))).error_code == 0
    assert wire.events.exceeded == []
    assert wire.session.take_mute() == 0.0


def test_cpu_time_is_charged_before_the_login() -> None:
    clock = Processor()
    wire = limited(clock)
    clock.step_s = 0.5
    wire.send(api_versions(3))
    wire.send(sasl_handshake(1))
    assert wire.limits.overspent(wire.connection, wire.clock.now) is not None
    assert wire.events.exceeded[-1].limit is LimitName.CORE_TIME
    assert wire.session.take_mute() > 0


def test_pipelined_pushes_are_charged_one_by_one() -> None:
    clock = Processor()
    wire = limited(clock)
    read_subscriptions(wire.exchange(get_subscriptions(INSTANCE)))
    wire.send(b"".join(push(INSTANCE, 1, b"x", correlation_id=number) for number in range(4)))
    clock.step_s = 1.0
    wire.answer()
    codes = [read_push(answer, number) for number, answer in enumerate(wire.received())]
    # The first took the shortcut at no cost. The second is decided and uses up the limit.
    assert len(wire.events.pushes) == 2
    assert codes[2:] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2


def test_each_answer_is_charged_the_cpu_time_between_its_readings() -> None:
    clock = Processor()
    clock.step_s = 2**-10
    wire = Wire(clock=clock)
    subscriptions = read_subscriptions(wire.exchange(get_subscriptions()))
    wire.exchange(push(subscriptions.client_instance_id, subscriptions.subscription_id, b""))
    assert wire.events.seconds == [2**-10, 2**-10]
