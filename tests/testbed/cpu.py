"""Owns the reading of what a process costs: CPU time and memory."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path


def with_descendants(pid: int) -> list[int]:
    """Return the ids of a process and of all processes that it started, oldest first."""
    found = [pid]
    for item in found:
        # Each thread has the children that it started itself.
        for thread in _threads(item):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, (thread / "children").read_text().split())
    return found


def _threads(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []


def cpu_seconds(pid: int) -> float:
    """Return a process's CPU seconds: user and system, of live and ended threads.

    Read from the process's CPU clock (clock_getcpuclockid(3)): exact, where /proc/PID/stat counts
    in steps of 10 ms.

    Raises:
        ProcessLookupError: There is no such process.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError as error:
        raise ProcessLookupError(f"no process {pid}") from error


def cpu_seconds_with_ended(pids: Iterable[int]) -> float:
    """Return the CPU seconds of processes, and of their children that have ended.

    Give all processes of a tree. Then the time of a process that ends later stays in the sum,
    because its parent has it from then on. That time counts in steps of 10 ms.

    Args:
        pids: Processes. Those that have ended are left out.
    """
    total = 0.0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            own = cpu_seconds(pid)
            ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]
            total += own + sum(map(int, ended)) / os.sysconf("SC_CLK_TCK")
    return total


def memory_bytes(pid: int) -> int:
    """Bytes of memory that a process holds: resident, pages it shares counted by its share (Pss).

    Raises:
        ProcessLookupError: There is no such process.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessLookupError(f"no process {pid}") from error
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
