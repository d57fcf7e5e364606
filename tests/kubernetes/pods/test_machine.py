"""A node leaves nothing behind, also when the tests are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.images.engine import TREE
from tests.testbed.node import machine
from tests.testbed.node.machine import Machine
from tests.testbed.process import wait_until

PROBLEM = machine.problem()
needs_root = pytest.mark.skipif(PROBLEM is not None, reason=str(PROBLEM))

#: Starts a machine with a program, says what it has made, and waits.
_PROGRAM = """
import time
from pathlib import Path
from tests.testbed.node.machine import Machine

with Machine() as machine:
    machine.start("sleeper", "sleep", "600.123", path=Path("/usr/bin"))
    print(machine.folder, machine.cgroup, flush=True)
    time.sleep(600)
"""


def groups(name: str) -> list[Path]:
    """The control groups of a machine."""
    return [*Path("/sys/fs/cgroup").glob(name), *Path("/sys/fs/cgroup").glob(f"*/{name}")]


def sleepers() -> list[str]:
    """The programs of the machine that still run."""
    commands = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it has ended
    return [command for command in commands if "sleep 600.123" in command]


@needs_root
def test_a_program_runs_in_a_network_and_a_process_table_of_its_own() -> None:
    with Machine() as started:
        assert started.run("sh", "-c", "ps -e -o comm= | sort -u | head -20").split()[:1] != []
        assert "systemd" not in started.run("ps", "-e", "-o", "comm=")
        assert f"inet {started.address}/" in started.run("ip", "address")
        assert groups(started.cgroup) != []
        folder, cgroup = started.folder, started.cgroup
    assert not folder.exists()
    assert groups(cgroup) == []


@needs_root
def test_nothing_is_left_when_the_tests_are_killed() -> None:
    killed = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], cwd=TREE, stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert killed.stdout is not None
    with killed.stdout:
        folder, cgroup = killed.stdout.readline().split()
        wait_until(lambda: sleepers() != [], timeout_s=60, what="the program on the machine")
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    wait_until(lambda: sleepers() == [], timeout_s=60, what="the end of the program")
    wait_until(lambda: not Path(folder).exists(), timeout_s=60, what="the end of the folder")
    wait_until(lambda: groups(cgroup) == [], timeout_s=60, what="the end of the control groups")
