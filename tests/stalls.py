"""Runs the gate's tests while their processes stand still at random.

A test that decides by a clock, or takes an order of two threads or connections for granted, passes
on a quick machine and fails on a busy one. Here each process of pytest is stopped again and again
for up to three seconds, at its own times. What the tests start goes on: that a core is late is an
answer of its own to clients.

``python -m tests.stalls --seed 7`` draws the same times again, though the machine's own differ.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: Seconds for which a process stands still, one of them at a time.
_STANDS_S: Final = (0.1, 0.3, 0.7, 1.5, 3.0)
#: Seconds for which it runs in between, at least and at most.
_RUNS_S: Final = (0.2, 2.0)
_LOOK_EVERY_S: Final = 0.05


class Stalls:
    """Stops and continues the pytests that a process has started."""

    def __init__(self, root: int, seed: int) -> None:
        self._root = root
        self._random = random.Random(seed)
        self._due: dict[int, float] = {}
        self._standing: set[int] = set()

    def step(self, now: float) -> None:
        """Stop and continue what is due at a time (monotonic seconds)."""
        for process in _descendants(self._root):
            if process not in self._due:
                self._due[process] = now + self._random.uniform(*_RUNS_S)
            elif now >= self._due[process]:
                self._turn(process, now)

    def end(self) -> None:
        """Let all go on."""
        for process in self._standing:
            _send(process, signal.SIGCONT)

    def _turn(self, process: int, now: float) -> None:
        if process in self._standing:
            self._standing.discard(process)
            _send(process, signal.SIGCONT)
            self._due[process] = now + self._random.uniform(*_RUNS_S)
        elif _is_pytest(process) and _send(process, signal.SIGSTOP):
            self._standing.add(process)
            self._due[process] = now + self._random.choice(_STANDS_S)


def _send(process: int, sent: signal.Signals) -> bool:
    """Return whether the process is there to get a signal."""
    try:
        os.kill(process, sent)
    except ProcessLookupError:
        return False
    return True


def _is_pytest(process: int) -> bool:
    """Return whether it is pytest, or a worker of pytest-xdist."""
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"pytest" in command or b"import sys;exec(eval(sys.stdin.readline()))" in command


def _descendants(root: int) -> Iterator[int]:
    """Yield the processes that a process has started, and theirs."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                status = (folder / "stat").read_text(errors="replace")
            except OSError:
                continue
            # Behind the command's name, which may have spaces: the state and the parent.
            children.setdefault(int(status.rpartition(")")[2].split()[1]), []).append(int(folder.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    yield from found[1:]


def main() -> int:
    """Run the tests, and return their exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.stalls", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="default: a new one")
    seed = parser.parse_args().seed
    sys.stdout.write(f"==> [stalls] seed {seed}\n")
    sys.stdout.flush()
    tests = subprocess.Popen([sys.executable, "-m", "tests", "--no-lint"])
    stalls = Stalls(tests.pid, seed)
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return tests.wait(_LOOK_EVERY_S)
            stalls.step(time.monotonic())
    finally:
        stalls.end()


if __name__ == "__main__":
    sys.exit(main())
