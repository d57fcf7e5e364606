"""The cores and the memory that this process may use, by its control groups.

Source: the kernel's "Control Group v2", "CFS Bandwidth Control" and "Memory Resource Controller".
Container engines use both versions.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from receiver.numbers import whole_number

_ROOT: Final = Path("/")

#: Version 1 writes a limit of nearly 2^63 bytes in place of none.
_NO_LIMIT: Final = 1 << 62


def available_cpus(root: Path = _ROOT) -> int:
    """Return the cores that affinity and the least cgroup quota allow.

    A quota of part of a core counts as a whole one.

    Args:
        root: The folder that holds ``proc`` and ``sys``.
    """
    quotas = [quota_v2(*files) for files in _files(root, "", "cpu.max")]
    quotas += [quota_v1(*files) for files in _files(root, "cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us")]
    cores = [math.ceil(quota) for quota in quotas if quota is not None]
    return max(1, min([len(os.sched_getaffinity(0)), *cores]))


def memory_limit(root: Path = _ROOT) -> int | None:
    """Return the least memory limit of all groups in bytes; None without one."""
    found = [*_files(root, "", "memory.max"), *_files(root, "memory", "memory.limit_in_bytes")]
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


def _files(root: Path, controller: str, *names: str) -> Iterator[tuple[str, ...]]:
    """Yield files of each group that this process is in, up to the root.

    Args:
        root: The folder that holds ``proc`` and ``sys``.
        controller: The controller's name in version 1; empty for version 2.
        names: The files; a group without one of them is left out.
    """
    mount = root / "sys/fs/cgroup" / controller
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            for group in _up(mount, path):
                found = tuple(text for name in names if (text := _read(group / name)) is not None)
                if len(found) == len(names):
                    yield found


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
