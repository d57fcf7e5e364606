"""Benchmark of the roll-up beside clients that push once a minute.

Each client pushes to one of three sidecars. A sidecar closes a file every 30 seconds, ten seconds
after the one before it. So each trigger of the job finds a file, whose points are in minutes that
earlier triggers changed. The files are made before, and appear at their time. The job is the users'
command, with maintenance, on a PostgreSQL with the settings of docs/sizing.md.

The job packs an hour two hours after its end. So the same clients have pushed in some minutes of
such an hour. These pushes are rolled up before, file by file, and merged, because a live job merges
a minute as soon as it is closed. The job packs them in the measured time. A point costs its batch
and maintenance, and later packing. The first is the CPU of the measured time without that of
packing, by live point. The second is the CPU of packing, by point of the packed minutes.
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg
import yaml
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.figures import Figure, Report, table
from benchmarks.processes import BenchmarkError, postmaster_of
from benchmarks.rollup_spool import Fleet
from benchmarks.rollup_timed import processes_of
from benchmarks.tuned_postgres import tune
from spark_streaming.embedded import EmbeddedPostgres
from spark_streaming.postgres.database import Database
from spark_streaming.postgres.merging import Merging
from spark_streaming.postgres.partitions import Partitions
from spark_streaming.postgres.spans import beginning
from spark_streaming.postgres.tables import MINUTES
from spark_streaming.settings import RetentionSettings
from tests.testbed.cpu import cpu_seconds_with_ended, with_descendants
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import ChildProcess, wait_until

_CLIENTS: Final = (10_000, 100_000)
_CLIENTS_OF_AN_ID: Final = 20
_INTERVAL_S: Final = 60
_SIDECARS: Final = 3
_ROLL_S: Final = 30
_TRIGGER_S: Final = 10
#: Without a rest after small batches, and as by default.
_LONGEST_TRIGGERS_S: Final = {10_000: (_TRIGGER_S, 3 * _TRIGGER_S), 100_000: (3 * _TRIGGER_S,)}
_START_S: Final = 600
#: Time for all clients to push, for all series to be known, and for the JVM to compile what it
#: calls often. With few clients that takes longer, and is a larger part of what a point costs.
_WARM_UP_S: Final = {10_000: 600, 100_000: 120}
#: Of many batches, because one may fall out of it.
_MEASURED_S: Final = 360
_QUICK_WARM_UP_S: Final = 90
_TRIED_PUSHES: Final = 1_000
#: Others may use the machine.
_RESERVE: Final = 1.6
_STOP_S: Final = 300
#: Minutes of the hour to pack, by number of clients. A series has fewer values to pack than in a
#: whole hour, so packing costs more by point.
_PACKED_MINUTES: Final = {10_000: 30, 100_000: 3}
_QUICK_PACKED_MINUTES: Final = 10
_PACKED_WITHIN_S: Final = 3_600
#: What the setting ``retention.pack_after_hours`` is by default, and while these minutes are rolled
#: up.
_PACK_AFTER_H: Final = RetentionSettings().pack_after_hours
_LATER_H: Final = _PACK_AFTER_H + 2
_VACUUM: Final = re.compile(
    r'automatic \w+ of table "[^"]*\.(\w+)".*?CPU: user: ([\d.]+) s, system: ([\d.]+) s', re.DOTALL
)
_MILLION: Final = 1_000_000
_HOUR: Final = timedelta(hours=1)
#: Seeds of the earlier pushes, by sidecar.
_EARLIER: Final = 1_000
_PREFIX: Final = "kafka_telemetry_rollup_"
_WAL: Final = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8"
_LEDGER: Final = (
    "SELECT extract(epoch FROM committed_at)::float8, pushes + repeats, points, rows FROM telemetry.ledger "
    "WHERE committed_at > to_timestamp(%s) ORDER BY batch_id"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A file that appears in the spool at a time, in seconds since the epoch."""

    at_s: float
    path: Path
    pushes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A batch: the time of its commit, its pushes, points and rows."""

    at_s: float
    pushes: int
    points: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """What was spent and written until a time."""

    at_s: float
    #: CPU seconds by ``driver``, ``jvm``, ``tasks`` and ``postgresql``.
    cpu: dict[str, float]
    #: Those of PostgreSQL that belong to packing: its connections, and vacuum of packed tables.
    packing_cpu: float
    #: Bytes of the write-ahead log, and those of packing among them.
    wal_bytes: float
    packing_wal_bytes: float
    #: Seconds of batches by stage, and of maintenance.
    stages: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One run of the job, over the measured time."""

    clients: int
    #: Seconds from one batch with few pushes to the next.
    longest_trigger_s: int
    seconds: float
    points: int
    #: CPU microseconds by live point, without packing.
    cpu_us: dict[str, float]
    #: Points of the minutes that were packed, and CPU microseconds of packing by such a point.
    packed_points: int
    packing_us: float
    #: Rows and bytes of the write-ahead log by live point, and bytes by packed point.
    rows: float
    wal_bytes: float
    packing_wal_bytes: float
    stages: dict[str, float]
    #: Seconds from the appearance of each file to its commit.
    waits: list[float]
    #: The job's own lag, once a second.
    lags: list[float]
    #: Pushes that had appeared and were not committed at the end.
    behind: int

    @property
    def total_cpu_us(self) -> float:
        """CPU microseconds by point of all processes, with packing."""
        return sum(self.cpu_us.values()) + self.packing_us


