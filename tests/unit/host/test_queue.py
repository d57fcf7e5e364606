from __future__ import annotations

import threading
import time
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.host.queue import PushQueue
from receiver.plugin import Push
from tests.unit.host.support import numbers, push, wait_for


def queue(max_items: int = 10, max_bytes: int = 1000) -> PushQueue:
    return PushQueue(max_items=max_items, max_bytes=max_bytes)


def take(q: PushQueue, max_items: int = 100, max_bytes: int = 10**9, linger_s: float = 0.0) -> list[int]:
    return numbers(q.take(max_items=max_items, max_bytes=max_bytes, linger_s=linger_s))


def test_pushes_come_out_in_order_and_batches_keep_both_limits() -> None:
    q = queue()
    for n in range(6):
        q.offer(push(n, size=10))
    assert take(q, max_items=2) == [0, 1]
    assert take(q, max_bytes=29) == [2, 3]
    assert take(q, max_bytes=1) == [4], "a single push may be larger than the batch's limit"
    assert take(q) == [5]
    assert q.statistics().bytes == 0


def test_the_oldest_make_room_in_items_and_in_bytes() -> None:
    q = queue(max_items=3, max_bytes=100)
    for n in range(5):
        q.offer(push(n, size=10))
    assert q.statistics().dropped_full == 2
    q.offer(push(5, size=85))
    assert take(q) == [4, 5]
    statistics = q.statistics()
    assert statistics.dropped_full == 4
    assert (statistics.high_water_items, statistics.high_water_bytes) == (3, 95)


def test_a_push_over_the_bound_is_dropped_alone() -> None:
    q = queue(max_bytes=100)
    q.offer(push(0))
    q.offer(push(1, size=101))
    q.offer(push(2, size=90))
    assert take(q) == [0, 2]
    assert q.statistics().dropped_full == 1


def test_closed_it_hands_out_the_rest_and_refuses_more() -> None:
    q = queue()
    q.offer(push(0))
    q.close()
    q.offer(push(1))
    assert take(q, linger_s=60) == [0], "it doesn't linger"
    assert take(q) == []
    assert q.statistics().dropped_closed == 1
    assert q.statistics().offered == 2


def test_clear_counts_what_it_throws_away() -> None:
    q = queue()
    q.offer(push(0))
    q.offer(push(1))
    assert q.clear() == 2
    assert (q.statistics().items, q.statistics().bytes) == (0, 0)


@pytest.mark.parametrize("act", ["offer", "close"])
def test_a_waiting_consumer_is_woken(act: str) -> None:
    q = queue()
    got: list[list[int]] = []
    thread = threading.Thread(target=lambda: got.append(take(q)))
    thread.start()
    wait_for(lambda: q._awaited_items == 1)
    if act == "offer":
        q.offer(push(3))
    else:
        q.close()
    thread.join(10)
    assert got == [[3] if act == "offer" else []]


def test_a_full_batch_ends_the_linger_time() -> None:
    q = queue()
    got: list[list[int]] = []
    thread = threading.Thread(target=lambda: got.append(take(q, max_items=3, linger_s=60)))
    thread.start()
    for n in range(3):
        q.offer(push(n))
    thread.join(10)
    assert got == [[0, 1, 2]]


def test_so_does_a_batch_of_enough_bytes() -> None:
    q = queue()
    q.offer(push(0, size=10))
    q.offer(push(1, size=10))
    assert take(q, max_bytes=20, linger_s=60) == [0, 1]


def test_the_linger_time_ends_a_batch_that_does_not_fill() -> None:
    q = queue()
    q.offer(push(0))
    began = time.monotonic()
    assert take(q, max_items=3, linger_s=0.05) == [0]
    assert 0.05 <= time.monotonic() - began < 5


def test_a_batch_larger_than_the_queue_is_not_waited_for() -> None:
    q = queue(max_items=4)
    q.offer(push(0))
    q.offer(push(1))
    assert take(q, max_items=100, linger_s=60) == [0, 1]
    small = queue(max_bytes=20)
    small.offer(push(0, size=10))
    assert take(small, linger_s=60) == [0]


operations = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(0, 40), st.just(0)),
        st.tuples(st.just("take"), st.integers(1, 5), st.integers(1, 60)),
    ),
    max_size=60,
)


@given(operations, st.integers(1, 6), st.integers(1, 60))
def test_it_behaves_as_its_model(ops: list[tuple[str, int, int]], max_items: int, max_bytes: int) -> None:
    q = queue(max_items, max_bytes)
    model: deque[Push] = deque()
    offered = out = 0

    def held() -> int:
        return sum(len(p.payload.data) for p in model)

    for name, one, other in ops:
        if name == "offer":
            p = push(offered, size=one)
            offered += 1
            q.offer(p)
            if one <= max_bytes:
                model.append(p)
                while len(model) > max_items or held() > max_bytes:
                    model.popleft()
        elif model:
            batch = [model.popleft()]
            while (
                model and len(batch) < one and sum(len(p.payload.data) for p in (*batch, model[0])) <= other
            ):
                batch.append(model.popleft())
            assert take(q, max_items=one, max_bytes=other) == numbers(batch)
            out += len(batch)
        statistics = q.statistics()
        assert (statistics.items, statistics.bytes) == (len(model), held())
        assert statistics.items <= max_items
        assert statistics.bytes <= max_bytes
        assert statistics.offered == offered == statistics.items + statistics.dropped_full + out


def test_nothing_is_lost_or_doubled_between_threads() -> None:
    q = queue(max_items=50, max_bytes=10**9)
    got: list[int] = []

    def consume() -> None:
        while batch := take(q, max_items=7, linger_s=0.0005):
            got.extend(batch)

    def produce(base: int) -> None:
        for n in range(base, base + 5000):
            q.offer(push(n))

    consumer = threading.Thread(target=consume)
    producers = [threading.Thread(target=produce, args=(base,)) for base in (0, 100_000)]
    for thread in (consumer, *producers):
        thread.start()
    for thread in producers:
        thread.join(30)
    q.close()
    consumer.join(30)
    assert not consumer.is_alive()
    assert len(got) == len(set(got))
    assert len(got) + q.statistics().dropped_full == 10_000 == q.statistics().offered
    for base in (0, 100_000):
        mine = [n for n in got if base <= n < base + 5000]
        assert mine == sorted(mine), "each producer's order is kept"
