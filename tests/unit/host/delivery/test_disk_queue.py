"""The disk queue: which pushes are written when, with good and failing disks."""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from receiver.host.delivery.disk_queue import DiskQueue
from receiver.host.delivery.statistics import DropReason
from receiver.host.spool import Spool
from receiver.plugin import Push
from tests.unit.host.disks import (
    Clock,
    HangingDisk,
    disk_queue,
    due,
    full_disk,
    killed,
    no_more_memory,
    read,
    refused_file,
)
from tests.unit.host.support import numbers, push, wait_for


def _never(_: bool) -> None:
    pytest.fail("nobody waits")


def _keep(stored: list[int], number: int, _: bool) -> None:
    stored.append(number)


def _tell(told: list[tuple[int, bool]], number: int, safe: bool) -> None:
    told.append((number, safe))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def offer(queue: DiskQueue, first: int, end: int, size: int = 10) -> None:
    for number in range(first, end):
        queue.offer(push(number, size=size))


def counts(queue: DiskQueue) -> tuple[int, int, int, int]:
    """Pushes in memory, on disk, in flight, exported."""
    statistics = queue.statistics()
    return statistics.memory, statistics.disk, statistics.in_flight, statistics.exported


class TestAlways:
    """Every push is written."""

    def test_a_push_is_stored_and_then_read(self, folder: Path, clock: Clock) -> None:
        queue = disk_queue(folder, clock)
        assert folder.is_dir()
        stored: list[int] = []
        for number in range(3):
            assert queue.offer(push(number), partial(_keep, stored, number))
        assert (read(queue), stored) == ([], [])
        assert due(queue, clock)
        assert queue.write()
        assert stored == [0, 1, 2]
        assert not due(queue, clock)
        assert counts(queue) == (0, 3, 0, 0)
        assert read(queue, 2) == [0, 1]
        assert counts(queue) == (0, 1, 2, 0)
        queue.acknowledge(1)
        assert counts(queue) == (0, 1, 1, 1)
        queue.acknowledge(1)
        assert read(queue, 2) == [2]

    def test_what_waits_is_written_at_once(self, folder: Path, clock: Clock) -> None:
        queue = disk_queue(folder, clock)
        offer(queue, 0, 50)
        assert queue.write()
        spool = Spool(folder / "copy", max_bytes=1 << 20, segment_bytes=1 << 16)
        (segment,) = folder.glob("*.log")
        (folder / "copy").mkdir()
        (folder / "copy" / segment.name).write_bytes(segment.read_bytes())
        assert spool.open().pushes == 50
        spool.close()

    def test_while_the_disk_fails_a_push_is_safe_when_it_is_delivered(
        self, folder: Path, clock: Clock
    ) -> None:
        queue = disk_queue(folder, clock)
        told: list[tuple[int, bool]] = []
        for number in range(3):
            assert queue.offer(push(number), partial(_tell, told, number))
        with full_disk():
            assert not queue.write()
        assert "File too large" in (queue._disk.problem or "")
        assert read(queue, 1) == [0]
        assert told == []
        queue.acknowledge(1)
        assert told == [(0, True)]
        clock.now += 60
        assert queue.write()
        assert told == [(0, True), (1, True), (2, True)]

    def test_it_is_tried_again_with_back_off_and_goes_on_where_it_was(
        self, folder: Path, clock: Clock
    ) -> None:
        queue = disk_queue(folder, clock)
        offer(queue, 0, 3)
        for pause in (1.0, 2.0, 4.0):
            with full_disk():
                assert not queue.write()
            clock.now += pause - 0.1
            assert not due(queue, clock)
            clock.now += 0.2
            assert due(queue, clock)
        assert read(queue, 1) == [0]
        assert queue.write()
        assert queue._disk.problem is None
        assert counts(queue) == (0, 2, 1, 0)
        queue.acknowledge(1)
        assert queue._disk.statistics.pushes == 2, "the copy of what was in flight is passed over"
        assert queue.offer(push(3), lambda _: None)
        assert queue.write()
        assert read(queue) == [1, 2, 3]

    def test_memory_keeps_its_bound_and_says_which_pushes_it_drops(self, folder: Path, clock: Clock) -> None:
        queue = disk_queue(folder, clock, max_items=4)
        told: list[tuple[int, bool]] = []
        for number in range(6):
            assert queue.offer(push(number), partial(_tell, told, number))
        assert told == [(0, False), (1, False)]
        assert queue.statistics().dropped[DropReason.QUEUE_FULL] == 2
        assert queue.offer(push(6, size=2_000_000), partial(_tell, told, 6))
        assert told[2:] == [(6, False)], "it fits nowhere"

    def test_a_queue_that_ends_says_what_it_drops(self, folder: Path, clock: Clock) -> None:
        queue = disk_queue(folder, clock)
        told: list[bool] = []
        assert queue.offer(push(0), told.append)
        with full_disk():
            assert queue.finish() == 1
        queue.close(0.0)
        assert queue.offer(push(1), told.append)
        assert told == [False, False]


