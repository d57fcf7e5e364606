"""Benchmark of the roll-up, from spool files into PostgreSQL.

The job is the users' command on a PostgreSQL with its defaults. ``rollup_spool`` makes its input,
and ``rollup_timed`` times its batches.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psycopg
import yaml

from benchmarks.figures import Figure, Report, table
from benchmarks.processes import BenchmarkError, postmaster_of
from benchmarks.rollup_spool import File, Fleet
from benchmarks.rollup_timed import Measured
from spark_streaming.embedded import EmbeddedPostgres

#: Millions of data points; the first two sizes also on one core.
_SIZES: Final = (1, 5, 20)
_QUIET_PUSHES: Final = 200
_QUIET_BATCHES: Final = 8
_WARM_QUIET_BATCHES: Final = 4
_WITHIN_S: Final = 900.0
_LOG_TAIL: Final = 3_000
_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """A batch: data points, merged rows, its duration in the ledger, its end, and CPU seconds.

    CPU is that of ``driver``, ``jvm``, ``tasks`` and ``postgresql``.
    """

    points: int
    rows: int
    seconds: float
    ended: float
    cpu: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One run of the job over all files. The first batch learns all series and is compiled."""

    cores: int
    points: int
    #: From the command's start to its end.
    seconds: float
    batches: Sequence[_Batch]
    #: Peak memory by ``driver``, ``jvm`` and ``tasks``, each without the others.
    peak_bytes: Mapping[str, int]

    @property
    def _warm_points(self) -> int:
        return sum(batch.points for batch in self.batches[1:])

    @property
    def warm_rate(self) -> float:
        """Points a second from the end of the first batch to the end of the last."""
        return self._warm_points / ((self.batches[-1].ended - self.batches[0].ended) or float("inf"))

    @property
    def warm_cpu_us(self) -> dict[str, float]:
        """CPU microseconds by point of the batches after the first."""
        return {
            name: sum(batch.cpu[name] for batch in self.batches[1:]) / max(1, self._warm_points) * _MILLION
            for name in self.batches[0].cpu
        }


def run(folder: Path, *, quick: bool) -> Report:
    """Run the job over some millions of points, and send small batches.

    The largest size takes some ten bytes a point in the folder.
    """
    sizes = _SIZES[:2] if quick else _SIZES
    fleet, cores = Fleet(), os.cpu_count() or 1
    files = fleet.write(folder / "made", points=sizes[-1] * _MILLION, end_ns=time.time_ns())
    counts = {size: round(size * len(files) / sizes[-1]) for size in sizes}
    with EmbeddedPostgres(folder / "postgres") as server:
        databases = _databases(server)
        runs = [
            _run(folder / f"run-{size}-{used}", files[: counts[size]], next(databases), used)
            for size in sizes
            for used in sorted({1, cores} if size <= sizes[1] else {cores})
        ]
        batch_s, there_s = _quiet(folder / "quiet", fleet, next(databases), cores)
    largest = runs[-1]
    one_core = [item for item in runs if item.cores == 1][-1]
    return Report(
        title="The roll-up",
        text=_describe(runs),
        raw={
            "runs": [asdict(item) for item in runs],
            "quiet": {"batch_s": batch_s, "there_s": there_s},
        },
        figures=[
            Figure(
                name="points a second, spool to PostgreSQL",
                value=largest.warm_rate,
                at_least=250_000,
                note=f"warm batches of {largest.points / _MILLION:.1f} M points; from the command's start "
                f"{largest.points / largest.seconds:,.0f}; on one core {one_core.warm_rate:,.0f}",
            ),
            Figure(
                name="a quiet minute's batch",
                value=statistics.median(batch_s),
                unit="s",
                at_most=2,
                note=f"{_QUIET_PUSHES} pushes; from the file to the commit "
                f"{statistics.median(there_s):.2f} s",
            ),
            Figure(
                name="memory of Spark's JVM, most",
                value=largest.peak_bytes["jvm"] / 2**20,
                unit="MiB",
                note="the heap has 1 GiB; the driver's Python has "
                f"{largest.peak_bytes['driver'] / 2**20:.0f} MiB, and the tasks' "
                f"{largest.peak_bytes['tasks'] / 2**20:.0f} MiB",
            ),
        ],
    )


def _linked(files: Sequence[File], folder: Path) -> Path:
    folder.mkdir(parents=True)
    for file in files:
        os.link(file.path, folder / file.path.name)
    return folder


def _databases(server: EmbeddedPostgres) -> Iterator[str]:
    for number in itertools.count(1):
        name = f"bench_{number}"
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        yield server.url_of(name)


