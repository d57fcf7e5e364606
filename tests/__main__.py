"""``python -m tests``: all tests, in a few processes side by side, as most of them wait most of the time.

Owns which tests share a process, and which processes run at once: no more than two processors can serve, as
many tests measure time. What is in no other group is in the last, so that none is left out but what has a
target of its own. A line of output is shown when it is whole, behind its group's name. The exit status is 0
only if every group's is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: What is built gives way to tests, of which many measure time.
_SETUP: Final = ("nice", "-n", "5", sys.executable, "-m", "tests.testbed", "setup", "--parts")
_PYTEST: Final = (sys.executable, "-m", "pytest")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Tests that run one after the other.

    Attributes:
        name: What its lines begin with.
        tests: Files and folders of tests.
        parts: Parts of the testbed that nobody else needs, to be built first.
    """

    name: str
    tests: tuple[str, ...]
    parts: str = ""

    def commands(self, others: Sequence[str], folder: Path) -> list[list[str]]:
        """What to run, one after the other; ``others`` are the tests of other groups."""
        ignored = [f"--ignore={path}" for path in others if path.startswith(self.tests)]
        # Not in pytest's shared folder: each pytest that starts there locks other users out of it again,
        # and the embedded PostgreSQL runs as another user where the tests run as root.
        pytest = [*_PYTEST, f"--basetemp={folder / self.name.replace(' ', '-')}", *self.tests, *ignored]
        return [[*_SETUP, self.parts], pytest] if self.parts else [pytest]


#: Those of a lane run one after the other, the lanes side by side.
_LANES: Final = (
    (
        _Group(name="compute", tests=("tests/unit", "tests/property", "tests/fuzz")),
        _Group(name="chart", tests=("tests/helm",), parts="helm"),
    ),
    (
        _Group(
            name="protocol",
            tests=(
                "tests/conformance",
                "tests/integration/gateway",
                "tests/integration/kip1313",
                "tests/integration/security",
                "tests/integration/test_delivery.py",
                "tests/integration/test_kafka_topic.py",
            ),
        ),
        _Group(
            name="prometheus",
            tests=("tests/integration/test_prometheus.py", "tests/integration/deploy"),
            parts="prometheus",
        ),
    ),
    # One Spark session for both.
    (_Group(name="roll-up", tests=("tests/unit/spark_streaming", "tests/integration/rollup")),),
    (
        _Group(name="the rest", tests=("tests",)),
        # Without Spark.
        _Group(
            name="database", tests=("tests/integration/rollup/findings", "tests/integration/rollup/store")
        ),
    ),
)
_GROUPS: Final = tuple(group for lane in _LANES for group in lane)
#: Have a target of their own, as what they need takes minutes to build: `make test-kubernetes`.
_ON_THEIR_OWN: Final = ("tests/kubernetes",)


def _run(group: _Group, folder: Path) -> bool:
    others = [path for other in _GROUPS if other is not group for path in other.tests]
    others += _ON_THEIR_OWN
    start = time.monotonic()
    cpu_s = 0.0
    passed = True
    for command in group.commands(others, folder):
        # A child does not outlive this process, and its own children don't outlive it.
        with subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                sys.stdout.write(f"[{group.name}] {line}")
                sys.stdout.flush()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        cpu_s += used.ru_utime + used.ru_stime
        passed = process.returncode == 0
        if not passed:
            break
    outcome = "passed" if passed else "failed"
    sys.stdout.write(
        f"[{group.name}] {outcome} in {time.monotonic() - start:.0f} s ({cpu_s:.0f} CPU seconds)\n"
    )
    return passed


def _run_lane(lane: Sequence[_Group], folder: Path, passed: list[str]) -> None:
    passed.extend(group.name for group in lane if _run(group, folder))


def main() -> int:
    """Run all tests; the result is the exit status."""
    passed: list[str] = []
    folder = Path(tempfile.mkdtemp(prefix="kct-"))
    threads = [threading.Thread(target=_run_lane, args=(lane, folder, passed)) for lane in _LANES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Also a group whose thread ended early has not passed.
    failed = [group.name for group in _GROUPS if group.name not in passed]
    if failed:
        sys.stdout.write(f"failed: {', '.join(failed)}; what the tests wrote is in {folder}\n")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
