"""Runs make targets in turn and prints how each ended: ``python -m tests.targets TARGET...``.

``make test-all`` uses it. A target that fails does not stop the others, because a run takes hours.
The exit status is 0 if every target passed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

_TREE = Path(__file__).parents[1]


def main(targets: list[str]) -> int:
    """Run the targets; the result is the exit status."""
    lines: list[str] = []
    failed = False
    for target in targets:
        _write(f"==> [test-all] {target}")
        start = time.monotonic()
        with subprocess.Popen(
            ["make", "--no-print-directory", target], cwd=_TREE, stdin=subprocess.DEVNULL
        ) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        failed |= process.returncode != 0
        outcome = "failed" if process.returncode else "passed"
        took_s, cpu_s = time.monotonic() - start, used.ru_utime + used.ru_stime
        lines.append(f"{target:<20} {outcome}  {took_s:7.0f} s  {cpu_s:7.0f} CPU seconds")
        _write(f"==> [test-all] {lines[-1]}")
    for line in ["", "target               outcome    wall       CPU", *lines]:
        _write(line)
    return 1 if failed else 0


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
