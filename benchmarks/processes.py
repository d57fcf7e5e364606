"""Measured processes: start and end, memory, and placement on cores."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.ports import is_open
from tests.testbed.process import ChildProcess

_READY_SECONDS = 30.0
_OPEN_FILES = 16_384


class BenchmarkError(RuntimeError):
    """Something is missing, failed, or cannot be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A process under measurement."""

    name: str
    pid: int

    def pids(self) -> list[int]:
        """Return its process id and those of its descendants."""
        return [self.pid, *descendants(self.pid)]

    def resident_bytes(self) -> int:
        """Return the private memory of the process and its descendants in bytes, swap included.

        Pages of shared libraries do not grow with connections, so they do not count; see
        ``smaps_rollup`` in proc(5).
        """
        total = 0
        for pid in self.pids():
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith(("Private_Clean:", "Private_Dirty:", "Swap:")):
                    total += int(line.split()[1]) * 1024
        return total

    def forget_peak(self) -> None:
        """Reset the peak memory to the present memory; see ``clear_refs`` in proc(5)."""
        for pid in self.pids():
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def peak_bytes(self) -> int:
        """Return the sum of the peaks of all its processes in bytes; shared pages count once."""
        return sum(peak_bytes(pid) for pid in self.pids())


def peak_bytes(pid: int) -> int:
    """Return the peak memory of one process in bytes, without pages that others share with it.

    It is 0 for a process that has ended.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        if "VmHWM:" not in status:
            return 0
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    shared_by_others = _kib(rollup, "Rss:") - _kib(rollup, "Pss:")
    return (_kib(status, "VmHWM:") - shared_by_others) * 1024


def postmaster_of(folder: Path) -> int:
    """Return the process id of the PostgreSQL that runs in a data folder."""
    return int((folder / "postmaster.pid").read_text().split()[0])


def _kib(text: str, name: str) -> int:
    return int(text.split(name)[1].split()[0])


@contextlib.contextmanager
def running(name: str, command: Sequence[str], *, folder: Path, ready: str) -> Iterator[Running]:
    """Run a command in a folder; the block starts when ``ready`` (host:port) accepts connections.

    Its output is in ``NAME.log``. A command that does not get ready raises StartError.
    """
    process = ChildProcess(name, command, log=folder / f"{name}.log", cwd=folder)
    port = int(ready.rpartition(":")[2])
    process.wait_until_ready(lambda: is_open(port), timeout_s=_READY_SECONDS)
    try:
        yield Running(name=name, pid=process.pid)
    finally:
        process.terminate()


@contextlib.contextmanager
def on_cores(cores: AbstractSet[int], processes: Sequence[Running]) -> Iterator[None]:
    """Pin this process, ``processes`` and their descendants to some cores during the block."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    _pin(processes, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        _pin(processes, before)


def _pin(processes: Sequence[Running], cores: AbstractSet[int]) -> None:
    for pid in (pid for process in processes for pid in process.pids()):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the process has just ended
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):  # the thread has just ended
                    os.sched_setaffinity(int(task.name), cores)


def descendants(pid: int) -> list[int]:
    """Return the process ids of all descendants that live now."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def allow_files() -> None:
    """Raise the limit of open files of this process and its children, for many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= _OPEN_FILES:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, max(_OPEN_FILES, hard)))
    except (ValueError, OSError) as error:
        raise BenchmarkError(
            f"{_OPEN_FILES} open files are needed, the hard limit is {hard}: raise it (ulimit -Hn)"
        ) from error
