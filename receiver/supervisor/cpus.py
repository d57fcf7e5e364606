"""The number of cores that this container may use."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

__all__ = ["available_cpus", "cpu_quota"]

_CGROUP: Final = Path("/sys/fs/cgroup")


def available_cpus(cgroup: Path = _CGROUP) -> int:
    """Return the cores of the scheduler's affinity or of the cgroup's quota, if that is less.

    A quota of part of a core counts as a whole one.
    """
    cores = len(os.sched_getaffinity(0))
    quota = cpu_quota(cgroup)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def cpu_quota(cgroup: Path) -> float | None:
    """Return the cores that a cgroup may use on average; None without a quota.

    Inside a container its own cgroup is the root. Source: the kernel's documentation of ``cpu.max``
    (version 2), ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us`` (version 1).
    """
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (cgroup / "cpu/cpu.cfs_quota_us").read_text()
            period = (cgroup / "cpu/cpu.cfs_period_us").read_text()
        except OSError:
            return None
    try:
        cores = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):  # "max": there is no quota
        return None
    return cores if cores > 0 else None
