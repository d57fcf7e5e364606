"""The spool with a full or read-only disk, a locked folder, ``kill -9``."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from receiver.host.push_format import decode_push
from receiver.host.spool import SpoolError
from receiver.plugin import Push
from tests.unit.host.disks import no_more_memory, refused_file
from tests.unit.host.spool.support import (
    append_each,
    bytes_on_disk,
    numbers_of,
    opened,
    read_all,
    segments,
    some,
    spool,
)

ROOT = Path(__file__).parents[4]


def test_a_folder_has_one_spool(tmp_path: Path) -> None:
    one = opened(tmp_path)
    with pytest.raises(SpoolError, match="another plugin or receiver uses this folder") as error:
        spool(tmp_path).open()
    assert str(tmp_path) in str(error.value)
    one.close()
    spool(tmp_path).open()


@pytest.mark.parametrize("each", [1, 16])
def test_what_was_appended_is_there_after_kill_9_of_its_process(tmp_path: Path, each: int) -> None:
    command = [sys.executable, "-m", "tests.unit.host.spool.endless", str(tmp_path), str(each)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        for _ in range(50):
            process.stdout.readline()
        with pytest.raises(SpoolError, match="another plugin or receiver"):
            spool(tmp_path).open()
        process.kill()
        lines = process.stdout.read().split()
    appended = int(lines[-1]) if lines else 50 * each
    one = opened(tmp_path, max_bytes=1 << 28)
    read = read_all(one)
    assert read == list(range(len(read)))
    assert appended <= len(read) <= appended + each, "nothing of what returned is lost"


def test_a_path_that_can_be_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SpoolError, match=rf"^{tmp_path}/file: Not a directory"):
        spool(tmp_path / "file").open()
    with pytest.raises(SpoolError, match=rf"^{tmp_path}/file/below: Not a directory"):
        spool(tmp_path / "file" / "below").open()


def test_a_file_that_may_not_grow_is_cut_back_and_goes_on_later(tmp_path: Path) -> None:
    one = opened(tmp_path, max_bytes=1 << 24, segment_bytes=1 << 22)
    append_each(one, 0, 10)
    before = bytes_on_disk(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (before + 50_000, hard))
    try:
        for _ in range(2):
            with pytest.raises(SpoolError, match=rf"^{tmp_path}: File too large"):
                one.append(some(10, 110, size=1000))
            assert bytes_on_disk(tmp_path) == one.statistics.bytes == before
        assert one.statistics.pushes == 10
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    one.append(some(10, 110, size=1000))
    assert len(segments(tmp_path)) == 1
    assert read_all(one) == list(range(110))


def test_a_first_write_that_fails_leaves_no_file(tmp_path: Path) -> None:
    one = opened(tmp_path, max_bytes=1 << 24, segment_bytes=1 << 22)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(SpoolError, match="File too large"):
            one.append(some(0, 100, size=1000))
        assert segments(tmp_path) == []
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    one.append(some(0, 10))
    one.close()
    assert one.open().torn_bytes == 0
    assert read_all(one) == list(range(10))


def test_a_segment_that_can_not_be_cut_back_is_written_no_more(tmp_path: Path) -> None:
    one = opened(tmp_path)
    append_each(one, 0, 3)
    (path,) = segments(tmp_path)
    # What the spool writes to becomes a device that is always full and has no size.
    (descriptor,) = [
        int(link.name)
        for link in Path("/proc/self/fd").iterdir()
        if link.exists()
        and link.samefile(path)
        and fcntl.fcntl(int(link.name), fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
    ]
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, descriptor, inheritable=False)
    os.close(full)
    with pytest.raises(SpoolError, match="No space left on device"):
        append_each(one, 3, 4)
    append_each(one, 3, 5)
    assert len(segments(tmp_path)) == 2
    assert read_all(one) == [0, 1, 2, 3, 4]
    one.close()
    assert one.open().pushes == 5
    assert read_all(one) == [0, 1, 2, 3, 4]


def test_a_segment_deleted_by_another_process_is_not_written_further(tmp_path: Path) -> None:
    one = opened(tmp_path)
    append_each(one, 0, 3)
    (path,) = segments(tmp_path)
    path.unlink()
    with pytest.raises(SpoolError, match="another process has deleted the file"):
        append_each(one, 3, 4)
    append_each(one, 3, 5)
    one.close()
    assert one.open().pushes == 2
    assert read_all(one) == [3, 4]


@pytest.mark.parametrize("error", [None, MemoryError()])
def test_nothing_is_lost_where_there_is_no_memory_for_a_while(
    tmp_path: Path, error: Exception | None
) -> None:
    one = opened(tmp_path, segment_bytes=1000)
    append_each(one, 0, 20)
    with no_more_memory(error):
        first = one.read(20, 1 << 40)
        one.commit(first[-1].position)
    assert len(first) < 20
    assert [*numbers_of(first), *read_all(one)] == list(range(20))
    assert one.statistics.lost_pushes == 0
    assert one.statistics.pushes == 20 - len(first)


def test_nor_where_it_ends_in_the_middle_of_a_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = opened(tmp_path)
    append_each(one, 0, 2)
    one.append(some(2, 6))
    assert numbers_of(one.read(2, 1 << 40)) == [0, 1]
    calls: list[int] = []

    def decode(data: memoryview) -> Push:
        calls.append(len(data))
        if len(calls) == 3:
            raise MemoryError
        return decode_push(data)

    monkeypatch.setattr("receiver.host.spool.reader.decode_push", decode)
    assert read_all(one) == []
    rest = one.read(10, 1 << 40)
    assert numbers_of(rest) == [2, 3, 4, 5]
    one.commit(rest[-1].position)
    assert (one.statistics.pushes, one.statistics.lost_pushes) == (0, 0)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_good_file_that_can_not_be_opened_for_now_stays(tmp_path: Path, code: int) -> None:
    one = opened(tmp_path, segment_bytes=1000)
    append_each(one, 0, 20)
    one.close()
    first, second, *_ = segments(tmp_path)
    first.write_bytes(b"no spool's at all")
    with (
        refused_file(second, OSError(code, os.strerror(code))),
        pytest.raises(SpoolError, match=f"{second}: {os.strerror(code)}"),
    ):
        one.open()
    assert not list(tmp_path.glob("*.corrupt"))
    recovery = one.open()
    assert recovery.set_aside == (first.name,), "and what is damaged is told of as if nothing had been"
    assert read_all(one) == list(range(int(second.stem), 20))


@pytest.mark.parametrize("error", [OSError(errno.ENOMEM, "no memory"), MemoryError()])
def test_nor_is_it_lost_when_memory_ends_in_the_middle_of_it(tmp_path: Path, error: Exception) -> None:
    one = opened(tmp_path)
    append_each(one, 0, 5)
    one.close()

    def fail(*_: object, **__: object) -> bool:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("receiver.host.spool.segment._scan_frame", fail)
        with pytest.raises(SpoolError, match=f"{segments(tmp_path)[0]}: .*memory"):
            one.open()
    assert one.open().set_aside == ()
    assert read_all(one) == [0, 1, 2, 3, 4]


def test_a_file_that_the_disk_can_not_read_is_set_aside(tmp_path: Path) -> None:
    one = opened(tmp_path, segment_bytes=1000)
    append_each(one, 0, 20)
    one.close()
    first, second, *_ = segments(tmp_path)
    with refused_file(first, OSError(errno.EIO, "I/O error")):
        assert one.open().set_aside == (first.name,)
    assert read_all(one) == list(range(int(second.stem), 20))


def test_a_segment_that_cannot_be_deleted_is_reported_and_counts(tmp_path: Path) -> None:
    one = opened(tmp_path, segment_bytes=1000)
    append_each(one, 0, 10)
    oldest = segments(tmp_path)[0]
    size = oldest.stat().st_size
    spooled = one.read(10, 1 << 40)
    oldest.unlink()
    oldest.mkdir()
    one.commit(spooled[-1].position)
    problem = one.statistics.problem
    assert problem is not None
    assert str(oldest) in problem
    assert one.statistics.bytes == bytes_on_disk(tmp_path) - oldest.stat().st_size + size
    assert one.statistics.pushes == 0


def test_a_disk_that_is_full_or_read_only(tmp_path: Path) -> None:
    """A full disk stops appends only, until there is room again."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare(1) is missing (Debian: apt-get install util-linux)")
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace may be made here")
    command = [*namespace, sys.executable, "-m", "tests.unit.host.spool.on_a_small_disk", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    folder = tmp_path / "spool"
    assert json.loads(done.stdout) == {
        "full": f"{folder}: No space left on device",
        "half_written": 0,
        "cursor": f"{folder}: No space left on device",
        "lost": [],
        "problem": None,
        "read_only": f"{folder}: Read-only file system",
    }
