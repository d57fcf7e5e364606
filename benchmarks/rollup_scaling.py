"""Benchmark of the roll-up on a standalone Spark with one and with two workers of one core.

A worker and its executor are pinned to a core, and the driver and PostgreSQL share the cores of the
workers. So the clock compares one core with two, and a core has as much to do beside its worker in
both cases. The CPU of each process tells how workers on machines of their own scale. Each run is
repeated with tasks that count the rows of minutes instead of sending them (``rollup_counting``).
:mod:`benchmarks.scaling_report` evaluates the runs.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import psycopg
import yaml

from benchmarks.figures import Report
from benchmarks.processes import BenchmarkError, Running, on_cores, postmaster_of
from benchmarks.rollup_counting import FILE
from benchmarks.rollup_spool import File, Fleet
from benchmarks.rollup_timed import Measured
from benchmarks.scaling_report import Run, Scaling, timed
from benchmarks.tuned_postgres import tune
from spark_streaming.embedded import EmbeddedPostgres
from tests.testbed.ports import LOOPBACK
from tests.testbed.spark_cluster import SparkCluster

_INSTANCES: Final = 10_000
_CLIENT_IDS: Final = 500
_WORKERS: Final = (1, 2)
#: Tasks of the run that measures what a task costs the driver.
_MANY_TASKS: Final = 50
#: With few pushes, a batch takes what it takes without points.
_SMALL_PUSHES: Final = 10
#: Small batches before the large ones, until the driver's JVM is warm, and after them. The first of
#: these ends what the last large one has begun.
_SMALL_BEFORE: Final = 30
_SMALL_AFTER: Final = 6
_WITHIN_S: Final = 900.0
_LOG_TAIL: Final = 3_000
#: Rows of a quarter of a page each: more than fit into the shared buffers.
_FILLER_ROWS: Final = 570_000
#: A run writes less. Each begins with a checkpoint, which lets it use the segments again.
_LOG_MB: Final = 2_000
_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """How long it takes.

    Attributes:
        warm: Large batches until the executors are warm.
        measured: Large batches after these.
        runs: Runs with the same sink and number of workers.
    """

    warm: int
    measured: int
    runs: int


#: Each of two executors compiles as much as the only one does, of half the points. Runs of a kind
#: differ more than batches of a run.
_FULL: Final = _Size(warm=6, measured=5, runs=2)
_QUICK: Final = _Size(warm=4, measured=3, runs=1)
#: Files of a batch. As many fit into a batch of the default size.
_FILES: Final = 40


def run(folder: Path, *, quick: bool) -> Report:
    """Run the job with one and with two workers, into PostgreSQL and into the counting sink."""
    if len(os.sched_getaffinity(0)) < max(_WORKERS):
        raise BenchmarkError(f"{max(_WORKERS)} cores are needed")
    size = _QUICK if quick else _FULL
    files = _files(folder / "made", size)
    with EmbeddedPostgres(folder / "postgres") as server:
        tune(server)
        _warm_up(server)

        postgresql = Running(name="postgresql", pid=postmaster_of(folder / "postgres"))

        def measure(name: str, files: Sequence[File], *, workers: int, **options: Any) -> Run:
            cores = set(sorted(os.sched_getaffinity(0))[:workers])
            with on_cores(cores, [postgresql]), _database(server) as url:
                return _run(folder / name, files, size, url, workers=workers, **options)

        kinds = [(sink, workers) for sink in ("postgresql", "counting") for workers in _WORKERS]
        found: dict[tuple[str, int], list[Run]] = {kind: [] for kind in kinds}
        for number in range(size.runs):
            # In turn, because the machine may be quicker for some minutes.
            for sink, workers in kinds if number % 2 == 0 else reversed(kinds):
                name = f"{sink}-{workers}-{number}"
                counting = sink == "counting"
                found[sink, workers].append(measure(name, files, workers=workers, counting=counting))
        small = files[-_SMALL_AFTER * _FILES :]
        many = measure(
            "many", files[: _SMALL_BEFORE * _FILES] + small, workers=_WORKERS[-1], counting=False,
            tasks=_MANY_TASKS,
        )  # fmt: skip
    scaling = Scaling(
        runs=[_together(runs) for runs in found.values()],
        many=many,
        many_tasks=_MANY_TASKS,
        files=_FILES,
        # As the fleet distributes them.
        instances=[len(range(number, _INSTANCES, _CLIENT_IDS)) for number in range(_CLIENT_IDS)],
    )
    return Report(
        title="The roll-up on one and on two workers of one core",
        text=scaling.text,
        raw=asdict(scaling),
        figures=scaling.figures,
    )


def _together(runs: Sequence[Run]) -> Run:
    """Return the batches of all runs of a kind as those of one run."""
    return replace(
        runs[0],
        large=[batch for run in runs for batch in run.large],
        small=[batch for run in runs for batch in run.small],
    )


def _files(folder: Path, size: _Size) -> list[File]:
    """Make the files of full batches and of small ones."""
    fleet = Fleet(instances=_INSTANCES, client_ids=_CLIENT_IDS)
    batches = [
        *[_SMALL_PUSHES] * _SMALL_BEFORE,
        *[fleet.file_pushes] * (size.warm + size.measured),
        *[_SMALL_PUSHES] * _SMALL_AFTER,
    ]
    pushes = [count for count in batches for _ in range(_FILES)]
    # Small ones don't need half a minute.
    lasts = [30 if count > _SMALL_PUSHES else 1 for count in pushes]
    begin_s = time.time() - sum(lasts)
    begins = itertools.accumulate(lasts, initial=begin_s)
    return [
        fleet.write_file(folder, pushes=count, begin_ns=round(begin * 1e9))
        for begin, count in zip(begins, pushes, strict=False)
    ]


def _warm_up(server: EmbeddedPostgres) -> None:
    """Let PostgreSQL use all of its shared buffers, and write segments of the log for later use.

    Both take CPU the first time only. Without it the first run paid for them.
    """
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE filler (line text STORAGE PLAIN)")
        # Only INSERT uses all buffers: COPY and CREATE TABLE AS use a few again and again.
        connection.execute(
            "INSERT INTO filler SELECT repeat('x', 1900) FROM generate_series(1, %s)", [_FILLER_ROWS]
        )
        connection.execute("DROP TABLE filler")
        connection.execute(
            "SELECT count(pg_logical_emit_message(false, 'benchmark', repeat('x', %s))) "
            "FROM generate_series(1, %s)",
            [_MILLION, _LOG_MB],
        )


@contextmanager
def _database(server: EmbeddedPostgres) -> Iterator[str]:
    """Create a database, and drop it, so that nothing is left to do for the next one."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE scaling")
        connection.execute("CHECKPOINT")
        yield server.url_of("scaling")
        connection.execute("DROP DATABASE scaling WITH (FORCE)")


