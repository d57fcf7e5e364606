"""Cores and memory, from cgroup files as the kernel writes them, and from real groups."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from receiver.supervisor.cgroups import available_cpus, memory_limit, quota_v1, quota_v2
from tests.testbed.control_groups import LIMITS, limited


@pytest.mark.parametrize(
    ("cpu_max", "cores"),
    [
        ("max 100000\n", None),
        ("150000 100000\n", 1.5),
        ("200000 100000\n", 2.0),
        ("5000 10000", 0.5),
        ("", None),
        ("200000", None),
        ("nonsense 100000", None),
        ("100000 0", None),
    ],
)
def test_quota_of_version_2(cpu_max: str, cores: float | None) -> None:
    assert quota_v2(cpu_max) == cores


@pytest.mark.parametrize(
    ("quota", "period", "cores"),
    [("-1\n", "100000\n", None), ("250000\n", "100000\n", 2.5), ("", "100000", None), ("100", "0", None)],
)
def test_quota_of_version_1(quota: str, period: str, cores: float | None) -> None:
    assert quota_v1(quota, period) == cores


@pytest.fixture(autouse=True)
def sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_without_a_quota_the_affinity_counts(tmp_path: Path) -> None:
    assert available_cpus(tmp_path) == 16
    root = write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"})
    assert available_cpus(root) == 16


@pytest.mark.parametrize(
    ("cpu_max", "cores"),
    [("250000 100000", 3), ("10000 100000", 1), ("6400000 100000", 16), ("1600000 100000", 16)],
)
def test_a_containers_quota_is_rounded_up(tmp_path: Path, cpu_max: str, cores: int) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": cpu_max}
    assert available_cpus(write(tmp_path, files)) == cores


def test_the_least_quota_of_all_groups_above_counts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/system.slice/receiver.service\n",
        "sys/fs/cgroup/system.slice/cpu.max": "300000 100000\n",
        "sys/fs/cgroup/system.slice/receiver.service/cpu.max": "500000 100000\n",
    }
    assert available_cpus(write(tmp_path, files)) == 3


def test_version_1_with_the_hosts_path_in_a_container(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:memory:/pods/pod1/a\n4:cpu,cpuacct:/pods/pod1/a\n0::/pods/pod1/a\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    assert available_cpus(write(tmp_path, files)) == 4


def test_groups_without_the_controller_of_cores_do_not_count(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "6:cpuset:/a\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "100000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    assert available_cpus(write(tmp_path, files)) == 16


def test_the_real_machine_has_at_least_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert 1 <= available_cpus() <= len(os.sched_getaffinity(0))


NONE_V1 = "9223372036854771712\n"


def test_without_a_memory_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) is None
    files = {
        "proc/self/cgroup": "5:memory:/a\n0::/a\n",
        "sys/fs/cgroup/a/memory.max": "max\n",
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": NONE_V1,
    }
    assert memory_limit(write(tmp_path, files)) is None


def test_the_least_memory_limit_counts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:memory:/pod/a\n0::/pod/a\n",
        "sys/fs/cgroup/pod/memory.max": "805306368\n",
        "sys/fs/cgroup/pod/a/memory.max": "max\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": NONE_V1,
    }
    assert memory_limit(write(tmp_path, files)) == 768 << 20
    files["sys/fs/cgroup/memory/pod/memory.limit_in_bytes"] = "536870912\n"
    assert memory_limit(write(tmp_path, files)) == 512 << 20


@pytest.mark.parametrize("file", LIMITS)
def test_a_real_memory_limit(file: str) -> None:
    program = "from receiver.supervisor.cgroups import memory_limit; print(memory_limit())"
    with limited(file, 768 << 20) as within:
        said = subprocess.run(
            [*within, sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
    assert said.stdout == f"{768 << 20}\n"