class TestWhenBehind:
    """A push is written when it has waited."""

    def test_nothing_is_written_and_no_folder_made_while_pushes_are_young(
        self, folder: Path, clock: Clock
    ) -> None:
        queue = disk_queue(folder, clock, after_s=1.0)
        assert not queue.offer(push(0), _never)
        clock.now += 0.9
        assert not due(queue, clock)
        assert read(queue) == [0]
        queue.acknowledge(1)
        clock.now += 60
        assert not due(queue, clock)
        assert queue.finish() == 0
        assert not folder.exists()

    def test_a_folder_that_cannot_be_created_is_reported_at_the_start(
        self, folder: Path, clock: Clock
    ) -> None:
        folder.touch()
        queue = disk_queue(folder / "there" / "p", clock, after_s=1.0)
        assert "Not a directory" in (queue._disk.problem or "")
        folder.unlink()
        clock.now += 2
        assert due(queue, clock)
        assert queue.write()
        assert queue._disk.problem is None

    def test_a_push_that_waits_takes_all_behind_it_to_disk(self, folder: Path, clock: Clock) -> None:
        queue = disk_queue(folder, clock, after_s=1.0)
        offer(queue, 0, 1)
        clock.now += 0.9
        offer(queue, 1, 3)
        clock.now += 0.2
        assert due(queue, clock)
        assert queue.write()
        assert counts(queue) == (0, 3, 0, 0)
        offer(queue, 3, 4)
        assert read(queue) == [0, 1, 2]

    def test_so_does_memory_that_is_half_full(self, folder: Path, clock: Clock) -> None:
        queue = disk_queue(folder, clock, after_s=1.0, max_items=10)
        offer(queue, 0, 5)
        assert not due(queue, clock)
        offer(queue, 5, 6)
        assert due(queue, clock)
        assert queue.write()
        assert not due(queue, clock)

    def test_what_is_in_flight_goes_to_disk_too_and_is_passed_over_when_it_is_delivered(
        self, folder: Path, clock: Clock
    ) -> None:
        queue = disk_queue(folder, clock, after_s=1.0)
        offer(queue, 0, 4)
        assert read(queue, 2) == [0, 1]
        clock.now += 1.1
        assert due(queue, clock)
        assert queue.write()
        assert counts(queue) == (0, 2, 2, 0)
        assert queue._disk.statistics.pushes == 4
        queue.acknowledge(1)
        assert queue._disk.statistics.pushes == 3
        queue.acknowledge(1)
        assert read(queue) == [2, 3]

    def test_what_is_in_flight_alone_is_written_when_it_waits(self, folder: Path, clock: Clock) -> None:
        queue = disk_queue(folder, clock, after_s=1.0)
        offer(queue, 0, 2)
        assert read(queue) == [0, 1]
        clock.now += 1.1
        assert due(queue, clock)
        assert queue.write()
        assert not due(queue, clock), "once is enough"
        killed(queue)
        assert read(disk_queue(folder, clock, after_s=1.0)) == [0, 1]

    def test_what_is_delivered_while_it_is_written_is_not_delivered_again(
        self, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = disk_queue(folder, clock, after_s=1.0)
        offer(queue, 0, 3)
        assert read(queue, 2) == [0, 1]
        disk = HangingDisk(monkeypatch)
        clock.now += 2
        writer = threading.Thread(target=queue.write)
        writer.start()
        assert disk.waits.wait(120)
        assert queue.acknowledge(2)
        assert counts(queue) == (1, 0, 0, 2)
        assert read(queue) == [], "what is being written comes first"
        disk.go_on()
        writer.join(120)
        assert counts(queue) == (0, 1, 0, 2)
        assert read(queue) == [2]

    def test_what_is_on_disk_goes_before_what_is_in_memory(self, folder: Path, clock: Clock) -> None:
        queue = disk_queue(folder, clock, after_s=1.0)
        offer(queue, 0, 2)
        clock.now += 1.1
        assert queue.write()
        offer(queue, 2, 4)
        assert read(queue) == [0, 1]
        queue.acknowledge(2)
        assert read(queue) == [2, 3]
        queue.acknowledge(2)
        assert counts(queue) == (0, 0, 0, 4)

    def test_the_disks_bound_costs_the_oldest_but_nothing_in_flight(self, folder: Path, clock: Clock) -> None:
        queue = disk_queue(folder, clock, after_s=0.0, disk_bytes=8192, segment_bytes=2048)

        def spool(first: int, end: int) -> None:
            for number in range(first, end):
                queue.offer(push(number, data=random.Random(number).randbytes(1500)))
                assert queue.write()

        spool(0, 3)
        assert read(queue, 1) == [0]
        spool(3, 8)
        statistics = queue.statistics()
        assert statistics.in_flight == 1
        assert 0 < statistics.dropped[DropReason.SPOOL_FULL] == 8 - 1 - statistics.disk
        assert queue.acknowledge(1)
        assert read(queue) == list(range(1 + statistics.dropped[DropReason.SPOOL_FULL], 8))


class TestBefore:
    """What is on disk from before."""

    @pytest.mark.parametrize("after_s", [None, 1.0])
    def test_it_is_read_first(self, folder: Path, clock: Clock, after_s: float | None) -> None:
        before = disk_queue(folder, clock)
        offer(before, 0, 3)
        before.write()
        assert read(before, 1) == [0]
        before.acknowledge(1)
        assert before.finish() == 0
        queue = disk_queue(folder, clock, after_s=after_s)
        offer(queue, 3, 4)
        statistics = queue.statistics()
        assert (statistics.offered, statistics.recovered, statistics.disk, statistics.memory) == (1, 2, 2, 1)
        assert statistics.oldest_received_at_ns == push().context.received_at_ns
        assert read(queue) == [1, 2]

    def test_nobody_reads_before_it_is_known(self, folder: Path, clock: Clock) -> None:
        queue = disk_queue(folder, clock, after_s=1.0)
        queue._unexamined = True
        offer(queue, 0, 1)
        got: list[list[int]] = []
        reader = threading.Thread(
            target=lambda: got.append(numbers(queue.read(max_items=9, max_bytes=9, linger_s=0)))
        )
        reader.start()
        wait_for(lambda: queue._awaited_items == 1)
        queue.open()
        reader.join(120)
        assert got == [[0]]

    def test_a_folder_that_is_in_use_is_a_problem_and_taken_over_later(
        self, folder: Path, clock: Clock
    ) -> None:
        other = disk_queue(folder, clock)
        offer(other, 0, 2)
        other.write()
        queue = disk_queue(folder, clock)
        assert "another plugin or receiver uses this folder" in (queue._disk.problem or "")
        offer(queue, 10, 13)
        assert read(queue, 1) == [10], "memory takes over"
        assert other.finish() == 0
        clock.now += 5
        assert due(queue, clock)
        assert queue.write()
        queue.acknowledge(1)
        assert read(queue, 10) == [0, 1, 11, 12]
        assert queue.statistics().recovered == 2

    def test_it_is_taken_over_though_nothing_is_to_be_written(self, folder: Path, clock: Clock) -> None:
        other = disk_queue(folder, clock)
        offer(other, 0, 2)
        other.write()
        queue = disk_queue(folder, clock, after_s=1.0)
        assert not due(queue, clock)
        assert other.finish() == 0
        clock.now += 5
        assert due(queue, clock)
        assert queue.write()
        assert queue._disk.problem is None
        assert read(queue, 10) == [0, 1]

    def test_a_problem_is_over_only_when_the_disk_takes_something(self, folder: Path, clock: Clock) -> None:
        queue = disk_queue(folder, clock, after_s=1.0)
        offer(queue, 0, 1)
        with full_disk():
            assert not queue.write()
            assert read(queue) == [0]
            queue.acknowledge(1)
            clock.now += 5
            assert due(queue, clock)
            assert not queue.write(), "nothing is to be written, and the disk is still full"
        clock.now += 5
        assert queue.write()
        assert queue._disk.problem is None
        assert not due(queue, clock)

    def test_nothing_is_lost_or_comes_twice_where_memory_is_short_for_a_while(
        self, folder: Path, clock: Clock
    ) -> None:
        queue = disk_queue(folder, clock, after_s=1.0)
        for number in range(4):
            queue.offer(push(number, data=random.Random(number).randbytes(40_000)))
        assert read(queue) == [0, 1, 2, 3]
        clock.now += 2
        assert queue.write(), "copies, in a frame each"
        offer(queue, 4, 6)
        clock.now += 2
        assert queue.write()
        with no_more_memory():
            queue.acknowledge(4)
            assert queue._read_disk(100, 10**9) == []
        assert counts(queue) == (0, 2, 0, 4)
        assert read(queue) == [4, 5]
        queue.acknowledge(2)
        assert counts(queue) == (0, 0, 0, 6)
        assert queue._disk.statistics.pushes == 0

    @pytest.mark.parametrize("error", [OSError(errno.EMFILE, "many"), MemoryError()])
    def test_a_spool_that_can_not_be_opened_for_now_is_opened_later(
        self, folder: Path, clock: Clock, error: Exception
    ) -> None:
        queue = disk_queue(folder, clock)
        offer(queue, 0, 3)
        assert queue.write()
        killed(queue)
        (file,) = folder.glob("*.log")
        with refused_file(file, error):
            queue = disk_queue(folder, clock)
        assert str(file) in str(queue._disk.problem)
        assert not due(queue, clock)
        clock.now += 2
        assert due(queue, clock)
        assert queue.write()
        assert queue._disk.problem is None
        assert read(queue) == [0, 1, 2]

    def test_the_sender_waits_then(self, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("receiver.host.delivery.disk_queue._SHORTAGE_S", 0.05)
        queue = disk_queue(folder, clock, segment_bytes=1 << 10)
        for number in range(2):
            offer(queue, number, number + 1, size=10)
            queue.offer(push(10 + number, data=random.Random(number).randbytes(2000)))
            assert queue.write()
        assert len(list(folder.glob("*.log"))) == 2
        assert read(queue, 2) == [0, 10]
        got: list[list[int]] = []
        with no_more_memory():
            queue.acknowledge(2)
            sender = threading.Thread(target=lambda: got.append(read(queue, 2)))
            sender.start()
            sender.join(0.2)
            assert sender.is_alive()
        sender.join(120)
        assert got == [[1, 11]]


class TestEnd:
    """What is left goes to disk."""

    def test_also_what_is_in_flight(self, folder: Path, clock: Clock) -> None:
        queue = disk_queue(folder, clock, after_s=60.0)
        offer(queue, 0, 3)
        assert read(queue, 1) == [0]
        assert queue.finish() == 0
        assert counts(queue) == (0, 3, 0, 0)
        assert not queue.acknowledge(1)
        queue.offer(push(3))
        assert queue.statistics().dropped[DropReason.SHUTDOWN] == 1
        assert read(disk_queue(folder, clock, after_s=60.0)) == [0, 1, 2]

    def test_what_was_read_off_the_disk_stays_there(self, folder: Path, clock: Clock) -> None:
        queue = disk_queue(folder, clock)
        offer(queue, 0, 3)
        queue.write()
        assert read(queue, 2) == [0, 1]
        assert queue.finish() == 0
        assert counts(queue) == (0, 3, 0, 0)
        assert read(disk_queue(folder, clock)) == [0, 1, 2]

    def test_a_push_that_alone_exceeds_the_disks_bound_is_not_safe(self, folder: Path, clock: Clock) -> None:
        queue = disk_queue(folder, clock, disk_bytes=20_000)
        told: list[tuple[int, bool]] = []
        for number, size in enumerate((10, 20_000, 10)):
            queue.offer(push(number, data=os.urandom(size)), partial(_tell, told, number))
            assert queue.write()
        assert sorted(told) == [(0, True), (1, False), (2, True)]
        assert queue.statistics().dropped[DropReason.SPOOL_FULL] == 1
        assert read(queue) == [0, 2]

    def test_of_pushes_that_are_written_together_those_without_room_are_not_safe(
        self, folder: Path, clock: Clock
    ) -> None:
        queue = disk_queue(folder, clock, disk_bytes=20_000, segment_bytes=5_000)
        told: list[tuple[int, bool]] = []
        for number in range(8):
            queue.offer(push(number, data=os.urandom(4_000)), partial(_tell, told, number))
        assert queue.write()
        on_disk = read(queue)
        assert 0 < len(on_disk) < 8
        assert sorted(told) == [(number, number in on_disk) for number in range(8)]

    def test_more_than_is_written_at_once(self, folder: Path, clock: Clock) -> None:
        queue = disk_queue(folder, clock, after_s=60.0, max_items=3000)
        offer(queue, 0, 2500)
        assert queue.finish() == 0
        assert queue.statistics().disk == 2500

    def test_pushes_that_the_disk_refuses_are_dropped_and_counted(self, folder: Path, clock: Clock) -> None:
        queue = disk_queue(folder, clock)
        stored: list[int] = []
        queue.offer(push(0), partial(_keep, stored, 0))
        with full_disk():
            assert queue.finish() == 1
        assert stored == [0]
        assert queue.statistics().dropped[DropReason.SHUTDOWN] == 1

    def test_the_spooler_waits_for_the_sender_until_the_deadline(self, folder: Path, clock: Clock) -> None:
        queue = disk_queue(folder, clock, after_s=60.0)
        offer(queue, 0, 1)
        queue.close(deadline=clock.now + 10)
        clock.now += 10
        assert not queue.await_work()
        other = disk_queue(folder, clock, after_s=60.0)
        other.close(deadline=clock.now + 10)
        other.leave()
        assert not other.await_work()


def test_a_disk_that_hangs_makes_neither_offers_nor_statistics_wait(
    folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = disk_queue(folder, clock, max_items=10)
    offer(queue, 0, 1)
    disk = HangingDisk(monkeypatch)
    writer = threading.Thread(target=queue.write)
    writer.start()
    assert disk.waits.wait(120)
    began = time.monotonic()
    stored: list[int] = []
    for number in range(1, 101):
        assert queue.offer(push(number), partial(_keep, stored, number))
    statistics = queue.statistics()
    assert time.monotonic() - began < 100
    assert (statistics.memory, statistics.dropped[DropReason.QUEUE_FULL], statistics.writing_since) == (
        10,
        91,
        clock.now,
    )
    assert stored == list(range(1, 92))
    disk.go_on()
    writer.join(120)
    assert read(queue) == [0]


def test_the_spooler_sleeps_until_something_is_to_be_written(folder: Path) -> None:
    queue = disk_queue(folder, time.monotonic, after_s=0.05)
    woken: list[float] = []

    def sleep() -> None:
        if queue.await_work():
            woken.append(time.monotonic())

    thread = threading.Thread(target=sleep)
    thread.start()
    wait_for(lambda: queue._idle)
    offered = time.monotonic()
    offer(queue, 0, 1)
    thread.join(120)
    assert 0.05 <= woken[0] - offered < 2


def of_block(number: int, block: str, size: int) -> Push:
    one = push(number, data=random.Random(number).randbytes(size))
    return replace(one, context=replace(one.context, source_address=block))


def test_at_the_bound_a_site_over_its_share_deletes_nothing_of_others(folder: Path, clock: Clock) -> None:
    queue = disk_queue(folder, clock, disk_bytes=1 << 18, segment_bytes=1 << 14)
    for number in range(20):
        queue.offer(of_block(number, "10.0.0.7", 1_000))
    queue.write()
    for number in range(100, 400):
        queue.offer(of_block(number, f"2001:db8:6:{number:x}::1", 4_000))
        queue.write()
    for number in range(1_000, 1_020):
        queue.offer(of_block(number, "10.0.0.7", 1_000))
        queue.write()
    statistics = queue.statistics()
    assert statistics.disk + statistics.dropped[DropReason.SPOOL_FULL] == 340
    kept: list[int] = []
    while some := read(queue):
        kept += some
        queue.acknowledge(len(some))
    assert set(range(1_000, 1_020)) <= set(kept)
    # What the innocent block wrote at the bound took the oldest segments, and nothing else did.
    assert sum(number >= 100 and number < 400 for number in kept) >= 50
    assert len([number for number in kept if number < 20]) + 32 >= 20
