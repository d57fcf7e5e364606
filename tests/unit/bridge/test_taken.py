"""A push that is sent again counts once."""

from __future__ import annotations

from receiver.bridge.frames import Result
from receiver.bridge.taken import TakenPushes

A, B, C = (bytes([number]) * 16 for number in range(3))


def test_a_repeat_is_a_duplicate() -> None:
    taken, results = TakenPushes(window=2, max_bridges=2), list[Result]()
    first = taken.begin(A, 1, results.append)
    assert first is not None
    first(Result.ACCEPTED)
    assert taken.begin(A, 1, results.append) is None
    assert results == [Result.ACCEPTED, Result.DUPLICATE]
    assert taken.begin(B, 1, results.append) is not None


def test_a_repeat_waits_for_the_first_one() -> None:
    taken, results = TakenPushes(window=2, max_bridges=2), list[tuple[str, Result]]()
    first = taken.begin(A, 1, lambda result: results.append(("first", result)))
    assert first is not None
    assert taken.begin(A, 1, lambda result: results.append(("again", result))) is None
    assert results == []
    first(Result.REFUSED)
    assert results == [("first", Result.REFUSED), ("again", Result.DUPLICATE)]


def test_two_windows_of_each_bridge_and_the_latest_bridges_are_remembered() -> None:
    taken, results = TakenPushes(window=2, max_bridges=2), list[Result]()
    for sequence in range(5):
        decided = taken.begin(A, sequence, results.append)
        assert decided is not None
        decided(Result.ACCEPTED)
    assert taken.begin(A, 1, results.append) is None
    assert taken.begin(A, 0, results.append) is not None
    taken.begin(B, 9, results.append)
    taken.begin(A, 4, results.append)
    taken.begin(C, 9, results.append)
    assert len(taken) == 2
    assert taken.begin(A, 4, results.append) is None
    assert taken.begin(B, 9, results.append) is not None
