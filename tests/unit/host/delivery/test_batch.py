"""Which part of a batch is exported next, and which push is at fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.host.delivery.batch import Batch
from receiver.host.delivery.observed_export import Accepted, Refused
from receiver.host.delivery.statistics import DropReason
from tests.unit.host.support import numbers, push

#: What a destination answers to pushes, in a call of this number: whether it takes them.
Takes = Callable[[list[int], int], bool]


def delivered(
    count: int, takes: Takes, *, max_items: int = 8, more: int = 0, calls: int = 5_000
) -> tuple[list[int], list[int], list[list[int]]]:
    """Export a batch; return accepted and dropped pushes, in order, and the calls."""
    batch = Batch([push(number) for number in range(count)], max_items)
    accepted: list[int] = []
    dropped: list[int] = []
    made: list[list[int]] = []
    while not batch.is_done and len(made) < calls:
        if more and batch.has_only_suspects:
            batch.extend([push(count)])
            count, more = count + 1, more - 1
        part, _ = batch.next(one_push=False)
        sent = numbers(part.pushes)
        made.append(sent)
        if takes(sent, len(made)):
            batch.finish(part, Accepted(0))
        elif len(sent) > 1:
            batch.halve(part)
        else:
            batch.suspect(part, float(len(made)), DropReason.PERMANENT)
        for finished, outcome in batch.take_finished():
            (dropped if isinstance(outcome, Refused) else accepted).extend(numbers(finished.pushes))
    return accepted, dropped, made


@given(
    count=st.integers(1, 40),
    bad=st.sets(st.integers(0, 39), max_size=6),
    max_items=st.integers(1, 16),
)
def test_just_the_pushes_at_fault_are_dropped(count: int, bad: set[int], max_items: int) -> None:
    bad = {number for number in bad if number < count}
    accepted, dropped, _ = delivered(
        count, lambda sent, _: not bad.intersection(sent), max_items=max_items, more=60
    )
    assert dropped == sorted(bad)
    assert accepted == [number for number in range(len(accepted) + len(dropped)) if number not in bad]


@given(count=st.integers(1, 40), away=st.integers(1, 200), max_items=st.integers(1, 16))
def test_an_outage_drops_nothing_and_keeps_the_order(count: int, away: int, max_items: int) -> None:
    accepted, dropped, calls = delivered(count, lambda _, call: call > away, max_items=max_items)
    assert (accepted, dropped) == (list(range(count)), [])
    assert len(calls) <= away + count


def test_the_order_of_the_attempts() -> None:
    accepted, dropped, calls = delivered(8, lambda sent, _: 5 not in sent)
    assert calls == [
        list(range(8)),
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [4, 5],
        [4],
        [5],
        [6],
        [5],
        [7],
        [5],
        *[[5]] * (len(calls) - 10),
    ]
    assert (accepted, dropped) == ([0, 1, 2, 3, 4], []), "two others are not enough to compare with"


def test_a_push_that_fails_by_chance_is_not_dropped() -> None:
    # Every second call fails, as where one of two servers behind an address is broken.
    accepted, dropped, _ = delivered(8, lambda sent, call: call % 2 == 0)
    assert (accepted, dropped) == (list(range(8)), [])


def test_an_open_circuit_asks_with_one_push() -> None:
    batch = Batch([push(number) for number in range(4)], 8)
    part, at_once = batch.next(one_push=True)
    assert (numbers(part.pushes), at_once) == ([0], False)
    batch.retry(part, 1.0, None)
    assert batch.next(one_push=True)[0] is part
    batch.finish(part, Accepted(0))
    assert numbers(batch.next(one_push=False)[0].pushes) == [1, 2, 3]


@pytest.mark.parametrize("retry_after_s", [None, 7.0])
def test_a_failure_counts_from_the_first(retry_after_s: float | None) -> None:
    batch = Batch([push()], 8)
    part, _ = batch.next(one_push=False)
    batch.retry(part, 5.0, 1.0)
    batch.retry(part, 6.0, retry_after_s)
    assert (part.failures, part.failed_at, part.retry_after_s) == (2, 5.0, retry_after_s)
