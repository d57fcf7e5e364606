"""The spool's order, positions, commits and bound."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from receiver.host.spool import Position, Spool, SpoolError
from receiver.host.spool import frame as frame_module
from tests.unit.host.spool.support import (
    EVERYTHING,
    append_each,
    bytes_on_disk,
    numbers_of,
    opened,
    read_all,
    segments,
    some,
    spool,
)
from tests.unit.host.support import push, wait_for


def test_pushes_come_out_as_they_went_in_and_batches_keep_both_limits(tmp_path: Path) -> None:
    one = opened(tmp_path)
    pushes = some(0, 6, size=10)
    one.append(pushes[:4])
    one.append(pushes[4:])
    first = one.read(3, EVERYTHING)
    assert [each.push for each in first] == pushes[:3]
    assert [each.position for each in first] == sorted(each.position for each in first)
    assert numbers_of(one.read(10, 29)) == [3, 4]
    assert numbers_of(one.read(10, 1)) == [5], "a single push may be larger"
    assert one.read(10, 1) == []
    one.append(some(6, 7))
    assert read_all(one) == [6]


def test_rewind_goes_back_to_the_last_commit(tmp_path: Path) -> None:
    one = opened(tmp_path)
    append_each(one, 0, 3)
    one.append(some(3, 10))
    first = one.read(5, EVERYTHING)
    one.rewind()
    assert one.read(5, EVERYTHING) == first
    one.commit(first[3].position)
    one.rewind()
    assert read_all(one) == [4, 5, 6, 7, 8, 9]
    one.rewind()
    one.commit(first[4].position)
    assert read_all(one) == [5, 6, 7, 8, 9], "what is committed is not read, though it was rewound"


def test_committing_twice_or_an_older_push_changes_nothing(tmp_path: Path) -> None:
    one = opened(tmp_path)
    append_each(one, 0, 5)
    spooled = one.read(5, EVERYTHING)
    one.commit(spooled[3].position)
    one.commit(spooled[3].position)
    one.commit(spooled[0].position)
    one.rewind()
    assert one.statistics.pushes == 1
    assert read_all(one) == [4]


@pytest.mark.parametrize("position", [-1, 5, 1 << 70])
def test_a_position_of_no_push_is_refused(tmp_path: Path, position: int) -> None:
    one = opened(tmp_path)
    append_each(one, 0, 5)
    with pytest.raises(ValueError, match="no push has the position"):
        one.commit(Position(position))


def test_what_is_delivered_is_deleted_from_disk(tmp_path: Path) -> None:
    one = opened(tmp_path, segment_bytes=1000)
    append_each(one, 0, 50)
    assert len(segments(tmp_path)) > 5
    spooled = one.read(50, EVERYTHING)
    one.commit(spooled[48].position)
    assert len(segments(tmp_path)) == 1
    assert one.statistics.pushes == 1
    one.commit(spooled[49].position)
    one.close()
    assert one.statistics.pushes == one.statistics.bytes == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cursor", "lock"]
    assert one.open().pushes == 0
    append_each(one, 50, 51)
    assert read_all(one) == [50]


def test_a_large_segment_that_is_delivered_goes_though_it_is_the_newest(tmp_path: Path) -> None:
    one = opened(tmp_path, max_bytes=1 << 24, segment_bytes=1 << 22)
    one.append(some(0, 200, size=10_000))
    one.commit(one.read(EVERYTHING, 1 << 40)[-1].position)
    assert bytes_on_disk(tmp_path) == one.statistics.bytes == 0
    append_each(one, 200, 203)
    assert read_all(one) == [200, 201, 202]
    held_open = Path("/proc/self/fd").iterdir()
    assert not [
        path for path in held_open if "(deleted)" in str(path.resolve()) and str(tmp_path) in str(path)
    ]


def test_the_statistics_follow(tmp_path: Path) -> None:
    one = spool(tmp_path)
    assert one.statistics.oldest_received_at_ns is None
    one.open()
    one.append(some(0, 4))
    statistics = one.statistics
    assert (statistics.pushes, statistics.max_bytes) == (4, 1 << 20)
    assert statistics.bytes == statistics.written_bytes == bytes_on_disk(tmp_path)
    assert statistics.oldest_received_at_ns == push(0).context.received_at_ns
    spooled = one.read(10, EVERYTHING)
    assert one.statistics.pushes == 4
    one.commit(spooled[2].position)
    assert one.statistics.pushes == 1
    one.commit(spooled[3].position)
    statistics = one.statistics
    assert statistics.pushes == 0
    assert statistics.oldest_received_at_ns is None
    assert statistics.read_bytes == statistics.written_bytes - len(frame_module.FILE_HEADER)
    assert statistics.dropped_full == statistics.lost_pushes == statistics.set_aside_segments == 0
    assert statistics.problem is None


def test_at_the_bound_the_oldest_go_and_are_counted(tmp_path: Path) -> None:
    one = opened(tmp_path, max_bytes=20_000, segment_bytes=1 << 20)
    append_each(one, 0, 20, size=500)
    read = one.read(3, EVERYTHING)
    assert numbers_of(read) == [0, 1, 2]
    append_each(one, 20, 100, size=500)
    statistics = one.statistics
    assert bytes_on_disk(tmp_path) == statistics.bytes <= 20_000
    assert statistics.dropped_full + statistics.pushes == 100
    assert statistics.pushes > 15, "no more goes than has to"
    one.commit(read[2].position)
    assert one.statistics.pushes == statistics.pushes, "a commit of what went changes nothing"
    left = read_all(one)
    assert left == list(range(statistics.dropped_full, 100)), "reading goes on with what is there"
    one.rewind()
    assert read_all(one) == left
    one.close()
    assert one.open().pushes == len(left)


def test_what_went_at_the_bound_is_not_looked_for(tmp_path: Path) -> None:
    one = opened(tmp_path, max_bytes=20_000)
    one.append(some(0, 10, size=300))
    assert numbers_of(one.read(3, EVERYTHING)) == [0, 1, 2]
    append_each(one, 10, 100, size=300)
    left = list(range(one.statistics.dropped_full, 100))
    assert left[0] > 10
    one.rewind()
    assert read_all(one) == left
    assert one.statistics.lost_pushes == one.statistics.set_aside_segments == 0


def test_a_lower_bound_holds_from_the_start(tmp_path: Path) -> None:
    one = opened(tmp_path, segment_bytes=2000)
    append_each(one, 0, 100, size=500)
    one.close()
    one = opened(tmp_path, max_bytes=10_000)
    assert bytes_on_disk(tmp_path) == one.statistics.bytes <= 10_000
    assert read_all(one) == list(range(one.statistics.dropped_full, 100))


def test_what_is_over_the_bound_alone_goes_alone(tmp_path: Path) -> None:
    one = opened(tmp_path, max_bytes=20_000)
    append_each(one, 0, 3)
    one.append(some(3, 4, size=20_000))
    assert one.statistics.dropped_full == 1
    one.append([])
    one.append(some(4, 204, size=200))
    statistics = one.statistics
    assert statistics.pushes + statistics.dropped_full == 204
    assert bytes_on_disk(tmp_path) <= 20_000
    read = read_all(one)
    assert len(read) == statistics.pushes
    assert read[-70:] == list(range(134, 204)), "of one append, too, the oldest go"


def test_a_push_too_large_for_a_frame_goes_alone(tmp_path: Path) -> None:
    one = opened(tmp_path, max_bytes=1 << 30)
    one.append([push(0), push(1, size=frame_module.MAX_PUSH_BYTES + 1), push(2)])
    assert one.statistics.dropped_full == 1
    assert read_all(one) == [0, 2]


def test_the_largest_push_is_kept(tmp_path: Path) -> None:
    one = opened(tmp_path, max_bytes=1 << 30)
    largest = push(0, size=frame_module.MAX_PUSH_BYTES)
    one.append([largest])
    assert one.read(1, 1)[0].push == largest


def test_a_closed_spool_takes_nothing_and_has_nothing(tmp_path: Path) -> None:
    one = spool(tmp_path)
    for _ in range(2):
        with pytest.raises(SpoolError, match="the spool is closed"):
            one.append(some(0, 1))
        assert one.read(1, 1) == []
        one.rewind()
        one.commit(Position(0))
        one.close()
        one.open()
        append_each(one, 0, 1)
        with pytest.raises(SpoolError, match="open already"):
            one.open()
        one.close()


def test_reading_and_writing_at_once_loses_and_repeats_nothing(tmp_path: Path) -> None:
    one = opened(tmp_path, segment_bytes=5000)
    writer = threading.Thread(target=append_each, args=(one, 0, 500))
    read: list[int] = []

    def all_read() -> bool:
        spooled = one.read(7, EVERYTHING)
        read.extend(numbers_of(spooled))
        if spooled:
            one.commit(spooled[-1].position)
        return len(read) >= 500

    writer.start()
    wait_for(all_read, 60)
    writer.join()
    assert read == list(range(500))
    assert one.statistics.pushes == 0


def test_files_are_the_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "spool"
    one = opened(folder)
    append_each(one, 0, 1)
    one.commit(one.read(1, 1)[0].position)
    one.close()
    one.open()
    append_each(one, 1, 2)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name[-4:]: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "lock": 0o600,
        "rsor": 0o600,
        ".log": 0o600,
    }


def test_a_spool_is_much_smaller_than_what_is_in_it(tmp_path: Path) -> None:
    one = Spool(tmp_path, max_bytes=1 << 24, segment_bytes=1 << 22)
    one.open()
    data = (Path(__file__).parents[3] / "data/payloads/java44-producer-star-01.bin").read_bytes()
    one.append([push(number, data=data) for number in range(16)])
    assert one.statistics.written_bytes < 16 * len(data) / 10
