"""What the disk and other processes do: full, read-only, a folder that is taken, ``kill -9``."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from receiver.host.spool import SpoolError
from tests.unit.host.disks import no_more_memory
from tests.unit.host.spool.support import append_each, bytes_on_disk, opened, read_all, segments, some, spool

ROOT = Path(__file__).parents[4]


def test_a_folder_has_one_spool(tmp_path: Path) -> None:
    one = opened(tmp_path)
    with pytest.raises(SpoolError, match="another plugin or receiver has this folder") as error:
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
    with pytest.raises(SpoolError, match=rf"^{tmp_path}/file: File exists"):
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


def test_a_segment_that_somebody_deletes_is_written_no_more(tmp_path: Path) -> None:
    one = opened(tmp_path)
    append_each(one, 0, 3)
    (path,) = segments(tmp_path)
    path.unlink()
    with pytest.raises(SpoolError, match="somebody has deleted the file"):
        append_each(one, 3, 4)
    append_each(one, 3, 5)
    one.close()
    assert one.open().pushes == 2
    assert read_all(one) == [3, 4]


def test_nothing_is_lost_where_the_system_is_short_of_memory_for_a_while(tmp_path: Path) -> None:
    one = opened(tmp_path, segment_bytes=1000)
    append_each(one, 0, 20)
    with no_more_memory():
        first = read_all(one)
    assert len(first) < 20
    assert [*first, *read_all(one)] == list(range(20))
    assert one.statistics.lost_pushes == 0


def test_a_segment_that_can_not_be_deleted_is_told_and_counts(tmp_path: Path) -> None:
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
    """Full: nothing half-written, reading and committing go on, and so does appending once there is room."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare(1) is missing (Debian: apt-get install util-linux)")
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace may be made here")
    command = [*namespace, sys.executable, "-m", "tests.unit.host.spool.on_a_small_disk", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, timeout=60, check=False)
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