def run(folder: Path, *, quick: bool) -> Report:
    """Run the job beside 10,000 and 100,000 clients; quick: beside 10,000 for six minutes.

    Beside 10,000 clients it runs twice: without and with a rest after small batches.

    The files of 100,000 clients take half a gigabyte in the folder, their tables some more.
    """
    sizes = _CLIENTS[:1] if quick else _CLIENTS
    runs = [
        _run(own, clients, longest_s, _QUICK_WARM_UP_S, _MEASURED_S, _QUICK_PACKED_MINUTES)
        if quick
        else _run(own, clients, longest_s, _WARM_UP_S[clients], _MEASURED_S, _PACKED_MINUTES[clients])
        for clients in sizes
        for longest_s in _LONGEST_TRIGGERS_S[clients]
        for own in (folder / f"{clients}-{longest_s}",)
    ]
    return Report(
        title="The roll-up beside live clients",
        text=_describe(runs),
        raw=[asdict(item) for item in runs],
        figures=[
            Figure(
                name=f"live roll-up of {item.clients:,} clients, batches of {_TRIGGER_S} to "
                f"{item.longest_trigger_s} s, CPU a point",
                value=item.total_cpu_us,
                unit="us",
                at_most=5,
                note=f"{item.packing_us:.2f} us of it pack {item.packed_points / _MILLION:.1f} M points "
                f"of an earlier hour; a file is committed {statistics.median(item.waits):.1f} s after it "
                f"appears, {max(item.waits):.1f} s at most; {item.behind:,} pushes behind at the end",
            )
            for item in runs
        ],
    )


def waits(due: Sequence[Due], committed: Sequence[Committed]) -> list[float]:
    """Return the seconds from each file's appearance to its commit, without files not committed.

    Batches take files in the order of their appearance, and only whole ones.
    """
    found: list[float] = []
    last: Committed | None = None
    done, expected, batches = 0, 0, iter(committed)
    for file in sorted(due, key=lambda one: one.at_s):
        expected += file.pushes
        while done < expected:
            last = next(batches, None)
            if last is None:
                return found
            done += last.pushes
        if last is not None:
            found.append(last.at_s - file.at_s)
    return found


