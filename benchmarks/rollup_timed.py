"""``python -m benchmarks.rollup_timed FILE ARGUMENTS``: the roll-up's command with timed batches.

The command runs unchanged. FILE gets the wall and CPU seconds of each batch, and peak memory, as
JSON.
"""

from __future__ import annotations

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
from spark_streaming.postgres import Batch
from tests.testbed.cpu import cpu_seconds


def main() -> None:
    """Run the command."""
    file, *arguments = sys.argv[1:]
    document: dict[str, Any] = {"batches": [], "peak_bytes": {}}
    pids = {"python": os.getpid()}

    def spent() -> dict[str, float]:
        """Seconds of the clock, and CPU seconds of Python, the JVM and the database connection."""
        return {"wall": time.monotonic(), "cpu": sum(map(cpu_seconds, pids.values()))}

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

    def noticing_postgres(record: Any) -> Any:
        # The first batch learns the connection's process, so its CPU is too large.
        @functools.wraps(record)
        def call(batch: Batch, *arguments: Any, **options: Any) -> Any:
            pids["postgres"] = batch.connection.info.backend_pid
            return record(batch, *arguments, **options)

        return call

    batches: Any = Batches
    batches.roll_up = timed(Batches.roll_up)
    batch: Any = Batch
    batch.record = noticing_postgres(Batch.record)
    try:
        cli.app(arguments, standalone_mode=False)
    finally:
        Path(file).write_text(json.dumps(document))


def _java() -> int:
    return next(
        pid for pid in descendants(os.getpid()) if Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    )


if __name__ == "__main__":
    main()
