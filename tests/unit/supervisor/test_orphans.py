"""As process 1, the supervisor reaps orphans and leaves its own children alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: Runs as process 1: one child is its own, and one orphan comes to it. Both have ended.
_PROGRAM = """
import os, sys
from pathlib import Path
from receiver.supervisor.child import reap_orphans

assert os.getpid() == 1
own = os.fork()
if not own:
    os._exit(7)
reading, writing = os.pipe()
between = os.fork()
if not between:
    if not os.fork():
        os.close(writing)
        os.read(reading, 1)  # until nobody can write any more
        os._exit(0)
    os._exit(0)
os.close(writing)
os.waitpid(between, 0)
while True:
    children = {int(pid) for pid in Path("/proc/self/task/1/children").read_text().split()} - {own}
    states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in children]
    if states == ["Z"]:
        break
print(reap_orphans({own}), reap_orphans({own}), os.waitstatus_to_exitcode(os.waitpid(own, 0)[1]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root here")
def test_orphans_are_reaped() -> None:
    ended = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", _PROGRAM],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ended.stdout, ended.stderr) == ("1 0 7\n", "")
