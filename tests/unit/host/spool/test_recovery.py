"""Recovery of a spool after a crash, a bad disk or another version."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from receiver.host.spool import SpoolError
from receiver.host.spool.frame import FILE_HEADER, HEADER_BYTES
from tests.unit.host.spool.support import (
    EVERYTHING,
    append_each,
    bytes_on_disk,
    flip,
    frames,
    opened,
    read_all,
    segments,
    spool,
)


def crashed(folder: Path, *, pushes: int = 10, segment_bytes: int = 1000) -> Path:
    """Make a folder as ``kill -9`` leaves it, with a frame for each push."""
    original = folder / "original"
    one = opened(original, segment_bytes=segment_bytes)
    append_each(one, 0, pushes)
    shutil.copytree(original, folder / "copy")
    one.close()
    return folder / "copy"


def test_everything_is_there_after_a_crash(tmp_path: Path) -> None:
    folder = crashed(tmp_path, pushes=100)
    one = spool(folder)
    recovery = one.open()
    assert (recovery.pushes, recovery.torn_bytes, recovery.set_aside, recovery.lost_pushes) == (100, 0, (), 0)
    assert recovery.bytes == bytes_on_disk(folder)
    append_each(one, 100, 110)
    assert read_all(one) == list(range(110))


def test_the_cursor_survives_close_exactly(tmp_path: Path) -> None:
    one = opened(tmp_path, segment_bytes=1000)
    append_each(one, 0, 20)
    spooled = one.read(13, EVERYTHING)
    one.commit(spooled[-2].position)
    one.close()
    assert one.open().pushes == 8
    assert read_all(one) == list(range(12, 20))


def test_after_a_crash_little_is_delivered_again(tmp_path: Path) -> None:
    one = opened(tmp_path / "original", max_bytes=1 << 24, segment_bytes=1 << 22)
    append_each(one, 0, 600)
    for _ in range(500):
        one.commit(one.read(1, 1)[0].position)
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    read = read_all(opened(tmp_path / "copy", max_bytes=1 << 24))
    assert read == list(range(read[0], 600))
    assert 0 < read[0] <= 500


def test_after_a_quiet_time_nothing_is_delivered_again(tmp_path: Path) -> None:
    before = opened(tmp_path / "spool")
    append_each(before, 1, 51)
    for spooled in before.read(49, EVERYTHING):
        before.commit(spooled.position)
    time.sleep(0.15)
    (last,) = before.read(10, EVERYTHING)
    before.commit(last.position)
    shutil.copytree(tmp_path / "spool", tmp_path / "crashed")
    assert read_all(opened(tmp_path / "crashed")) == []
    before.close()


@pytest.mark.parametrize("damage", ["missing", "empty", "flipped", "longer", "a folder"])
def test_without_a_cursor_to_trust_everything_that_is_there_is_read(tmp_path: Path, damage: str) -> None:
    one = opened(tmp_path)
    append_each(one, 0, 20)
    one.commit(one.read(13, EVERYTHING)[-1].position)
    one.close()
    cursor = tmp_path / "cursor"
    if damage == "flipped":
        flip(cursor, 10)
    elif damage == "longer":
        cursor.write_bytes(cursor.read_bytes() + b"\0")
    else:
        cursor.unlink()
    if damage == "empty":
        cursor.touch()
    if damage == "a folder":
        cursor.mkdir()
    assert read_all(opened(tmp_path)) == list(range(20))


def test_wherever_the_last_write_ended_its_rest_is_cut_off_and_counted(tmp_path: Path) -> None:
    folder = crashed(tmp_path, pushes=2, segment_bytes=1 << 16)
    (path,) = segments(folder)
    whole = path.read_bytes()
    starts = frames(path)
    shutil.rmtree(folder)
    near = {start + offset for start in starts for offset in (-1, 0, 1, HEADER_BYTES)}
    for size in sorted({*range(0, len(whole), 9), *near} & {*range(len(whole))}):
        folder.mkdir()
        path.write_bytes(whole[:size])
        one = spool(folder)
        recovery = one.open()
        good = [start for start in starts if start <= size]
        left = max(0, len(good) - 1)
        assert recovery.pushes == left
        assert recovery.torn_bytes == size - (good[-1] if good else 0)
        assert recovery.set_aside == ()
        append_each(one, 2, 3)
        assert read_all(one) == [*range(left), 2]
        one.close()
        assert spool(folder).open().torn_bytes == 0, "it was cut off on disk"
        shutil.rmtree(folder)


@pytest.mark.parametrize("written", [0, 20, HEADER_BYTES, HEADER_BYTES + 50])
def test_a_file_that_grew_before_its_content_was_written_is_torn(tmp_path: Path, written: int) -> None:
    folder = crashed(tmp_path, pushes=2, segment_bytes=1 << 16)
    (path,) = segments(folder)
    whole = path.read_bytes()
    _, end, size = frames(path)
    frame_bytes = size - end
    path.write_bytes(whole[: end + written] + bytes(frame_bytes - written))
    one = spool(folder)
    recovery = one.open()
    if written == 20:
        assert (recovery.torn_bytes, len(recovery.set_aside)) == (0, 1), "a part of a header is damage"
    else:
        assert (recovery.torn_bytes, recovery.set_aside) == (frame_bytes, ())
    assert read_all(one) == [0]


def test_a_new_segment_of_zeros_is_torn(tmp_path: Path) -> None:
    folder = crashed(tmp_path, pushes=2, segment_bytes=1 << 16)
    (folder / f"{2:020}.log").write_bytes(bytes(5000))
    recovery = (one := spool(folder)).open()
    assert (recovery.torn_bytes, recovery.set_aside) == (5000, ())
    append_each(one, 2, 3)
    assert read_all(one) == [0, 1, 2]


def test_a_cursor_beyond_the_log_costs_nothing_new(tmp_path: Path) -> None:
    one = opened(tmp_path)
    append_each(one, 0, 10)
    one.commit(one.read(10, EVERYTHING)[8].position)
    one.close()
    (path,) = segments(tmp_path)
    path.write_bytes(path.read_bytes()[:500])
    one = opened(tmp_path)
    append_each(one, 10, 13)
    assert read_all(one) == [10, 11, 12]


def damage_body(folder: Path, *, segment: int, frame: int) -> Path:
    path = segments(folder)[segment]
    flip(path, frames(path)[frame] + HEADER_BYTES + 30)
    return path


def damage_header(folder: Path, *, segment: int, frame: int) -> Path:
    path = segments(folder)[segment]
    flip(path, frames(path)[frame] + 5)
    return path


def frames_in(folder: Path) -> int:
    first, second, *_ = segments(folder)
    return int(second.stem) - int(first.stem)


def test_a_bad_body_costs_its_frame_and_the_segment_is_set_aside_once_it_is_read(tmp_path: Path) -> None:
    folder = crashed(tmp_path, pushes=20)
    path = damage_body(folder, segment=1, frame=1)
    lost = int(path.stem) + 1
    one = opened(folder)
    assert one.statistics.set_aside_segments == 0, "bodies are looked at when they are read"
    for _ in range(2):
        spooled = one.read(EVERYTHING, 1 << 40)
        assert [each.position for each in spooled] == [n for n in range(20) if n != lost]
        assert one.statistics.lost_pushes == one.statistics.set_aside_segments == 1
        one.rewind()
    one.commit(spooled[-1].position)
    assert one.statistics.pushes == 0
    assert [each.name for each in folder.glob("*.corrupt")] == [f"{path.name}.corrupt"]
    assert one.statistics.bytes == bytes_on_disk(folder)


def test_damage_in_what_is_delivered_costs_nothing(tmp_path: Path) -> None:
    one = opened(tmp_path)
    append_each(one, 0, 10)
    one.commit(one.read(5, EVERYTHING)[-1].position)
    one.close()
    (path,) = segments(tmp_path)
    flip(path, frames(path)[2] + HEADER_BYTES + 30)
    one.open()
    assert read_all(one) == [5, 6, 7, 8, 9]
    assert one.statistics.lost_pushes == one.statistics.set_aside_segments == 0


def test_a_segment_under_another_name_is_set_aside(tmp_path: Path) -> None:
    folder = crashed(tmp_path, pushes=20)
    each = frames_in(folder)
    segments(folder)[0].rename(folder / f"{1:020}.log")
    one = spool(folder)
    assert one.open().set_aside == (f"{1:020}.log",)
    assert (folder / f"{1:020}.log.corrupt").exists()
    assert read_all(one) == list(range(each, 20))


def test_numbers_that_are_given_twice_lose_nothing_of_the_later_segment(tmp_path: Path) -> None:
    """A segment that could not be read to its end when the later one was begun, and can be now."""
    folder = crashed(tmp_path, pushes=6, segment_bytes=1 << 16)
    (path,) = segments(folder)
    whole = path.read_bytes()
    flip(path, frames(path)[4] + 5)
    one = opened(folder)
    append_each(one, 100, 105)
    one.close()
    path.write_bytes(whole)
    one.open()
    assert one.statistics.pushes == 9
    assert read_all(one) == [0, 1, 2, 3, 100, 101, 102, 103, 104]


def test_a_bad_last_frame_is_passed(tmp_path: Path) -> None:
    folder = crashed(tmp_path, pushes=frames_in(crashed(tmp_path / "count", pushes=20)) * 2)
    one = opened(folder)
    damage_body(folder, segment=1, frame=frames_in(folder) - 1)
    spooled = one.read(EVERYTHING, 1 << 40)
    one.commit(spooled[-1].position)
    assert (one.statistics.pushes, one.statistics.lost_pushes) == (0, 1)
    assert one.statistics.oldest_received_at_ns is None
    append_each(one, 100, 102)
    assert read_all(one) == [100, 101]


def test_a_bad_header_costs_the_rest_of_its_segment(tmp_path: Path) -> None:
    folder = crashed(tmp_path, pushes=20)
    each = frames_in(folder)
    path = damage_header(folder, segment=1, frame=1)
    one = spool(folder)
    recovery = one.open()
    assert recovery.set_aside == (path.name,)
    assert recovery.lost_pushes == each - 1
    assert recovery.pushes == 20 - recovery.lost_pushes
    left = [*range(each + 1), *range(2 * each, 20)]
    spooled = one.read(EVERYTHING, 1 << 40)
    assert [item.position for item in spooled] == left
    one.commit(spooled[-1].position)
    assert one.statistics.pushes == 0
    assert [found.name for found in folder.glob("*.corrupt")] == [f"{path.name}.corrupt"]


def test_a_header_that_goes_bad_while_the_spool_is_open_costs_the_rest_of_its_segment(tmp_path: Path) -> None:
    one = opened(tmp_path, segment_bytes=1000)
    append_each(one, 0, 20)
    each = frames_in(tmp_path)
    damage_header(tmp_path, segment=1, frame=1)
    newest = segments(tmp_path)[-1]
    flip(newest, len(FILE_HEADER) + 5)
    assert read_all(one) == [*range(each + 1), *range(2 * each, int(newest.stem))]
    assert one.statistics.lost_pushes == each - 1 + 20 - int(newest.stem)
    assert one.statistics.set_aside_segments == 2
    append_each(one, 20, 21)
    assert read_all(one) == [20], "what is appended to the damaged segment later is read"


def test_a_segment_that_vanishes_is_counted_as_lost(tmp_path: Path) -> None:
    one = opened(tmp_path, segment_bytes=1000)
    append_each(one, 0, 20)
    each = frames_in(tmp_path)
    segments(tmp_path)[1].unlink()
    assert read_all(one) == [*range(each), *range(2 * each, 20)]
    assert one.statistics.lost_pushes == each


@pytest.mark.parametrize("start", [b"KCTSPOOL\x02\0\0\0", b"something else"])
def test_another_version_is_set_aside(tmp_path: Path, start: bytes) -> None:
    folder = crashed(tmp_path, pushes=20)
    each = frames_in(folder)
    path = segments(folder)[0]
    path.write_bytes(start + path.read_bytes()[len(start) :])
    one = spool(folder)
    recovery = one.open()
    assert recovery.set_aside == (path.name,)
    assert path.with_name(f"{path.name}.corrupt").read_bytes().startswith(start)
    assert read_all(one) == list(range(each, 20))
    one.close()
    assert one.open().set_aside == (), "it is told once"
    assert one.statistics.bytes == bytes_on_disk(folder)


@pytest.mark.parametrize("committed", [0, 1])
def test_pushes_of_files_that_are_set_aside_whole_are_counted(tmp_path: Path, committed: int) -> None:
    one = opened(tmp_path, segment_bytes=1000)
    append_each(one, 0, 30)
    each = frames_in(tmp_path)
    if committed:
        one.commit(one.read(committed, 1 << 40)[-1].position)
    one.close()
    for path in segments(tmp_path)[:2]:
        path.write_bytes(b"no spool's at all")
    found = one.open()
    assert found.lost_pushes == 2 * each - committed
    assert read_all(one) == list(range(2 * each, 30))


def test_what_is_set_aside_goes_first_when_room_is_needed(tmp_path: Path) -> None:
    folder = crashed(tmp_path, pushes=20)
    for path in segments(folder)[:3]:
        flip(path, 0)
    one = opened(folder, max_bytes=bytes_on_disk(folder) + 500, segment_bytes=1000)
    assert len(list(folder.glob("*.corrupt"))) == 3
    before = one.statistics.pushes
    append_each(one, 20, 23)
    assert min(folder.glob("*.corrupt")).name > f"{0:020}.log.corrupt", "the oldest first"
    append_each(one, 23, 26)
    assert len(list(folder.glob("*.corrupt"))) < 3
    assert one.statistics.dropped_full == 0
    assert one.statistics.pushes == before + 6
    assert one.statistics.bytes == bytes_on_disk(folder)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    names = ["1.log", "notes.txt", f"{0:020}.LOG", f"{0:019}a.log", "cursor.old"]
    for name in names:
        (tmp_path / name).write_text("mine")
    (tmp_path / f"{7:020}.log").mkdir()
    one = opened(tmp_path, max_bytes=10_000, segment_bytes=1000)
    append_each(one, 10, 17, size=500)
    with pytest.raises(SpoolError, match="File exists"):
        append_each(one, 17, 18)
    append_each(one, 18, 100, size=500)
    one.commit(one.read(1, 1)[0].position)
    one.close()
    assert read_all(opened(tmp_path))[-1] == 99
    assert all((tmp_path / name).read_text() == "mine" for name in names)


def test_a_damaged_segment_is_read_once_more_after_a_restart(tmp_path: Path) -> None:
    folder = crashed(tmp_path, pushes=20)
    path = damage_header(folder, segment=-1, frame=1)
    first = int(path.stem)
    for _ in range(2):
        one = spool(folder)
        assert one.open().set_aside == (path.name,)
        assert read_all(one) == [*range(first + 1)]
        one.close()
    one.open()
    append_each(one, 20, 22)
    one.close()
    one.open()
    assert read_all(one) == [*range(first + 1), 20, 21], "numbers after the damage are used again"
