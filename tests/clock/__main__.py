"""Runs the roll-up's tests of the gate by a clock that starts at any time of the day and goes fast.

A test of minutes, hours and days can depend on where in them it runs, or on whether one passes
meanwhile. It then fails once in some hundred runs. Here a minute passes in 15 seconds, for the
tests, PostgreSQL and Spark. What waits goes by the monotonic clock, which is the machine's.

``python -m tests.clock --start 23:40`` begins at that time of yesterday (UTC).
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

_FACTOR: Final = 4
_TESTS: Final = ("tests/unit/spark_streaming", "tests/property/spark_streaming", "tests/integration/rollup")


def main() -> int:
    """Run the tests, and return pytest's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.clock", description=__doc__.splitlines()[0])
    parser.add_argument("--start", help="time of the day, as HH:MM (default: a random one)")
    parser.add_argument("tests", nargs="*", default=_TESTS, help="files or folders in place of all")
    arguments = parser.parse_args()
    now = datetime.now(UTC)
    start = arguments.start or f"{secrets.randbelow(24):02}:{secrets.randbelow(60):02}"
    hour, _, minute = start.partition(":")
    # Yesterday's, because what is in the future may be refused by what has the machine's own clock.
    begins = now.replace(hour=int(hour), minute=int(minute)) - timedelta(days=1)
    sys.stdout.write(f"==> [clock] starts at {start}\n")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="kct-") as folder:
        library = Path(folder, "clock.so")
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        # The embedded PostgreSQL may be another user.
        Path(folder).chmod(0o755)
        return subprocess.call(
            [sys.executable, "-m", "pytest", "-p", "no:xdist", "-m", "not full", *arguments.tests],
            env={
                **os.environ,
                "CLOCK_START_NS": str(int(begins.timestamp()) * 1_000_000_000),
                "CLOCK_REAL_NS": str(time.time_ns()),
                "CLOCK_FACTOR": str(_FACTOR),
                "LD_PRELOAD": str(library),
            },
        )


if __name__ == "__main__":
    sys.exit(main())
