"""How long a throttled connection is muted."""

from __future__ import annotations

import pytest

from receiver.settings.limits import LimitsSettings, PeerLimitsSettings
from receiver.telemetry.control.limits import LimitName, Limits
from receiver.wire.error_codes import ErrorCode
from receiver.wire.uuid import Uuid
from tests.unit.session.support import (
    Wire,
    connection,
    get_subscriptions,
    push,
    read_push,
    read_subscriptions,
)

#: What a limit of one a second lets through at once.
BURST = 10


def over() -> Wire:
    """Return a wire whose peer has reached its limit of requests."""
    limits = Limits(LimitsSettings(source_address=PeerLimitsSettings(telemetry_requests_per_second=1)))
    wire = Wire(limits=limits)
    for _ in range(BURST):
        wire.exchange(get_subscriptions())
        assert wire.session.take_mute() == 0
    return wire


def refuse(wire: Wire) -> float:
    answer = read_subscriptions(wire.exchange(get_subscriptions()))
    # After an error, a Java client that has no subscription yet would wait for five minutes.
    assert answer.error_code == ErrorCode.NONE
    assert answer.requested_metrics == ()
    assert answer.push_interval_ms >= 1_000
    _, outcome = wire.events.subscriptions[-1]
    assert outcome.exceeded is not None
    assert outcome.exceeded.limit is LimitName.TELEMETRY_REQUESTS
    return wire.session.take_mute()


def test_the_mute_doubles_while_the_client_does_not_wait() -> None:
    wire = over()
    mutes = [refuse(wire) for _ in range(10)]
    assert mutes == pytest.approx([0.005 * 2**n for n in range(8)] + [1.0, 1.0])


def test_each_pipelined_request_doubles_the_mute() -> None:
    wire = over()
    wire.send(get_subscriptions() * 12)
    assert wire.session.take_mute() == 1.0
    assert wire.session.take_mute() == 0


def test_a_client_that_waits_gets_the_shortest_mute_whatever_its_neighbours_do() -> None:
    wire = over()
    neighbour = connection()
    for _ in range(5):
        assert refuse(wire) == 0.005
        wire.clock.now += 1.0
        assert wire.limits.telemetry_request(neighbour, wire.clock.now) is None


def test_muted_time_does_not_count_as_waiting() -> None:
    wire = over()
    for _ in range(9):
        mute = refuse(wire)
    wire.clock.now += mute - 0.5
    assert refuse(wire) == 1.0


def test_a_throttled_push_is_answered_with_an_error() -> None:
    wire = over()
    answer = wire.exchange(push(Uuid(bytes(15) + b"\7"), 1, b"x"))
    assert read_push(answer) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert wire.session.take_mute() == 0.005
    assert wire.events.exceeded[-1].limit is LimitName.TELEMETRY_REQUESTS
