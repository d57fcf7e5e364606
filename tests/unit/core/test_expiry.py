"""Expiry: subscriptions end at their time, and only then is there a timer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from receiver.core.expiry import Expiry, Timer
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

    def wall_ns(self) -> int:
        return round(self.now.timestamp() * 1e9)

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


def names(one: SubscriptionSet) -> list[str]:
    return [subscription.name for subscription in one.subscriptions]


def test_each_subscription_ends_at_its_time() -> None:
    timers, ended = Timers(), list[str]()
    in_force: list[SubscriptionSet] = []
    expiry = Expiry(in_force.append, timers.wall_ns, timers.call_later, ended.append)
    three = [subscription("a", 0.5), subscription("b", 1.25), subscription("c", None)]
    expiry.put_in_force(SubscriptionSet(three))
    while timers.due:
        timers.run_next()
    assert [names(one) for one in in_force] == [["a", "b", "c"], ["b", "c"], ["c"]]
    assert timers.now == START + timedelta(minutes=1.25)
    assert ended == ["a", "b"]


def test_a_subscription_that_is_over_or_disabled_is_never_in_force() -> None:
    timers, ended = Timers(), list[str]()
    in_force: list[SubscriptionSet] = []
    expiry = Expiry(in_force.append, timers.wall_ns, timers.call_later, ended.append)
    off = Subscription("off", ("*",), enabled=False, expires_at=START + timedelta(hours=1))
    expiry.put_in_force(SubscriptionSet([subscription("over", -1), off]))
    assert names(in_force[0]) == []
    assert timers.due == []


def test_the_wall_clock_may_be_set() -> None:
    """A long wait looks at the clock each minute."""
    timers, ended = Timers(), list[str]()
    in_force: list[SubscriptionSet] = []
    expiry = Expiry(in_force.append, timers.wall_ns, timers.call_later, ended.append)
    expiry.put_in_force(SubscriptionSet([subscription("a", 600)]))
    assert timers.due[0].at == START + timedelta(minutes=1)
    due = timers.due.pop()
    timers.now = START + timedelta(hours=11)
    due.call()
    assert names(in_force[-1]) == []
    assert timers.due == []


def test_a_change_replaces_the_timer() -> None:
    timers, ended = Timers(), list[str]()
    in_force: list[SubscriptionSet] = []
    expiry = Expiry(in_force.append, timers.wall_ns, timers.call_later, ended.append)
    expiry.put_in_force(SubscriptionSet([subscription("a", 0.5)]))
    expiry.put_in_force(SubscriptionSet([subscription("a", 0.75)]))
    while timers.due:
        timers.run_next()
    assert [names(one) for one in in_force] == [["a"], ["a"], []]
    assert timers.now == START + timedelta(minutes=0.75)
    expiry.put_in_force(SubscriptionSet([subscription("b", 5)]))
    expiry.close()
    timers.run_next()
    assert names(in_force[-1]) == ["b"], "a closed expiry ends nothing"
