"""The memory queue: waiting, lingering, and the count of every push."""

from __future__ import annotations

import threading
import time

import pytest

from receiver.host.delivery.fair_queue import FairQueue
from receiver.host.delivery.memory_queue import MemoryQueue
from receiver.host.delivery.statistics import DropReason
from tests.unit.host.support import numbers, push, wait_for


def _never(_: bool) -> None:
    pytest.fail("nobody waits")


def log(max_items: int = 10, max_bytes: int = 1000) -> MemoryQueue:
    return MemoryQueue(FairQueue(max_items=max_items, max_bytes=max_bytes))


def read(one: MemoryQueue, max_items: int = 100, max_bytes: int = 10**9, linger_s: float = 0.0) -> list[int]:
    return numbers(one.read(max_items=max_items, max_bytes=max_bytes, linger_s=linger_s))


def test_what_is_read_is_in_flight_until_it_is_acknowledged() -> None:
    one = log()
    for n in range(4):
        assert one.offer(push(n), stored=_never) is False, "there is no disk to wait for"
    assert read(one, max_items=3) == [0, 1, 2]
    assert one.acknowledge(1)
    statistics = one.statistics()
    assert (statistics.offered, statistics.memory, statistics.in_flight, statistics.exported) == (4, 1, 2, 1)
    assert statistics.oldest_received_at_ns == push().context.received_at_ns
    assert one.acknowledge(2)
    assert read(one) == [3]
    one.acknowledge(1)
    assert one.statistics().oldest_received_at_ns is None


def test_the_oldest_go_at_the_bound_but_for_those_in_flight() -> None:
    one = log(max_items=3)
    for n in range(2):
        one.offer(push(n))
    assert read(one, max_items=1) == [0]
    for n in range(2, 6):
        one.offer(push(n))
    statistics = one.statistics()
    assert (statistics.dropped[DropReason.QUEUE_FULL], statistics.memory, statistics.in_flight) == (2, 3, 1)
    one.acknowledge(1)
    assert read(one) == [3, 4, 5]


def test_closed_it_hands_out_the_rest_and_refuses_more() -> None:
    one = log()
    one.offer(push(0))
    one.close(deadline=time.monotonic() + 60)
    one.offer(push(1))
    assert read(one, linger_s=60) == [0], "it doesn't linger"
    one.acknowledge(1)
    assert read(one) == []
    assert (one.statistics().dropped[DropReason.SHUTDOWN], one.statistics().offered) == (1, 2)


@pytest.mark.parametrize("how", ["leave", "abandon"])
def test_what_is_left_at_the_end_is_dropped_also_in_flight(how: str) -> None:
    one = log()
    for n in range(3):
        one.offer(push(n))
    read(one, max_items=2)
    assert getattr(one, how)() == 3
    assert not one.acknowledge(2), "they are counted already"
    statistics = one.statistics()
    assert (
        statistics.dropped[DropReason.SHUTDOWN],
        statistics.memory,
        statistics.in_flight,
        statistics.exported,
    ) == (3, 0, 0, 0)
    assert read(one) == []
    assert one.abandon() == 0


@pytest.mark.parametrize("act", ["offer", "close"])
def test_a_waiting_sender_is_woken(act: str) -> None:
    one = log()
    got: list[list[int]] = []
    thread = threading.Thread(target=lambda: got.append(read(one)))
    thread.start()
    wait_for(lambda: one._awaited_items == 1)
    if act == "offer":
        one.offer(push(3))
    else:
        one.close(deadline=0.0)
    thread.join(120)
    assert got == [[3] if act == "offer" else []]


def test_a_full_batch_ends_the_linger_time() -> None:
    one = log()
    got: list[list[int]] = []
    thread = threading.Thread(target=lambda: got.append(read(one, max_items=3, linger_s=60)))
    thread.start()
    for n in range(3):
        one.offer(push(n))
    thread.join(120)
    assert got == [[0, 1, 2]]


def test_so_does_a_batch_of_enough_bytes() -> None:
    one = log()
    one.offer(push(0, size=10))
    one.offer(push(1, size=10))
    assert read(one, max_bytes=20, linger_s=60) == [0, 1]


def test_the_linger_time_ends_a_batch_that_does_not_fill() -> None:
    one = log()
    one.offer(push(0))
    began = time.monotonic()
    assert read(one, max_items=3, linger_s=0.05) == [0]
    assert 0.05 <= time.monotonic() - began < 60


def test_a_batch_larger_than_the_queue_is_not_waited_for() -> None:
    one = log(max_items=4)
    one.offer(push(0))
    one.offer(push(1))
    assert read(one, max_items=100, linger_s=60) == [0, 1]
    small = log(max_bytes=20)
    small.offer(push(0, size=10))
    assert read(small, linger_s=60) == [0]


def test_nothing_is_lost_or_doubled_between_threads() -> None:
    one = log(max_items=50, max_bytes=10**9)
    got: list[int] = []

    def consume() -> None:
        while batch := read(one, max_items=7, linger_s=0.0005):
            got.extend(batch)
            assert one.acknowledge(len(batch))

    def produce(base: int) -> None:
        for n in range(base, base + 5000):
            one.offer(push(n))

    consumer = threading.Thread(target=consume)
    producers = [threading.Thread(target=produce, args=(base,)) for base in (0, 100_000)]
    for thread in (consumer, *producers):
        thread.start()
    for thread in producers:
        thread.join(120)
    one.close(deadline=time.monotonic() + 60)
    consumer.join(120)
    assert not consumer.is_alive()
    statistics = one.statistics()
    assert len(got) == len(set(got)) == statistics.exported
    assert len(got) + statistics.dropped[DropReason.QUEUE_FULL] == 10_000 == statistics.offered
    for base in (0, 100_000):
        mine = [n for n in got if base <= n < base + 5000]
        assert mine == sorted(mine), "each producer's order is kept"