def _run(
    folder: Path, clients: int, longest_trigger_s: int, warm_up_s: int, measured_s: int, packed_minutes: int
) -> _Run:
    spool = folder / "spool"
    spool.mkdir(parents=True)
    port = free_port()
    config = folder / "rollup.yaml"
    metrics = {"bind": f"{LOOPBACK}:{port}"}
    triggers = {"trigger_seconds": _TRIGGER_S, "max_trigger_seconds": longest_trigger_s}
    config.write_text(yaml.safe_dump({**triggers, "metrics": metrics}))
    with EmbeddedPostgres(folder / "postgres") as server:
        tune(server, {"log_autovacuum_min_duration": "0"})
        hour = _hour_to_pack()
        packed_points = _roll_up_before(folder / "before", clients, packed_minutes, hour, server.url)
        packing = _Packing(folder, hour)
        started_s = time.time()
        job = ChildProcess(
            "roll-up",
            [
                *(sys.executable, "-m", "benchmarks.rollup_packing", str(packing.file), str(packing.begin)),
                *("run", "--config", str(config)),
                *("--source", "spool_files", "--path", str(spool), "--postgres", server.url),
                *("--checkpoint", str(folder / "checkpoint")),
            ],
            log=folder / "rollup.log",
            cwd=folder,
        )
        postmaster = postmaster_of(folder / "postgres")
        try:
            wait_until(lambda: _is_ready(server.url, job), timeout_s=_START_S, what="the job's tables")
            due = _make(folder / "made", clients, warm_up_s + measured_s)
            first_s = min(file.at_s for file in due)
            begin_s, end_s = first_s + warm_up_s, first_s + warm_up_s + measured_s
            _appear(due, spool, job, until_s=begin_s)
            before = _moment(job.pid, postmaster, server.url, port, packing)
            packing.begin.touch()
            lags = _appear(due, spool, job, until_s=end_s, port=port)
            after = _moment(job.pid, postmaster, server.url, port, packing)
            packing.require_done(server.url)
        finally:
            job.terminate(_STOP_S)
        with psycopg.connect(server.url) as connection:
            ledger = connection.execute(_LEDGER, [started_s]).fetchall()
    batches = [
        Committed(at_s=at_s, pushes=pushes, points=points, rows=rows) for at_s, pushes, points, rows in ledger
    ]
    measured = [batch for batch in batches if before.at_s < batch.at_s <= after.at_s]
    points = sum(item.points for item in measured)
    if not points:
        raise BenchmarkError(f"the job committed nothing in {measured_s} s:\n{job.log_tail()}")
    packing_cpu = after.packing_cpu - before.packing_cpu
    packing_wal_bytes = after.packing_wal_bytes - before.packing_wal_bytes
    live_cpu = {name: seconds - before.cpu[name] for name, seconds in after.cpu.items()}
    live_cpu["postgresql"] -= packing_cpu
    appeared = [file for file in due if file.at_s <= after.at_s]
    done = sum(batch.pushes for batch in batches if batch.at_s <= after.at_s)
    return _Run(
        clients=clients,
        longest_trigger_s=longest_trigger_s,
        seconds=after.at_s - before.at_s,
        points=points,
        cpu_us={name: seconds / points * _MILLION for name, seconds in live_cpu.items()},
        packed_points=packed_points,
        packing_us=packing_cpu / packed_points * _MILLION,
        rows=sum(item.rows for item in measured) / points,
        wal_bytes=(after.wal_bytes - before.wal_bytes - packing_wal_bytes) / points,
        packing_wal_bytes=packing_wal_bytes / packed_points,
        stages={name: seconds - before.stages[name] for name, seconds in after.stages.items()},
        waits=waits([file for file in appeared if file.at_s >= begin_s], _since(batches, due, begin_s)),
        lags=lags,
        behind=sum(file.pushes for file in appeared) - done,
    )


