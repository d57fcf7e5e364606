"""The latest pushes: one of each instance, several of those looked at, and a bound for all."""

from receiver.telemetry.latest_pushes import LOOK_S, MAX_LOOKED_AT, MAX_PUSHES, LatestPushes
from receiver.wire.uuid import Uuid


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def record(latest: LatestPushes, number: int, *times: int, size: int = 10, now: float = 0.0) -> None:
    for time in times:
        latest.record(uuid(number), bytes(size), time, now)


def times(latest: LatestPushes, number: int, now: float = 0.0) -> list[int]:
    return [push.received_at_ns for push in latest.look(uuid(number), now)]


def test_one_push_is_kept_until_somebody_looks() -> None:
    latest = LatestPushes(1_000_000)
    record(latest, 5, 1, 2, 3)
    assert (times(latest, 5), latest.total_bytes) == ([3], 10)
    record(latest, 5, *range(4, 100))
    assert times(latest, 5) == list(range(100 - MAX_PUSHES, 100))
    record(latest, 5, 100, now=LOOK_S)
    assert (times(latest, 5), latest.total_bytes) == ([100], 10)
    assert times(latest, 6) == []


def test_beyond_the_bound_those_that_pushed_least_recently_are_without() -> None:
    latest = LatestPushes(30)
    for number in (5, 6, 7):
        record(latest, number, 1)
    record(latest, 5, 2)
    record(latest, 8, 3)
    assert [times(latest, number) for number in (5, 6, 7, 8)] == [[2], [], [1], [3]]
    record(latest, 9, 4, size=31)
    assert (times(latest, 9), latest.total_bytes) == ([], 30)
    latest.resize(10)
    assert [times(latest, number) for number in (5, 7, 8)] == [[], [], [3]]
    latest.resize(0)
    record(latest, 5, 5)
    assert (times(latest, 5), latest.total_bytes) == ([], 0)


def test_a_push_without_metrics_replaces_nothing() -> None:
    latest = LatestPushes(30)
    record(latest, 5, 1)
    record(latest, 5, 2, size=0)
    assert times(latest, 5) == [1]


def test_looks_are_bounded() -> None:
    latest = LatestPushes(1_000_000)
    for number in range(MAX_LOOKED_AT + 1):
        latest.look(uuid(number), 0.0)
    for number in (0, 1):
        record(latest, number, 1, 2)
    assert (times(latest, 0), times(latest, 1)) == ([2], [1, 2])


def test_a_forgotten_instance_takes_its_pushes_with_it() -> None:
    latest = LatestPushes(30)
    record(latest, 5, 1)
    latest.forget(uuid(5))
    latest.forget(uuid(6))
    assert (times(latest, 5), latest.total_bytes) == ([], 0)
