"""A run in rounds, each of which is flooded, rolled up and checked.

A run can be continued later. Everything it needs for that is in its folder: the database, Spark's
checkpoint, and a file of progress. One process makes the next round while the roll-up takes the
last one in.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

import psycopg
import yaml

from spark_streaming.embedded import EmbeddedPostgres
from spark_streaming.settings import NewSeriesSettings
from tests.fuzz.pipeline.checks import Truth, check, size_of
from tests.fuzz.pipeline.flood import Flood, Plan, write_round
from tests.testbed.cpu import cpu_seconds

_NS: Final = 1_000_000_000
#: A roll-up that takes longer hangs: ten minutes, and some milliseconds by push.
_HANGS_AFTER_S: Final = 600.0
_HANGS_AFTER_S_BY_PUSH: Final = 0.005
_NICE: Final = ("nice", "-n", "5")


class FindingError(Exception):
    """A check failed. The message says which."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Result and cost of a round.

    Attributes:
        pushes: Pushes that reached the roll-up.
        offered: Pushes that the core was handed.
        make_us: CPU microseconds by push to make it, of the generator.
        core_us: The same in the telemetry core.
        write_us: The same in the plugin.
        rollup_us: The same of the roll-up, with Spark's start.
        postgres_us: The same of PostgreSQL.
        slowest_ms: CPU milliseconds of the push that took the core longest.
        wall_s: How long the roll-up took.
        file_bytes: Bytes of the spool's files.
        database_bytes: Bytes of all tables afterwards.
        dead_letters: Dead letters so far.
        answers: Answers of the core by error.
    """

    pushes: int
    offered: int
    make_us: float
    core_us: float
    write_us: float
    rollup_us: float
    postgres_us: float
    slowest_ms: float
    wall_s: float
    file_bytes: int
    database_bytes: int
    dead_letters: int
    answers: dict[str, int]

    @property
    def line(self) -> str:
        """The round in one line."""
        return (
            f"{self.pushes:>9,} pushes  CPU us by push: made {self.make_us:.0f}, core {self.core_us:.0f}, "
            f"written {self.write_us:.0f}, roll-up {self.rollup_us:.0f}, postgres {self.postgres_us:.0f}  "
            f"slowest {self.slowest_ms:.1f} ms  {self.wall_s:.0f} s  spool {self.file_bytes / 1e6:.1f} MB  "
            f"database {self.database_bytes / 1e6:.1f} MB  dead letters {self.dead_letters}"
        )


class Run:
    """A run over a folder.

    Args:
        folder: Where everything is kept.
        plan: The first round; others differ by their number only.
        rounds: How many there are in all.
        say: Takes a line of progress.
    """

    def __init__(self, folder: Path, plan: Plan, rounds: int, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._rounds = rounds
        self._say = say
        self._spool = folder / "spool"
        self._progress = folder / "progress.json"
        self._truth = Truth()
        self._done: list[Round] = []
        self._plan = plan
        if self._progress.exists():
            self._go_on()
        self._spool.mkdir(parents=True, exist_ok=True)
        self._keep()

    def run(self) -> list[Round]:
        """Run all rounds that are not done yet.

        Returns:
            All rounds.

        Raises:
            FindingError: Something does not hold.
        """
        if len(self._done) >= self._rounds:
            return self._done
        # Not forked: pyarrow has threads.
        context = multiprocessing.get_context("spawn")
        with (
            EmbeddedPostgres(self._folder / "postgres") as server,
            ProcessPoolExecutor(1, mp_context=context) as maker,
        ):
            url = server.url
            postmaster = int((self._folder / "postgres" / "postmaster.pid").read_text().split()[0])
            coming = self._begin(maker, len(self._done))
            for number in range(len(self._done), self._rounds):
                flood = coming.result()
                if number + 1 < self._rounds:
                    coming = self._begin(maker, number + 1)
                self._one(number, flood, url, postmaster)
        return self._done

    def _begin(self, maker: ProcessPoolExecutor, number: int) -> Future[Flood]:
        staged = self._staged(number)
        shutil.rmtree(staged, ignore_errors=True)
        return maker.submit(write_round, dataclasses.replace(self._plan, number=number), staged)

    def _staged(self, number: int) -> Path:
        return self._folder / f"round-{number}"

    def _one(self, number: int, flood: Flood, url: str, postmaster: int) -> None:
        if flood.refused_innocents:
            raise FindingError(f"innocent pushes that the core refused: {flood.refused_innocents[:5]}")
        published = self._publish(number)
        began, rollup = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        postgres = _tree_cpu_s(postmaster)
        self._roll_up(number, url)
        rollup_s = _cpu_s(resource.getrusage(resource.RUSAGE_CHILDREN)) - _cpu_s(rollup)
        postgres_s = _tree_cpu_s(postmaster) - postgres
        wall_s = time.monotonic() - began
        self._truth.add(flood)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET search_path = telemetry")
            problems = check(connection, self._truth)
            size = size_of(connection)[""]
            dead = connection.execute("SELECT coalesce(sum(dead_letters), 0)::bigint FROM ledger").fetchall()
        if problems:
            raise FindingError("\n".join(problems))
        self._done.append(
            Round(
                pushes=flood.written,
                offered=flood.offered,
                make_us=flood.make_s / flood.written * 1e6,
                core_us=flood.core_s / flood.written * 1e6,
                write_us=flood.write_s / flood.written * 1e6,
                rollup_us=rollup_s / flood.written * 1e6,
                postgres_us=postgres_s / flood.written * 1e6,
                slowest_ms=flood.slowest_s * 1e3,
                wall_s=wall_s,
                file_bytes=flood.file_bytes,
                database_bytes=size,
                dead_letters=int(dead[0][0]),
                answers=dict(flood.answers),
            )
        )
        self._keep()
        shutil.rmtree(published)
        self._say(f"round {number + 1} of {self._rounds}: {self._done[-1].line}")

    def _publish(self, number: int) -> Path:
        """Move a round's folder to where the roll-up reads, in one step."""
        staged, published = self._staged(number), self._spool / f"round-{number}"
        if published.exists():
            # An interrupted run had done it, and the roll-up may have taken some in: the same
            # pushes again would count as repeats.
            shutil.rmtree(staged)
        else:
            staged.rename(published)
        return published

    def _roll_up(self, number: int, url: str) -> None:
        config = self._folder / "rollup.yaml"
        # All totals are compared, so no series may be left out.
        unbounded = dict.fromkeys(NewSeriesSettings.model_fields)
        settings = {"log": {"format": "json"}, "spark": {"spark.master": "local[2]"}, "new_series": unbounded}
        config.write_text(yaml.safe_dump(settings))
        log = self._folder / f"rollup-{number}.log"
        most_s = _HANGS_AFTER_S + _HANGS_AFTER_S_BY_PUSH * self._plan.pushes
        command: Sequence[str | Path] = (
            *_NICE,
            Path(sys.executable).with_name("kafka-telemetry"),
            *("rollup", "run", "--once", "--source", "spool_files", "--path", self._spool),
            *("--postgres", url, "--checkpoint", str(self._folder / "checkpoint"), "--config", config),
        )
        with log.open("wb") as out:
            try:
                status = subprocess.run(
                    command, stdout=out, stderr=out, timeout=most_s, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                raise FindingError(f"the roll-up was not over after {most_s:g} s: {log}") from None
        text = log.read_text(errors="replace")
        if status:
            last = [line for line in text.splitlines() if line.strip()][-3:]
            raise FindingError(f"the roll-up ended with {status}: {log}\n" + "\n".join(last))
        for event in ("batch failed", "damaged files"):
            if event in text:
                raise FindingError(f"the roll-up's log says {event!r}: {log}")
        log.unlink()

    def _keep(self) -> None:
        """Write the state that a later run needs; only whole rounds count."""
        ledger = self._truth.ledger
        document = {
            "plan": dataclasses.asdict(self._plan),
            "rounds": [dataclasses.asdict(item) for item in self._done],
            "written": self._truth.written,
            "distinct": self._truth.distinct,
            "pushes": dict(ledger.pushes),
            "sums": [[*key, value] for key, value in ledger.sums.items()],
            "counts": [[*key, value] for key, value in ledger.counts.items()],
            "owners": {key: repr(owner) for key, owner in self._truth.owners.items()},
        }
        new = self._progress.with_suffix(".new")
        new.write_text(json.dumps(document))
        new.replace(self._progress)

    def _go_on(self) -> None:
        document: dict[str, Any] = json.loads(self._progress.read_text())
        known = document["plan"]
        self._plan = Plan(**(known | {"features": tuple(known["features"])}))
        self._done = [Round(**round_) for round_ in document["rounds"]]
        truth = self._truth
        truth.written, truth.distinct = document["written"], document["distinct"]
        truth.ledger.pushes.update(document["pushes"])
        truth.ledger.sums.update({(a, b, c): value for a, b, c, value in document["sums"]})
        truth.ledger.counts.update({(a, b): value for a, b, value in document["counts"]})
        truth.owners.update(_owners(document["owners"]))
        self._say(f"going on in {self._folder} after {len(self._done)} rounds, seed {self._plan.seed}")


def _owners(texts: dict[str, str]) -> dict[str, Any]:
    from tests.fuzz.pipeline.identities import IDENTITIES

    by_text = {repr(identity): identity for identity in IDENTITIES}
    return {key: by_text[text] for key, text in texts.items()}


def _cpu_s(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def _tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process, its children that ended, and its children that live."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ended = (int(fields[13]) + int(fields[14])) / 100
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    total = cpu_seconds(pid) + ended
    for child in children:
        try:
            total += cpu_seconds(int(child))
        except ProcessLookupError:  # it has just ended
            continue
    return total
