"""On a real disk a queue keeps every push in one place, in order, and loses none."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from receiver.host.delivery.disk_queue import DiskQueue
from receiver.host.delivery.statistics import DropReason
from tests.exploration import examples
from tests.unit.host.disks import Clock, disk_queue, due, full_disk, killed, read
from tests.unit.host.support import numbers, push


def places(queue: DiskQueue) -> int:
    statistics = queue.statistics()
    return (
        statistics.memory
        + statistics.disk
        + statistics.in_flight
        + statistics.exported
        + sum(statistics.dropped.values())
    )


class AnyLog(RuleBasedStateMachine):
    """A queue with bounds that are often met, on a disk that is full now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.offered = 0
        self.in_flight: list[int] = []
        self.acknowledged: list[int] = []
        self.waiting: dict[int, int] = {}

    @initialize(
        after_s=st.sampled_from([None, 0.0, 1.0]),
        max_items=st.integers(1, 12),
        disk_bytes=st.sampled_from([1 << 13, 1 << 20]),
    )
    def begin(self, after_s: float | None, max_items: int, disk_bytes: int) -> None:
        self.queue = disk_queue(
            Path(self.folder.name, "spool"),
            self.clock,
            after_s=after_s,
            max_items=max_items,
            max_bytes=6000,
            disk_bytes=disk_bytes,
            segment_bytes=1 << 11,
        )
        self.always = after_s is None
        self.max_items = max_items

    @rule(count=st.integers(1, 6), size=st.integers(0, 900))
    def offer(self, count: int, size: int) -> None:
        for _ in range(count):
            number = self.offered
            self.offered += 1
            data = (number.to_bytes(4, "big") * 225)[:size]
            waits = self.queue.offer(push(number, data=data), self.stored(number))
            assert self.always or not waits
            if waits:
                self.waiting.setdefault(number, 0)
            else:
                assert number not in self.waiting

    def stored(self, number: int) -> Callable[[bool], None]:
        def call(_: bool) -> None:
            self.waiting[number] = self.waiting.get(number, 0) + 1

        return call

    @precondition(lambda self: not self.in_flight)
    @rule(max_items=st.integers(1, 8))
    def read(self, max_items: int) -> None:
        self.in_flight = read(self.queue, max_items)
        assert len(self.in_flight) <= max_items

    @precondition(lambda self: self.in_flight)
    @rule(max_items=st.integers(1, 8))
    def read_more(self, max_items: int) -> None:
        more = self.queue.read_more(max_items=max_items, max_bytes=10**9)
        assert len(more) <= max_items
        self.in_flight += numbers(more)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, len(self.in_flight)))
        assert self.queue.acknowledge(count)
        self.acknowledged += self.in_flight[:count]
        del self.in_flight[:count]

    @rule(seconds=st.sampled_from([0.4, 1.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(full=st.sampled_from([False, False, False, True]))
    def spool(self, full: bool) -> None:
        if not due(self.queue, self.clock):
            return
        if full:
            with full_disk():
                assert not self.queue.write()
        else:
            assert self.queue.write()

    @invariant()
    def every_push_is_in_one_place(self) -> None:
        if not hasattr(self, "queue"):
            return
        statistics = self.queue.statistics()
        assert statistics.offered == self.offered
        assert statistics.recovered == 0
        assert places(self.queue) == self.offered
        assert statistics.in_flight == len(self.in_flight)
        assert statistics.exported == len(self.acknowledged)
        assert statistics.memory <= self.max_items
        assert statistics.dropped[DropReason.SPOOL_DAMAGED] == 0

    @invariant()
    def in_order_and_once(self) -> None:
        assert all(a < b for a, b in zip(self.acknowledged, self.acknowledged[1:], strict=False))

    @invariant()
    def nobody_is_told_twice(self) -> None:
        assert all(times <= 1 for times in self.waiting.values())

    def teardown(self) -> None:
        with self.folder:
            self.come_to_the_end()

    def come_to_the_end(self) -> None:
        if hasattr(self, "queue"):
            if self.in_flight:
                self.queue.acknowledge(len(self.in_flight))
                self.acknowledged += self.in_flight
            while not self.queue._readable_unwritten and due(self.queue, self.clock):
                assert self.queue.write()
            while found := read(self.queue, 5):
                self.queue.acknowledge(len(found))
                self.acknowledged += found
            self.in_order_and_once()
            self.in_flight = []
            self.every_push_is_in_one_place()
            statistics = self.queue.statistics()
            assert (statistics.memory, statistics.disk) == (0, 0)
            assert all(times == 1 for times in self.waiting.values())
            assert self.queue.finish() == 0


class SpoolAlways(RuleBasedStateMachine):
    """A queue that writes every push, whose process is killed now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.offered = 0
        self.stored: set[int] = set()
        self.in_flight: list[int] = []
        self.delivered: set[int] = set()
        self.latest = -1
        self.killed = False
        self.queue = self.new_log()

    def new_log(self) -> DiskQueue:
        return disk_queue(Path(self.folder.name), self.clock, max_items=10_000)

    @rule(count=st.integers(1, 20))
    def offer(self, count: int) -> None:
        for _ in range(count):
            number = self.offered
            self.offered += 1
            assert self.queue.offer(push(number), partial(self.told, number))

    def told(self, number: int, safe: bool) -> None:
        assert safe
        self.stored.add(number)

    @precondition(lambda self: due(self.queue, self.clock))
    @rule(full=st.booleans())
    def spool(self, full: bool) -> None:
        with full_disk() if full else contextlib.nullcontext():
            assert self.queue.write() != (full and self.queue._disk.problem is not None)
        self.clock.now += 60

    @precondition(lambda self: not self.in_flight)
    @rule(max_items=st.integers(1, 30))
    def read(self, max_items: int) -> None:
        self.in_flight = read(self.queue, max_items)
        assert set(self.in_flight) <= self.stored or self.queue._disk.problem is not None

    @precondition(lambda self: self.in_flight)
    @rule()
    def deliver(self) -> None:
        assert all(a < b for a, b in zip((self.latest, *self.in_flight), self.in_flight, strict=False))
        self.latest = self.in_flight[-1]
        self.delivered |= set(self.in_flight)
        assert self.queue.acknowledge(len(self.in_flight))
        self.in_flight = []

    @rule()
    def kill(self) -> None:
        killed(self.queue)
        self.killed = True
        self.restart()

    @rule()
    def end(self) -> None:
        assert self.queue.finish() == 0
        self.stored = set(range(self.offered))
        self.restart()
        if not self.killed:  # else what was delivered shortly before may come again
            assert self.queue.statistics().disk == len(self.stored - self.delivered)

    def restart(self) -> None:
        self.in_flight = []
        self.latest = -1
        # What was in memory alone is lost by a kill, and whoever offered it was told nothing.
        self.offered = max(self.stored, default=-1) + 1
        self.queue = self.new_log()

    def teardown(self) -> None:
        with self.folder:
            killed(self.queue)
            self.restart()
            while found := read(self.queue):
                self.delivered |= set(found)
                self.queue.acknowledge(len(found))
            assert self.delivered == self.stored
            assert self.queue.finish() == 0


TestAnyLog = AnyLog.TestCase
TestAnyLog.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
TestSpoolAlways = SpoolAlways.TestCase
TestSpoolAlways.settings = settings(max_examples=examples(25), stateful_step_count=30, deadline=None)
