"""The cores and the memory that this process may use, by its control groups.

Source: the kernel's "Control Group v2", "CFS Bandwidth Control" and "Memory Resource Controller".
Container engines use both versions.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

from receiver.numbers import whole_number
from spark_streaming import cgroups

_ROOT: Final = Path("/")

#: Version 1 writes a limit of nearly 2^63 bytes in place of none.
_NO_LIMIT: Final = 1 << 62


def available_cpus(root: Path = _ROOT) -> int:
    """Return the cores that affinity and the least cgroup quota allow.

    A quota of part of a core counts as a whole one.

    Args:
        root: The folder that holds ``proc`` and ``sys``.
    """
    quotas = [quota_v2(*files) for files in cgroups.files(str(root), "", "cpu.max")]
    quotas += [
        quota_v1(*files) for files in cgroups.files(str(root), "cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us")
    ]
    cores = [math.ceil(quota) for quota in quotas if quota is not None]
    return max(1, min([len(os.sched_getaffinity(0)), *cores]))


def memory_limit(root: Path = _ROOT) -> int | None:
    """Return the least memory limit of all groups in bytes; None without one."""
    found = [
        *cgroups.files(str(root), "", "memory.max"),
        *cgroups.files(str(root), "memory", "memory.limit_in_bytes"),
    ]
    limits = [whole_number(text.strip(), _NO_LIMIT - 1) for (text,) in found]  # None of "max"
    return min((limit for limit in limits if limit is not None), default=None)


def quota_v2(cpu_max: str) -> float | None:
    """Return the cores in the content of ``cpu.max``; None without a quota."""
    return _cores(*[*cpu_max.split(), "", ""][:2])


def quota_v1(quota_us: str, period_us: str) -> float | None:
    """Return the cores in ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us``.

    None without a quota.
    """
    return _cores(quota_us, period_us)


def _cores(quota: str, period: str) -> float | None:
    try:
        cores = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):  # "max": there is no quota
        return None
    return cores if cores > 0 else None  # version 1 writes -1
