"""Owns the reading of what a process costs: CPU time and memory."""

from __future__ import annotations

import time
from pathlib import Path


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