class _Packing:
    """What packing costs, and when it may begin.

    Args:
        folder: Of the run.
        hour: The hour that is packed.
    """

    def __init__(self, folder: Path, hour: datetime) -> None:
        #: Exists once the job may pack.
        self.begin = folder / "pack"
        #: CPU seconds and bytes of the write-ahead log of its transactions, a line each.
        self.file = folder / "packing"
        self._log = folder / "postgres" / "log"
        self._hour = hour

    def spent(self) -> tuple[float, float]:
        """Return CPU seconds, with vacuum of tables that it changes, and bytes of the log."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        pairs = [tuple(map(float, line.split())) for line in lines]
        vacuum_s = vacuum_seconds(self._log.read_text(), self._hour)
        return vacuum_s + sum(cpu_s for cpu_s, _ in pairs), sum(wal_bytes for _, wal_bytes in pairs)

    def require_done(self, url: str) -> None:
        """Check that no row of the hour is left to pack.

        Raises:
            BenchmarkError: There is one.
        """
        with psycopg.connect(url) as connection:
            ((until, left),) = connection.execute(
                "SELECT minutes_packed_until, (SELECT count(*) FROM telemetry.repack) FROM telemetry.horizon"
            ).fetchall()
        if until is None or until < self._hour + _HOUR or left:
            raise BenchmarkError(
                "the hour was not packed in the measured time: repeat it on a quieter machine"
            )


def vacuum_seconds(log: str, hour: datetime) -> float:
    """Return the CPU seconds of vacuum and analyze of an hour's tables and of packed tables.

    Args:
        log: PostgreSQL's log.
        hour: The beginning of the hour.
    """
    return sum(
        float(user) + float(system)
        for name, user, system in _VACUUM.findall(log)
        if name.endswith(f"_p{hour:%Y%m%d%H}") or "_packed_p" in name
    )


def _hour_to_pack() -> datetime:
    """Return the beginning of the newest hour that is packed by default."""
    return beginning("hour", datetime.now(UTC) - timedelta(hours=_PACK_AFTER_H)) - _HOUR


def _roll_up_before(folder: Path, clients: int, minutes: int, hour: datetime, url: str) -> int:
    """Roll up the last minutes of an hour, a file in each batch, and pack nothing.

    Returns:
        The points.
    """
    spool = folder / "spool"
    spool.mkdir(parents=True)
    config = folder / "rollup.yaml"
    settings = {"spool_files": {"max_files": 1}, "retention": {"pack_after_hours": _LATER_H}}
    config.write_text(yaml.safe_dump(settings))
    # The last file of the last sidecar ends with the hour.
    first_s = hour.timestamp() + 3_600 - minutes * 60 - (_SIDECARS - 1) * _TRIGGER_S
    files = minutes * 60 // _ROLL_S
    with ProcessPoolExecutor(_SIDECARS, mp_context=get_context("spawn")) as pool:
        made = [
            pool.submit(
                _sidecar, folder / "made", sidecar, clients // _SIDECARS, files,
                first_s + sidecar * _TRIGGER_S, _EARLIER + sidecar,
            )
            for sidecar in range(_SIDECARS)
        ]  # fmt: skip
        due = sorted((file for item in made for file in item.result()), key=lambda file: file.at_s)
    # Spark takes files in the order of their time.
    for ago, file in enumerate(reversed(due)):
        os.utime(file.path, times=(time.time() - ago, time.time() - ago))
        file.path.rename(spool / file.path.name)
    job = ChildProcess(
        "roll-up of an earlier hour",
        [
            *(sys.executable, "-m", "spark_streaming", "run", "--once", "--config", str(config)),
            *("--source", "spool_files", "--path", str(spool), "--postgres", url),
            *("--checkpoint", str(folder / "checkpoint")),
        ],
        log=folder / "rollup.log",
        cwd=folder,
    )
    if job.wait(_PACKED_WITHIN_S):
        raise BenchmarkError(f"the job ended with {job.returncode}:\n{job.log_tail()}")
    with psycopg.connect(url) as connection:
        ((pushes, points),) = connection.execute(
            "SELECT sum(pushes)::bigint, sum(points)::bigint FROM telemetry.ledger"
        ).fetchall()
    if pushes != sum(file.pushes for file in due):
        raise BenchmarkError(f"{pushes} pushes of an earlier hour are in the database")
    _merge(url, hour, minutes)
    return int(points)


def _merge(url: str, hour: datetime, minutes: int) -> None:
    """Merge the last minutes of an hour, as the job would have done when they were closed."""
    database = Database(url, application="benchmark", connected=lambda: None)
    with closing(database), database.transaction() as connection:
        cursor = connection.cursor()
        merging = Merging(cursor, Partitions(cursor), {})
        # The first file begins a little earlier.
        for ago in range(minutes + 1, 0, -1):
            merging.merge(hour + _HOUR - ago * MINUTES.length, packed_until=hour)
    # So that vacuum of what was merged does not count as packing.
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _since(batches: Sequence[Committed], due: Sequence[Due], begin_s: float) -> list[Committed]:
    """Return the batches without the pushes of files that appeared before a time."""
    earlier = sum(file.pushes for file in due if file.at_s < begin_s)
    rest = []
    for batch in batches:
        skipped = min(earlier, batch.pushes)
        earlier -= skipped
        if batch.pushes > skipped:
            rest.append(replace(batch, pushes=batch.pushes - skipped))
    return rest


def _make(folder: Path, clients: int, seconds: int) -> list[Due]:
    """Make the files of all sidecars in several processes. The first appears after the return."""
    instances = clients // _SIDECARS
    files = -(-seconds // _ROLL_S)
    with ProcessPoolExecutor(_SIDECARS, mp_context=get_context("spawn")) as pool:
        # All at once.
        tried = [pool.submit(_try, folder / "tried", sidecar, instances) for sidecar in range(_SIDECARS)]
        a_push = max(item.result() for item in tried)
        takes_s = files * instances * _ROLL_S / _INTERVAL_S * a_push * _RESERVE
        first_s = time.time() + takes_s + _TRIGGER_S
        made = [
            pool.submit(_sidecar, folder, sidecar, instances, files, first_s + sidecar * _TRIGGER_S)
            for sidecar in range(_SIDECARS)
        ]
        due = [file for item in made for file in item.result()]
    if time.time() > min(file.at_s for file in due):
        raise BenchmarkError("the files took longer to make than expected: repeat it on a quieter machine")
    return due


def _try(folder: Path, sidecar: int, instances: int) -> float:
    """Return the seconds that a push takes to make."""
    fleet = _fleet(sidecar, instances)
    # The first push imports what the others need.
    fleet.write_file(folder, pushes=1, begin_ns=time.time_ns())
    began = time.monotonic()
    fleet.write_file(folder, pushes=_TRIED_PUSHES, begin_ns=time.time_ns())
    return (time.monotonic() - began) / _TRIED_PUSHES


def _fleet(sidecar: int, instances: int, values_seed: int | None = None) -> Fleet:
    client_ids = max(1, instances * _SIDECARS // _CLIENTS_OF_AN_ID)
    return Fleet(
        instances=instances,
        client_ids=client_ids,
        interval_s=_INTERVAL_S,
        seed=sidecar,
        values_seed=values_seed,
    )


def _sidecar(
    folder: Path,
    sidecar: int,
    instances: int,
    files: int,
    first_s: float,
    values_seed: int | None = None,
) -> list[Due]:
    fleet = _fleet(sidecar, instances, values_seed)
    made = []
    for number in range(files):
        begin_s = first_s + number * _ROLL_S
        file = fleet.write_file(folder, pushes=fleet.file_pushes, begin_ns=round(begin_s * 1e9))
        made.append(Due(at_s=begin_s + _ROLL_S, path=file.path, pushes=file.pushes))
    return made


def _appear(
    due: Sequence[Due], spool: Path, job: ChildProcess, *, until_s: float, port: int | None = None
) -> list[float]:
    """Let files appear at their time until a time; return the job's lag, once a second."""
    lags: list[float] = []
    waiting = sorted((file for file in due if file.path.exists()), key=lambda file: file.at_s)
    while (now := time.time()) < until_s:
        if job.returncode is not None:
            raise BenchmarkError(f"the job ended with {job.returncode}:\n{job.log_tail()}")
        while waiting and waiting[0].at_s <= now:
            file = waiting.pop(0)
            hour = spool / file.path.relative_to(file.path.parents[2]).parent
            hour.mkdir(parents=True, exist_ok=True)
            # Spark takes files in the order of their time.
            os.utime(file.path)
            file.path.rename(hour / file.path.name)
        if port is not None:
            lags.append(_scraped(port)["lag_seconds"])
        time.sleep(max(0.0, min(now + 1, until_s) - time.time()))
    return lags


