"""``python -m benchmarks.rollup_timed FILE POSTMASTER ARGUMENTS``: the command with timed batches.

The command runs unchanged. FILE gets the wall and CPU seconds of each batch, and peak memory, as
JSON. POSTMASTER is the process id of PostgreSQL.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.processes import Running, descendants
from spark_streaming import cli
from spark_streaming.batch import Batches
from tests.testbed.cpu import cpu_seconds, with_descendants


def main() -> None:
    """Run the command."""
    file, postmaster, *arguments = sys.argv[1:]
    document: dict[str, Any] = {"batches": [], "peak_bytes": {}}
    pids = {"python": os.getpid()}

    def spent() -> dict[str, Any]:
        """Seconds of the clock, and CPU seconds by part of the job."""
        java = with_descendants(pids["jvm"])
        cpu = {
            "driver": _cpu([pids["python"]]),
            "jvm": _cpu(java[:1]),
            "tasks": _cpu(java[1:]),
            "postgresql": _cpu(with_descendants(int(postmaster))),
        }
        return {"wall": time.monotonic(), "cpu": cpu}

    def timed(roll_up: Any) -> Any:
        @functools.wraps(roll_up)
        def call(*arguments: Any, **options: Any) -> Any:
            pids["jvm"] = pids.get("jvm") or _java()
            began = spent()
            result = roll_up(*arguments, **options)
            document["batches"].append({"began": began, "ended": spent()})
            document["peak_bytes"] = {
                name: Running(name=name, pid=pids[name]).peak_bytes() for name in ("python", "jvm")
            }
            return result

        return call

    batches: Any = Batches
    batches.roll_up = timed(Batches.roll_up)
    try:
        cli.app(arguments, standalone_mode=False)
    finally:
        Path(file).write_text(json.dumps(document))


def _cpu(pids: list[int]) -> float:
    total = 0.0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            total += cpu_seconds(pid)
    return total


def _java() -> int:
    return next(
        pid for pid in descendants(os.getpid()) if Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    )


if __name__ == "__main__":
    main()
