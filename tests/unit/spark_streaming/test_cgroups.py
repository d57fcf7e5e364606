"""What the kernel has killed for want of memory: files as it writes them, and a real death."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spark_streaming.cgroups import how_it_ended, memory_kills
from tests.testbed.control_groups import LIMITS, limited

#: As version 2 writes it.
EVENTS = "low 0\nhigh 0\nmax 41\noom 3\noom_kill {}\noom_group_kill 0\n"
#: As version 1 does.
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
KILLED = -signal.SIGKILL


def write(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


@pytest.mark.parametrize(
    ("group", "file", "text"),
    [
        ("0::/", "memory.events", EVENTS),
        ("0::/pods/a", "pods/a/memory.events", EVENTS),
        ("5:memory:/", "memory/memory.oom_control", CONTROL),
        ("5:cpu,memory:/pods/a", "memory/pods/a/memory.oom_control", CONTROL),
        # In a container the path is the host's, and the folder the container's own.
        ("5:memory:/pods/a", "memory/memory.oom_control", CONTROL),
        # Both versions: this one has the controller.
        ("5:memory:/a\n0::/a", "memory/a/memory.oom_control", CONTROL),
    ],
)
def test_the_groups_own_kills_count(group: str, file: str, text: str, tmp_path: Path) -> None:
    files = {"proc/self/cgroup": f"{group}\n", f"sys/fs/cgroup/{file}": text.format(7)}
    root = write(tmp_path, files)
    assert memory_kills(root) == 7
    assert how_it_ended(KILLED, 7, root) == "killed by SIGKILL"
    assert how_it_ended(KILLED, 5, root) == (
        "killed by SIGKILL; meanwhile the kernel killed 2 of the container's processes, for want of memory"
    )
    # Memory has nothing to do with these.
    assert how_it_ended(-signal.SIGSEGV, 5, root) == "killed by SIGSEGV"
    assert how_it_ended(1, 5, root) == "exit status 1"


@pytest.mark.parametrize(
    "text", ["", "oom_kill\n", "oom_kill many\n", "oom 4\n", "oom_kill -1\n", "\xff\n", "0" * 100_000]
)
def test_other_files_count_nothing(text: str, tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.events": text})
    assert memory_kills(root) == 0
    assert how_it_ended(KILLED, 0, root) == "killed by SIGKILL"


def test_no_group_counts_nothing(tmp_path: Path) -> None:
    assert memory_kills(str(tmp_path)) == 0
    (tmp_path / "proc" / "self" / "cgroup").mkdir(parents=True)  # not even a file
    assert memory_kills(str(tmp_path)) == 0


def test_a_signal_without_a_name() -> None:
    assert how_it_ended(-(signal.SIGRTMIN + 3), 0) == f"killed by signal {signal.SIGRTMIN + 3}"


@pytest.mark.parametrize("file", LIMITS)
def test_a_real_death_for_want_of_memory(file: str) -> None:
    takes = "import os; held = [os.urandom(1 << 20) for _ in range(512)]"
    command = [sys.executable, "-I", "-m", "spark_streaming.process_1", sys.executable, "-c", takes]
    with limited(file, 64 << 20) as within:
        died = subprocess.run([*within, *command], capture_output=True, text=True, check=False)
    assert died.returncode == 128 + signal.SIGKILL
    assert re.fullmatch(
        "kafka-telemetry: the program died: killed by SIGKILL; meanwhile the kernel killed 1 of the "
        "container's processes, for want of memory; process 1 ends\n",
        died.stderr,
    )
