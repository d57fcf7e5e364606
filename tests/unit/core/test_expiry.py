"""Expiry: subscriptions end at their time, and only then is there a timer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from receiver.core.expiry import Expiry, Timer
from receiver.telemetry.current_subscriptions import CurrentSubscriptions
from receiver.telemetry.subscription import Subscription, SubscriptionSet

START = datetime(2026, 11, 23, 12, tzinfo=UTC)


@dataclass
class Due:
    at: datetime
    call: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class Timers:
    """A wall clock that the test sets, and timers that it runs."""

    def __init__(self) -> None:
        self.now = START
        self.due: list[Due] = []

    def call_later(self, delay: float, call: Callable[[], None]) -> Timer:
        self.due.append(Due(self.now + timedelta(seconds=delay), call))
        return self.due[-1]

    def run_next(self) -> None:
        due = self.due.pop(0)
        if not due.cancelled:
            self.now = due.at
            due.call()


def subscription(name: str, minutes: float | None) -> Subscription:
    end = None if minutes is None else START + timedelta(minutes=minutes)
    return Subscription(name, ("*",), expires_at=end)


class Expiring:
    """An expiry, what is active after each change, and the names of those that ended."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.ended: list[str] = []
        self.current = CurrentSubscriptions()
        self.expiry = Expiry(self.current, lambda: self.timers.now, self.timers.call_later, self.ended.append)

    def put_in_force(self, *subscriptions: Subscription) -> None:
        self.current.replace(SubscriptionSet(subscriptions), self.timers.now)
        self.expiry.wait()

    def active(self) -> list[str]:
        return [item.name for item in self.current.active.subscriptions]


def test_subscriptions_end_after_a_defect_too() -> None:
    expiring = Expiring()

    def fail(name: str) -> None:
        raise LookupError(name)

    expiring.expiry = Expiry(expiring.current, lambda: expiring.timers.now, expiring.timers.call_later, fail)
    expiring.put_in_force(subscription("a", 1), subscription("b", 2))
    for left in (["b"], []):
        with pytest.raises(LookupError):
            expiring.timers.run_next()
        assert expiring.active() == left


def test_each_subscription_ends_at_its_time() -> None:
    expiring = Expiring()
    expiring.put_in_force(subscription("a", 0.5), subscription("b", 1.25), subscription("c", None))
    active = [expiring.active()]
    while expiring.timers.due:
        expiring.timers.run_next()
        active.append(expiring.active())
    assert active == [["a", "b", "c"], ["b", "c"], ["c"]]
    assert expiring.timers.now == START + timedelta(minutes=1.25)
    assert expiring.ended == ["a", "b"]
    assert [item.name for item in expiring.current.every.subscriptions] == ["a", "b", "c"]


def test_a_subscription_that_is_over_or_disabled_is_never_active() -> None:
    expiring = Expiring()
    off = Subscription("off", ("*",), enabled=False, expires_at=START + timedelta(hours=1))
    expiring.put_in_force(subscription("over", -1), off)
    assert expiring.active() == []
    assert expiring.timers.due == []


def test_the_wall_clock_may_be_set() -> None:
    """A long wait looks at the clock each minute."""
    expiring = Expiring()
    expiring.put_in_force(subscription("a", 600))
    timers = expiring.timers
    assert timers.due[0].at == START + timedelta(minutes=1)
    due = timers.due.pop()
    timers.now = START + timedelta(hours=11)
    due.call()
    assert expiring.active() == []
    assert timers.due == []


def test_a_change_replaces_the_timer() -> None:
    expiring = Expiring()
    timers = expiring.timers
    expiring.put_in_force(subscription("a", 0.5))
    expiring.put_in_force(subscription("a", 0.75))
    timers.run_next()
    assert expiring.active() == ["a"], "the first timer is cancelled"
    timers.run_next()
    assert expiring.active() == []
    assert timers.now == START + timedelta(minutes=0.75)
    expiring.put_in_force(subscription("b", 5))
    expiring.expiry.close()
    timers.run_next()
    assert expiring.active() == ["b"], "a closed expiry ends nothing"


def test_clients_are_matched_anew_only_when_something_ends() -> None:
    expiring = Expiring()
    expiring.put_in_force(subscription("a", 1.5))
    active = expiring.current.active
    expiring.timers.run_next()
    assert expiring.current.active is active
    expiring.timers.run_next()
    assert expiring.current.active is not active