def _run(
    own: Path,
    files: Sequence[File],
    size: _Size,
    url: str,
    *,
    workers: int,
    counting: bool,
    tasks: int | None = None,
) -> Run:
    """Run the job over all files, in batches of as many files each.

    Args:
        own: Folder of the run.
        files: Its input.
        size: Files of a batch, and batches.
        url: An empty database.
        workers: Number of workers.
        counting: Count minutes instead of sending them.
        tasks: Number of tasks, other than the number of cores.
    """
    spool = own / "spool"
    spool.mkdir(parents=True)
    for file in files:
        os.link(file.path, spool / file.path.name)
    with SparkCluster(workers=workers, cores=1, worker_memory="2g", pinned=True) as cluster:
        spark = {
            "spark.master": cluster.url,
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.memory": "1g",
            "spark.executor.cores": 1,
            "spark.cores.max": workers,
            # The first batch waits for all workers.
            "spark.scheduler.minRegisteredResourcesRatio": 1.0,
        }
        if counting:
            spark |= {
                "spark.python.daemon.module": "benchmarks.rollup_counting",
                f"spark.executorEnv.{FILE}": str(own / "counted"),
            }
        if tasks is not None:
            spark["spark.default.parallelism"] = tasks
        settings = {"spark": spark, "spool_files": {"path": str(spool), "max_files": _FILES}}
        (own / "rollup.yaml").write_text(yaml.safe_dump(settings))
        measured = Measured(
            url=url, postmaster=postmaster_of(own.parent / "postgres"), workers=cluster.workers
        )
        _job(own, url, measured)
    with psycopg.connect(url) as connection:
        points = [
            count for (count,) in connection.execute("SELECT points FROM telemetry.ledger ORDER BY batch_id")
        ]
    if sum(points) != sum(file.points for file in files):
        raise BenchmarkError(f"{own}: {sum(points)} points are in the database")
    batches = timed(json.loads((own / "timed.json").read_text())["batches"], points)
    return Run(
        workers=workers,
        counting=counting,
        large=batches[:-_SMALL_AFTER][-size.measured :],
        small=batches[-_SMALL_AFTER + 1 :],
        counted=_counted(own / "counted") if counting else {},
    )


def _job(own: Path, url: str, measured: Measured) -> None:
    command = [
        *(sys.executable, "-m", "benchmarks.rollup_timed", str(own / "timed.json")),
        *(json.dumps(asdict(measured)), "run", "--once", "--source", "spool_files", "--postgres", url),
        *("--checkpoint", str(own / "checkpoint"), "--config", str(own / "rollup.yaml")),
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "SPARK_LOCAL_IP": LOOPBACK},
        capture_output=True,
        text=True,
        check=False,
        timeout=_WITHIN_S,
    )
    if done.returncode:
        raise BenchmarkError(f"the job in {own} failed:\n{done.stderr[-_LOG_TAIL:]}")


def _counted(file: Path) -> dict[str, dict[str, int]]:
    rows: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for line in file.read_text().splitlines():
        name, count, length = line.split()
        rows[name] += int(count)
        size[name] += int(length)
    return {name: {"rows": rows[name], "bytes": size[name]} for name in rows}
