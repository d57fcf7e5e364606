"""The number of cores that this process may use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["available_cpus", "quota_v1", "quota_v2"]

_ROOT: Final = Path("/")


def available_cpus(root: Path = _ROOT) -> int:
    """Return the cores of the scheduler's affinity or of the least cgroup quota, if that is less.

    A quota of part of a core counts as a whole one.

    Args:
        root: The folder that holds ``proc`` and ``sys``.
    """
    quotas = [quota for quota in _quotas(root) if quota is not None]
    return max(1, min([len(os.sched_getaffinity(0)), *map(math.ceil, quotas)]))


def quota_v2(cpu_max: str) -> float | None:
    """Return the cores in the content of ``cpu.max``; None without a quota.

    Source: the kernel's "Control Group v2", CPU interface files.
    """
    return _cores(*[*cpu_max.split(), "", ""][:2])


def quota_v1(quota_us: str, period_us: str) -> float | None:
    """Return the cores in ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us``; None without a quota.

    Source: the kernel's "CFS Bandwidth Control", for cgroups of version 1.
    """
    return _cores(quota_us, period_us)


def _cores(quota: str, period: str) -> float | None:
    try:
        cores = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):  # "max": there is no quota
        return None
    return cores if cores > 0 else None  # version 1 writes -1


def _quotas(root: Path) -> Iterator[float | None]:
    """Return the quota of each cgroup that this process is in, up to the root."""
    mounts = root / "sys/fs/cgroup"
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            for group in _up(mounts, path):
                if (cpu_max := _read(group / "cpu.max")) is not None:
                    yield quota_v2(cpu_max)
        elif "cpu" in controllers.split(","):
            for group in _up(mounts / "cpu", path):
                quota, period = _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
                if quota is not None and period is not None:
                    yield quota_v1(quota, period)


def _up(mount: Path, path: str) -> Iterator[Path]:
    # In a container the path may be the host's, while the mount begins at the container's own
    # group. So folders that do not exist are passed over.
    group = mount / path.lstrip("/")
    yield group
    while group != mount and mount in group.parents:
        group = group.parent
        yield group


def _read(file: Path) -> str | None:
    try:
        return file.read_text()
    except OSError:
        return None
