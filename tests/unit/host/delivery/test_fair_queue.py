"""The fair queue: its bounds, and which pushes it drops at them."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from receiver.host.delivery.fair_queue import FairQueue, Queued
from tests.unit.host.support import push


def queued(number: int, size: int = 10) -> Queued:
    return Queued(push(number, size=size), size, float(number))


def offered_at(pushes: object) -> list[int]:
    assert isinstance(pushes, list | tuple)
    return [int(item.since) for item in pushes]


def test_pushes_come_out_in_order_and_batches_keep_both_limits() -> None:
    queue = FairQueue(max_items=10, max_bytes=1000)
    for n in range(6):
        assert queue.add(queued(n)) == []
    assert offered_at(queue.take(2, 1000)) == [0, 1]
    assert offered_at(queue.take(100, 29)) == [2, 3]
    assert offered_at(queue.take(100, 1)) == [4], "a single push may be larger than the batch's limit"
    assert offered_at(queue.take(100, 1000)) == [5]
    assert (len(queue), queue.bytes, queue.oldest) == (0, 0, None)


def test_the_oldest_make_room_in_items_and_in_bytes() -> None:
    queue = FairQueue(max_items=3, max_bytes=100)
    for n in range(3):
        queue.add(queued(n))
    assert offered_at(queue.add(queued(3))) == [0]
    assert offered_at(queue.add(queued(4, 85))) == [1, 2]
    assert (queue.high_water_items, queue.high_water_bytes) == (3, 95)


def test_a_push_over_the_bound_goes_alone() -> None:
    queue = FairQueue(max_items=3, max_bytes=100)
    queue.add(queued(0))
    assert offered_at(queue.add(queued(1, 101))) == [1]
    assert offered_at(queue.add(queued(2, 100))) == [0]


def test_what_is_reserved_still_counts() -> None:
    queue = FairQueue(max_items=4, max_bytes=100)
    for n in range(3):
        queue.add(queued(n))
    taken = queue.take(2, 1000)
    queue.reserve(taken)
    queue.add(queued(3))
    assert offered_at(queue.add(queued(4))) == [2], "what is reserved can't go"
    assert offered_at(queue.add(queued(5, 81))) == [5], "and what doesn't fit beside it goes itself"
    queue.put_back(taken)
    queue.reserve(())
    assert [item.since for item in queue] == [0, 1, 3, 4]
    assert queue.bytes == 40
    queue.reserve(queue.take(4, 1000))
    assert offered_at(queue.add(queued(6))) == [6]


def test_half_full_is_by_items_or_by_bytes() -> None:
    queue = FairQueue(max_items=4, max_bytes=100)
    seen = []
    for number, size in enumerate((10, 10, 10)):
        queue.add(queued(number, size))
        seen.append(queue.more_than_half_full)
    assert seen == [False, False, True]
    queue.take(3, 1000)
    for number, size in enumerate((50, 1)):
        queue.add(queued(number, size))
        seen.append(queue.more_than_half_full)
    assert seen[3:] == [False, True]


operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 40), st.just(0)),
        st.tuples(st.just("take"), st.integers(1, 5), st.integers(1, 60)),
    ),
    max_size=60,
)


@given(operations, st.integers(1, 6), st.integers(1, 60))
def test_it_behaves_as_its_model(ops: list[tuple[str, int, int]], max_items: int, max_bytes: int) -> None:
    queue = FairQueue(max_items=max_items, max_bytes=max_bytes)
    model: deque[Queued] = deque()
    for number, (name, op, other) in enumerate(ops):
        if name == "add":
            new = queued(number, op)
            expected = [new]
            if op <= max_bytes:
                model.append(new)
                expected = []
                while len(model) > max_items or sum(q.size for q in model) > max_bytes:
                    expected.append(model.popleft())
            assert list(queue.add(new)) == expected
        else:
            batch: list[Queued] = []
            while (
                model and len(batch) < op and (not batch or sum(q.size for q in (*batch, model[0])) <= other)
            ):
                batch.append(model.popleft())
            assert queue.take(op, other) == batch
        assert (len(queue), queue.bytes) == (len(model), sum(q.size for q in model))


def of(number: int, block: str, size: int = 10) -> Queued:
    one = push(number, size=size)
    return Queued(replace(one, context=replace(one.context, source_address=block)), size, float(number))


def test_a_site_pushes_out_its_own_pushes_only() -> None:
    queue = FairQueue(max_items=10, max_bytes=1_000)
    for n in range(4):
        assert queue.add(of(n, "10.0.0.7")) == []
    gone = [item for n in range(100, 1_100) for item in queue.add(of(n, f"2001:db8:6:{n:x}::1", size=99))]
    assert {item.block for item in gone} == {"2001:db8:6::/48"}
    kept = offered_at(queue.take(100, 10_000))
    assert kept[:4] == [0, 1, 2, 3]
    assert kept[-1] == 1_099, "the newest of the other"
    assert (len(queue), queue.bytes) == (0, 0)


def test_a_push_larger_than_what_any_other_site_has_goes_itself() -> None:
    queue = FairQueue(max_items=10, max_bytes=100)
    for n in range(4):
        queue.add(of(n, "10.0.0.7"))
    assert offered_at(queue.add(of(9, "10.6.6.6", size=90))) == [9]
    assert offered_at(queue.take(100, 1_000)) == [0, 1, 2, 3]


@given(
    pushes=st.lists(st.tuples(st.sampled_from(("10.6.6.1", "10.6.6.2")), st.integers(1, 400)), max_size=60),
    taken=st.integers(0, 3),
)
def test_a_site_within_its_share_loses_nothing(pushes: list[tuple[str, int]], taken: int) -> None:
    queue = FairQueue(max_items=30, max_bytes=1_200)
    mine = [of(n, "10.0.0.7", size=30) for n in range(5)]
    for item in mine:
        queue.add(item)
    for n, (block, size) in enumerate(pushes, start=100):
        gone = queue.add(of(n, block, size))
        assert not any(item in gone for item in mine)
        if n % 10 == 0:
            queue.put_back(queue.take(taken, 10_000))
    assert queue.bytes == sum(item.size for item in queue) <= 1_200
    assert len(queue) <= 30
    assert [item for item in queue if item in mine] == mine
