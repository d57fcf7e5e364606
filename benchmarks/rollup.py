"""Measures the roll-up from spool files into PostgreSQL, by stage, beside a naive job.

Owns the runs and their figures. The job is the users' command on a PostgreSQL with its defaults;
what it reads is made in ``rollup_spool``, its stages are timed in ``rollup_timed``, and
``rollup_naive`` is compared.
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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import psycopg
import yaml

from benchmarks.figures import Figure, Results, table
from benchmarks.rollup_spool import File, Fleet
from benchmarks.rollup_timed import BESIDE, Spent
from spark_streaming.embedded import EmbeddedPostgres

#: Millions of data points; the first ones also on one core.
SIZES: Final = (1, 5, 20)
_DECODED_FILES: Final = 12
_NAIVE_FILES: Final = 6
_QUIET_PUSHES: Final = 200
_QUIET_BATCHES: Final = 8
_WARM_QUIET_BATCHES: Final = 4
_WITHIN_S: Final = 900.0
_LOG_TAIL: Final = 3_000
_MILLION: Final = 1_000_000


class RollupBenchmarkError(RuntimeError):
    """A job failed, or did not take in what there was; the text says which, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch of a run.

    Attributes:
        points: Data points in it.
        rows: Rows that were merged.
        seconds: How long it took, without what Spark does between batches.
        spent: CPU of all of it.
        stages: What was spent by stage.
    """

    points: int
    rows: int
    seconds: float
    spent: Spent
    stages: Mapping[str, Spent]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the job over everything there is.

    Attributes:
        cores: Spark's cores.
        pushes: What there was.
        points: Their data points.
        seconds: From the command's start to its end, Spark's start and the first compilation
            included.
        batches: Its batches; the first learns all series, and is compiled while it runs.
        warm_seconds: From the end of the first batch to the end of the last one.
        peak_bytes: The most memory of a process, by ``python`` and ``jvm``.
        push_bytes: What the database keeps of a push, to know it again.
        contribution_bytes: What it keeps of a push for some hours, to correct its minute.
    """

    cores: int
    pushes: int
    points: int
    seconds: float
    batches: Sequence[Batch]
    warm_seconds: float
    peak_bytes: Mapping[str, int]
    push_bytes: float
    contribution_bytes: float

    @property
    def warm(self) -> Sequence[Batch]:
        """All batches but the first."""
        return self.batches[1:]

    @property
    def warm_points(self) -> int:
        """Data points of the warm batches."""
        return sum(batch.points for batch in self.warm)

    @property
    def warm_rate(self) -> float | None:
        """Points a second of the warm batches; None without any."""
        return self.warm_points / self.warm_seconds if self.warm else None

    def warm_us(self) -> dict[str, Spent]:
        """Return microseconds per point of the warm batches, by stage; Spark has the rest."""
        stages: dict[str, Spent] = {}
        for batch in self.warm:
            of_others = sum(
                (
                    replace(spent, wall=0.0) if name.endswith(BESIDE) else spent
                    for name, spent in batch.stages.items()
                ),
                Spent(),
            )
            for name, spent in (
                {"Spark, and the rest": batch.spent - of_others} | dict(batch.stages)
            ).items():
                stages[name] = stages.get(name, Spent()) + spent
        each = _MILLION / max(1, self.warm_points)
        return {
            name: Spent(**{process: seconds * each for process, seconds in asdict(spent).items()})
            for name, spent in stages.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """Small batches of a job that runs on.

    Attributes:
        batch_seconds: How long batches of 200 pushes took, from the ledger.
        there_seconds: From when the file was there to the batch's commit.
    """

    batch_seconds: Sequence[float]
    there_seconds: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Everything that was measured.

    Attributes:
        runs: Of the job.
        decode_us: CPU microseconds a point: reading alone, and reading and decoding.
        naive_rate: Points a second of the naive way, its first batch left out.
        naive_points: Of how many points.
        quiet: Small batches.
    """

    runs: Sequence[Run]
    decode_us: Mapping[str, float]
    naive_rate: float
    naive_points: int
    quiet: Quiet

    @property
    def largest(self) -> Run:
        """The run over most points, on most cores."""
        return max(self.runs, key=lambda run: (run.points, run.cores))


def measure(folder: Path, *, sizes: Sequence[int] = SIZES) -> Seen:
    """Run the job over some millions of points, decode, run the naive job, send small batches.

    Args:
        folder: A scratch folder; the largest size takes some ten bytes a point.
        sizes: Millions of data points.

    Raises:
        RollupBenchmarkError: A job failed.
    """
    fleet, cores = Fleet(), os.cpu_count() or 1
    files = fleet.write(folder / "made", points=max(sizes) * _MILLION, end_ns=time.time_ns())
    per_million = len(files) / max(sizes)
    parts = {size: _linked(files[: round(size * per_million)], folder / f"spool-{size}") for size in sizes}
    few = _linked(files[:_DECODED_FILES], folder / "decoded")
    naive = _linked(files[:_NAIVE_FILES], folder / "naive")
    with EmbeddedPostgres(folder / "postgres") as server:
        databases = _databases(server)
        runs = [
            _run(folder, spool, next(databases), cores=used, of=files[: round(size * per_million)])
            for size, spool in parts.items()
            for used in sorted({1, cores} if size <= sizes[min(1, len(sizes) - 1)] else {cores})
        ]
        naive_rate = _naive_rate(naive, next(databases), files[:_NAIVE_FILES], cores=cores)
        quiet = _quiet(folder, fleet, next(databases), cores=cores)
    return Seen(
        runs=runs,
        decode_us=_decode_us(few, files[:_DECODED_FILES], cores=cores),
        naive_rate=naive_rate,
        naive_points=sum(file.points for file in files[:_NAIVE_FILES]),
        quiet=quiet,
    )


def _linked(files: Sequence[File], folder: Path) -> Path:
    folder.mkdir()
    for file in files:
        os.link(file.path, folder / file.path.name)
    return folder


def _databases(server: EmbeddedPostgres) -> Iterator[str]:
    for number in itertools.count(1):
        name = f"bench_{number}"
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        yield server.url_of(name)


def _command(
    folder: Path, spool: Path, url: str, *, cores: int, trigger_s: float = 10.0
) -> tuple[list[str], Path]:
    """The job's command, and the file that has its stages when it has ended."""
    own = folder / f"job-{url.partition('?')[0].rpartition('/')[2]}"
    own.mkdir()
    config, seen = own / "rollup.yaml", own / "seen.json"
    settings = {"spark": {"spark.master": f"local[{cores}]"}, "trigger_seconds": trigger_s}
    config.write_text(yaml.safe_dump(settings))
    return [
        *(sys.executable, "-m", "benchmarks.rollup_timed", str(seen), "run", "--source", "spool_files"),
        *("--path", str(spool), "--postgres", url, "--checkpoint", str(own / "checkpoint")),
        *("--config", str(config)),
    ], seen  # fmt: skip


def _run(folder: Path, spool: Path, url: str, *, cores: int, of: Sequence[File]) -> Run:
    command, seen = _command(folder, spool, url, cores=cores)
    began = time.monotonic()
    _output([*command, "--once"])
    seconds = time.monotonic() - began
    document = json.loads(seen.read_text())
    with psycopg.connect(url) as connection:
        ledger = connection.execute(
            "SELECT points, rows, duration_s FROM telemetry.ledger ORDER BY batch_id"
        ).fetchall()
        kept = {
            name: connection.execute(
                "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree(%s::regclass)",
                (f"telemetry.{name}",),
            ).fetchone()
            for name in ("push", "contribution")
        }
    pushes = sum(file.pushes for file in of)
    batches = [
        Batch(
            points=points,
            rows=rows,
            seconds=duration_s,
            spent=Spent(**one["ended"]) - Spent(**one["began"]),
            stages={name: Spent(**spent) for name, spent in one["stages"].items()},
        )
        for (points, rows, duration_s), one in zip(ledger, document["batches"], strict=True)
    ]
    points = sum(file.points for file in of)
    if sum(batch.points for batch in batches) != points:
        raise RollupBenchmarkError(f"{spool}: of {points} points {sum(b.points for b in batches)} are in")
    ends = [one["ended"]["wall"] for one in document["batches"]]
    sizes = {name: float(row[0]) / pushes for name, row in kept.items() if row is not None}
    return Run(
        cores=cores,
        pushes=pushes,
        points=points,
        seconds=seconds,
        batches=batches,
        warm_seconds=ends[-1] - ends[0],
        peak_bytes=document["peak_bytes"],
        push_bytes=sizes["push"],
        contribution_bytes=sizes["contribution"],
    )


def _naive_rate(spool: Path, url: str, files: Sequence[File], *, cores: int) -> float:
    said = json.loads(_output([sys.executable, "-m", "benchmarks.rollup_naive", str(spool), url, str(cores)]))
    ended = [end for end, pushes in zip(said["ended"], said["pushes"], strict=True) if pushes]
    return float(sum(file.points for file in files[1:]) / (ended[-1] - ended[0]))


def _decode_us(spool: Path, files: Sequence[File], *, cores: int) -> Mapping[str, float]:
    said = json.loads(_output([sys.executable, "-m", "benchmarks.rollup_decode", str(spool), str(cores)]))
    points = sum(file.points for file in files)
    return {name: min(seconds) / points * _MILLION for name, seconds in said.items()}


def _quiet(folder: Path, fleet: Fleet, url: str, *, cores: int) -> Quiet:
    spool = folder / "quiet"
    spool.mkdir()
    command, _ = _command(folder, spool, url, cores=cores, trigger_s=0.1)
    there: list[float] = []
    committed: list[tuple[float, float]] = []
    with (folder / "quiet.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        for count in range(1, _QUIET_BATCHES + 1):
            fleet.write_file(spool, pushes=_QUIET_PUSHES, begin_ns=time.time_ns() - 30_000_000_000)
            there.append(time.time())
            committed = _await(url, count, process, folder / "quiet.log")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    waited = [at - since for (at, _), since in zip(committed, there, strict=True)]
    return Quiet(
        batch_seconds=[duration for _, duration in committed][-_WARM_QUIET_BATCHES:],
        there_seconds=waited[-_WARM_QUIET_BATCHES:],
    )


def _committed(url: str) -> list[tuple[float, float]]:
    """When batches were committed, and how long they took."""
    try:
        with psycopg.connect(url) as connection:
            return connection.execute(
                "SELECT extract(epoch FROM committed_at)::float8, duration_s FROM telemetry.ledger "
                "ORDER BY batch_id"
            ).fetchall()
    except psycopg.errors.UndefinedTable:
        return []  # the job has not made it yet


def _await(url: str, count: int, process: subprocess.Popen[bytes], log: Path) -> list[tuple[float, float]]:
    until = time.monotonic() + _WITHIN_S
    while time.monotonic() < until and process.poll() is None:
        found = _committed(url)
        if len(found) >= count:
            return found
        time.sleep(0.05)
    raise RollupBenchmarkError(f"a small batch is not in:\n{log.read_text()[-_LOG_TAIL:]}")


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_WITHIN_S)
    if done.returncode:
        raise RollupBenchmarkError(f"{command[2]} failed:\n{done.stderr[-_LOG_TAIL:]}")
    return done.stdout


def describe(seen: Seen) -> str:
    """Return the tables: runs, stages of the largest one, and decoding."""
    head = (
        "points", "cores", "seconds", "in batches", "warm points/s", "warm CPU us/point", "rows/point",
        "JVM MiB", "Python MiB",
    )  # fmt: skip
    rows = [
        (
            f"{run.points / _MILLION:.1f} M",
            str(run.cores),
            f"{run.seconds:.1f}",
            f"{sum(batch.seconds for batch in run.batches):.1f}",
            "-" if run.warm_rate is None else f"{run.warm_rate:,.0f}",
            "-" if not run.warm else f"{sum(spent.cpu for spent in run.warm_us().values()):.2f}",
            f"{sum(batch.rows for batch in run.batches) / run.points:.2f}",
            f"{run.peak_bytes['jvm'] / 2**20:.0f}",
            f"{run.peak_bytes['python'] / 2**20:.0f}",
        )
        for run in seen.runs
    ]
    largest = seen.largest
    stages = sorted(largest.warm_us().items(), key=lambda stage: -stage[1].wall)
    of_stages = [
        (name, *(f"{value:.2f}" for value in (spent.wall, spent.jvm, spent.python, spent.postgres)))
        for name, spent in stages
    ]
    title = f"Stages of the warm batches of {largest.points / _MILLION:.1f} M points, microseconds a point"
    return "\n\n".join(
        (
            table(head, rows),
            f"{title}\n{table(('stage', 'wall', 'CPU JVM', 'CPU Python', 'CPU PostgreSQL'), of_stages)}",
            table(
                ("read and thrown away", "CPU us/point"),
                [(name, f"{value:.2f}") for name, value in seen.decode_us.items()],
            ),
        )
    )


def record(seen: Seen, results: Results) -> None:
    """Keep every batch in ``results``."""
    results.raw["rollup"] = asdict(seen)


def figures(seen: Seen) -> list[Figure]:
    """Return the figures, with their goals."""
    largest, quiet = seen.largest, seen.quiet
    rate = largest.warm_rate
    by_cores = {run.cores: run.warm_rate for run in seen.runs if run.warm and run.points < largest.points}
    one_core = by_cores.get(1)
    return [
        Figure(
            name="points a second, spool to PostgreSQL",
            value=rate,
            at_least=250_000,
            note=f"warm batches of {largest.points / _MILLION:.1f} M points; from the command's start "
            f"{largest.points / largest.seconds:,.0f}"
            + (f"; on one core {one_core:,.0f}" if one_core is not None else ""),
        ),
        Figure(
            name="the same, by the naive way",
            value=None if rate is None else rate / seen.naive_rate,
            at_least=5,
            note=f"the naive way: {seen.naive_rate:,.0f} points a second",
        ),
        Figure(
            name="reading and decoding, CPU a point",
            value=max(seen.decode_us.values()),
            unit="us",
            at_most=1.5,
            note="otlp_entries, which a batch needs once",
        ),
        Figure(
            name="a quiet minute's batch",
            value=statistics.median(quiet.batch_seconds),
            unit="s",
            at_most=2,
            note=f"{_QUIET_PUSHES} pushes; from the file to the commit "
            f"{statistics.median(quiet.there_seconds):.2f} s",
        ),
        Figure(
            name="state to know a push again, bytes",
            value=largest.push_bytes,
            at_most=150,
            note=f"one row and its index; for some hours {largest.contribution_bytes:,.0f} more, "
            "to correct its minute",
        ),
        Figure(
            name="memory of Spark's driver, most",
            value=largest.peak_bytes["jvm"] / 2**20,
            unit="MiB",
            note=f"the heap has 1 GiB; Python has {largest.peak_bytes['python'] / 2**20:.0f} MiB",
        ),
    ]
