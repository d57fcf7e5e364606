"""What benchmarks read of processes: CPU of those that have ended, and memory of one alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.processes import Running, peak_bytes
from tests.testbed.cpu import cpu_seconds, cpu_seconds_with_ended, with_descendants
from tests.testbed.process import wait_until

_CHILD_BYTES = 64 << 20
#: A child holds memory while its parent waits, of which no page is like another one of the machine,
#: so that the kernel merges none. Another child has used CPU and has ended.
_PARENT = f"""
import subprocess, sys
busy = "import time\\nwhile time.process_time() < 0.5: pass"
subprocess.run([sys.executable, "-c", busy])
held = "import os; held = os.urandom({_CHILD_BYTES})"
child = subprocess.Popen([sys.executable, "-c", held + "; print(flush=True); input()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print("ready", flush=True)
input()
child.communicate(b"\\n")
"""


@contextmanager
def parent() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        process.communicate(b"\n", timeout=60)


# Beside seven groups the child's memory was twice not seen, and it is not known why.
@pytest.mark.full
def test_the_peak_of_a_process_is_without_its_children() -> None:
    with parent() as pid:
        assert 0 < peak_bytes(pid) < _CHILD_BYTES
        both = Running(name="both", pid=pid)
        # The kernel's list of children is complete only while none ends (proc(5)).
        wait_until(lambda: both.peak_bytes() > _CHILD_BYTES, timeout_s=60, what="both processes")


def test_a_process_that_has_ended_has_no_peak() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(60)
    assert peak_bytes(ended.pid) == 0


def test_the_cpu_of_children_that_have_ended_counts() -> None:
    with parent() as pid:
        pids = with_descendants(pid)
        alive = sum(map(cpu_seconds, pids))
        # In steps of 10 ms.
        assert cpu_seconds_with_ended(pids) >= alive + 0.48
    assert cpu_seconds_with_ended(pids) == 0