def _command(own: Path, spool: Path, url: str, cores: int, *, trigger_s: float = 10.0) -> list[str]:
    """Return the job's command; it writes its batches to ``timed.json`` at the end."""
    config = own / "rollup.yaml"
    measured = Measured(url=url, postmaster=postmaster_of(own.parent / "postgres"))
    settings = {"spark": {"spark.master": f"local[{cores}]"}, "trigger_seconds": trigger_s}
    config.write_text(yaml.safe_dump(settings))
    return [
        *(sys.executable, "-m", "benchmarks.rollup_timed", str(own / "timed.json")),
        *(json.dumps(asdict(measured)), "run"),
        *("--source", "spool_files", "--path", str(spool), "--postgres", url),
        *("--checkpoint", str(own / "checkpoint"), "--config", str(config)),
    ]


def _run(own: Path, files: Sequence[File], url: str, cores: int) -> _Run:
    spool = _linked(files, own / "spool")
    began = time.monotonic()
    _run_to_its_end([*_command(own, spool, url, cores), "--once"])
    seconds = time.monotonic() - began
    document = json.loads((own / "timed.json").read_text())
    points = sum(file.points for file in files)
    with psycopg.connect(url) as connection:
        ledger = connection.execute(
            "SELECT points, rows, duration_s FROM telemetry.ledger ORDER BY batch_id"
        ).fetchall()
    batches = [
        _Batch(
            points=count,
            rows=rows,
            seconds=duration_s,
            ended=item["ended"]["wall"],
            cpu={name: spent - item["began"]["cpu"][name] for name, spent in item["ended"]["cpu"].items()},
        )
        for (count, rows, duration_s), item in zip(ledger, document["batches"], strict=True)
    ]
    if (rolled_up := sum(batch.points for batch in batches)) != points:
        raise BenchmarkError(f"{spool}: {rolled_up} of {points} points are in the database")
    return _Run(
        cores=cores,
        points=points,
        seconds=seconds,
        batches=batches,
        peak_bytes=document["peak_bytes"],
    )


def _quiet(own: Path, fleet: Fleet, url: str, cores: int) -> tuple[list[float], list[float]]:
    """Run small batches; return their seconds, and those from the file's end to the commit."""
    spool = own / "spool"
    spool.mkdir(parents=True)
    command = _command(own, spool, url, cores, trigger_s=0.1)
    there: list[float] = []
    committed: list[tuple[float, float]] = []
    log = own / "log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        for count in range(1, _QUIET_BATCHES + 1):
            fleet.write_file(spool, pushes=_QUIET_PUSHES, begin_ns=time.time_ns() - 30_000_000_000)
            there.append(time.time())
            committed = _await(url, count, process, log)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    waited = [at - since for (at, _), since in zip(committed, there, strict=True)]
    durations = [duration for _, duration in committed]
    return durations[-_WARM_QUIET_BATCHES:], waited[-_WARM_QUIET_BATCHES:]


def _await(url: str, count: int, process: subprocess.Popen[bytes], log: Path) -> list[tuple[float, float]]:
    """Wait for a number of batches; return when each was committed, and how long it took."""
    until = time.monotonic() + _WITHIN_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with psycopg.connect(url) as connection:
                found = connection.execute(
                    "SELECT extract(epoch FROM committed_at)::float8, duration_s FROM telemetry.ledger "
                    "ORDER BY batch_id"
                ).fetchall()
        except psycopg.errors.UndefinedTable:
            found = []  # the job has not created it yet
        if len(found) >= count:
            return found
        time.sleep(0.05)
    raise BenchmarkError(f"a small batch is not in the database:\n{log.read_text()[-_LOG_TAIL:]}")


def _run_to_its_end(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_WITHIN_S)
    if done.returncode:
        raise BenchmarkError(f"{command[2]} failed:\n{done.stderr[-_LOG_TAIL:]}")


def _describe(runs: Sequence[_Run]) -> str:
    head = (
        "points", "cores", "seconds", "in batches", "warm points/s", "warm CPU us/point", "driver", "JVM",
        "tasks", "PostgreSQL", "rows/point", "JVM MiB", "tasks MiB", "driver MiB",
    )  # fmt: skip
    rows = [
        (
            f"{run.points / _MILLION:.1f} M",
            str(run.cores),
            f"{run.seconds:.1f}",
            f"{sum(batch.seconds for batch in run.batches):.1f}",
            f"{run.warm_rate:,.0f}",
            f"{sum(run.warm_cpu_us.values()):.2f}",
            *(f"{run.warm_cpu_us[name]:.2f}" for name in ("driver", "jvm", "tasks", "postgresql")),
            f"{sum(batch.rows for batch in run.batches) / run.points:.2f}",
            *(f"{run.peak_bytes[name] / 2**20:.0f}" for name in ("jvm", "tasks", "driver")),
        )
        for run in runs
    ]
    return table(head, rows)
