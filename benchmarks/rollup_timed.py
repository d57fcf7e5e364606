"""``python -m benchmarks.rollup_timed FILE MEASURED ARGUMENTS``: the command with timed batches.

The command runs unchanged. FILE gets, as JSON, for each batch the wall and CPU seconds, the bytes
of the write-ahead log and Spark's stages, and the peak memory. ``measuring_s`` is what reading all
this took since the end of the batch before. MEASURED is a :class:`Measured` as JSON.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.processes import peak_bytes
from benchmarks.spark_stages import FinishedStages
from spark_streaming import cli
from spark_streaming.batch import Batches
from tests.testbed.cpu import cpu_seconds_with_ended, with_descendants


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What is measured beside the driver.

    Attributes:
        url: The database, without a password.
        postmaster: Process id of PostgreSQL.
        workers: Process ids of a standalone Spark's workers. Without them, Spark runs its tasks in
            the driver's JVM.
    """

    url: str
    postmaster: int
    workers: Sequence[int] = ()


def main() -> None:
    """Run the command."""
    file, measured, *arguments = sys.argv[1:]
    document: dict[str, Any] = {"batches": [], "peak_bytes": {}}
    batches: Any = Batches
    batches.roll_up = _timed(Batches.roll_up, document, Measured(**json.loads(measured)))
    try:
        cli.app(arguments, standalone_mode=False)
    finally:
        Path(file).write_text(json.dumps(document))


def _timed(roll_up: Any, document: dict[str, Any], measured: Measured) -> Any:
    stages = FinishedStages()
    after_s = 0.0

    @functools.wraps(roll_up)
    def call(batches: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal after_s
        entered = time.monotonic()
        stages.read(batches._spark)  # noqa: SLF001 -- those before the batch
        with psycopg.connect(measured.url, autocommit=True) as connection:
            began = _spent(connection, measured)
            measuring_s = after_s + time.monotonic() - entered
            result = roll_up(batches, *arguments, **options)
            ended = _spent(connection, measured)
        found = [stage._asdict() for stage in stages.read(batches._spark)]  # noqa: SLF001
        document["batches"].append(
            {"began": began, "ended": ended, "measuring_s": measuring_s, "stages": found}
        )
        driver, jvm, tasks = processes_of(os.getpid())
        document["peak_bytes"] = {
            "driver": sum(map(peak_bytes, driver)),
            "jvm": sum(map(peak_bytes, jvm)),
            "tasks": sum(map(peak_bytes, tasks)),
        }
        after_s = time.monotonic() - ended["wall"]
        return result

    return call


def _spent(connection: psycopg.Connection[Any], measured: Measured) -> dict[str, Any]:
    """Return seconds of the clock, bytes of the write-ahead log, and CPU seconds by part."""
    wall = time.monotonic()
    ((wal_bytes,),) = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8")
    driver, jvm, tasks = processes_of(os.getpid())
    processes = {
        "driver": driver,
        "jvm": jvm,
        "tasks": tasks,
        "postgresql": with_descendants(measured.postmaster),
    }
    for number, pid in enumerate(measured.workers):
        daemon, jvm, tasks = processes_of(pid)
        processes |= {f"executor {number}": [*daemon, *jvm], f"tasks {number}": tasks}
    cpu = {name: cpu_seconds_with_ended(pids) for name, pids in processes.items()}
    return {"wall": wall, "wal_bytes": wal_bytes, "cpu": cpu}


def processes_of(pid: int) -> tuple[list[int], list[int], list[int]]:
    """Return a process, its descendants that are JVMs, and the others: tasks in Python."""
    found = with_descendants(pid)[1:]
    java = [item for item in found if _name(item) == "java"]
    return [pid], java, [item for item in found if item not in java]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


if __name__ == "__main__":
    main()