def _moment(job: int, postmaster: int, url: str, port: int, packing: _Packing) -> _Moment:
    with psycopg.connect(url) as connection:
        ((wal_bytes,),) = connection.execute(_WAL).fetchall()
    scraped = _scraped(port)
    packing_cpu, packing_wal_bytes = packing.spent()
    driver, jvm, tasks = processes_of(job)
    processes = {"driver": driver, "jvm": jvm, "tasks": tasks, "postgresql": with_descendants(postmaster)}
    return _Moment(
        at_s=time.time(),
        cpu={name: cpu_seconds_with_ended(pids) for name, pids in processes.items()},
        packing_cpu=packing_cpu,
        wal_bytes=wal_bytes,
        packing_wal_bytes=packing_wal_bytes,
        stages={name: value for name, value in scraped.items() if name != "lag_seconds"},
    )


def _scraped(port: int) -> dict[str, float]:
    """Return the job's lag, and the seconds of its stages and of maintenance."""
    text = httpx.get(f"http://{LOOPBACK}:{port}/metrics", trust_env=False, timeout=30).text
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == f"{_PREFIX}stage_seconds_sum":
                found[sample.labels["stage"]] = sample.value
            elif sample.name == f"{_PREFIX}maintenance_seconds_sum":
                found["maintenance"] = sample.value
            elif sample.name == f"{_PREFIX}lag_seconds":
                found["lag_seconds"] = sample.value
    return found


def _is_ready(url: str, job: ChildProcess) -> bool:
    """Return whether the job has made its tables; then only its query has to start."""
    if job.returncode is not None:
        raise BenchmarkError(f"the job ended with {job.returncode}:\n{job.log_tail()}")
    with psycopg.connect(url) as connection:
        ((there,),) = connection.execute("SELECT to_regclass('telemetry.ledger') IS NOT NULL").fetchall()
    return bool(there)


def _describe(runs: Sequence[_Run]) -> str:
    head = (
        "clients", "longest trigger s", "points/s", "driver us/point", "JVM us/point", "tasks us/point",
        "PostgreSQL us/point", "packing us/point", "all us/point",
        "rows/point", "WAL bytes/point", "packing's", "file to commit s", "most s", "lag s",
    )  # fmt: skip
    rows = [
        (
            f"{run.clients:,}",
            f"{run.longest_trigger_s}",
            f"{run.points / run.seconds:,.0f}",
            *(f"{run.cpu_us[name]:.2f}" for name in ("driver", "jvm", "tasks", "postgresql")),
            f"{run.packing_us:.2f}",
            f"{run.total_cpu_us:.2f}",
            f"{run.rows:.2f}",
            f"{run.wal_bytes:.0f}",
            f"{run.packing_wal_bytes:.0f}",
            f"{statistics.median(run.waits):.1f}",
            f"{max(run.waits):.1f}",
            f"{statistics.median(run.lags):.1f}",
        )
        for run in runs
    ]
    lines = [table(head, rows)]
    for run in runs:
        shares: dict[str, Any] = {
            name: f"{seconds / run.seconds:.1%}"
            for name, seconds in sorted(run.stages.items(), key=lambda one: -one[1])
            if seconds
        }
        name = f"{run.clients:,} clients, trigger {run.longest_trigger_s} s"
        spent = ", ".join(f"{stage} {share}" for stage, share in shares.items())
        lines.append(f"{name}, share of the time: {spent}")
    return "\n".join(lines)
