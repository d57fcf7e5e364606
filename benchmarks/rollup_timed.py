"""``python -m benchmarks.rollup_timed FILE ARGUMENTS``: the roll-up's command with stages timed.

Owns the clocks: they stand at public calls of the job alone, and what they saw is in FILE as JSON
when the command has ended. The command is the one that users have; nothing of it is replaced.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.processes import descendants
from spark_streaming import batch as batch_module
from spark_streaming import cli
from spark_streaming.batch import Batches
from spark_streaming.contributions import reconcile
from spark_streaming.postgres import Batch
from tests.testbed.cpu import cpu_seconds

#: Behind the name of a stage while which the batch's own thread does something else.
BESIDE: Final = ", beside"

#: What a batch does in the database.
_STORE: Final = (
    "register_pushes",
    "client_keys",
    "clients",
    "contributions",
    "find_series",
    "add_series",
    "merge",
    "merge_buckets",
    "put_contributions",
    "put_clients",
    "add_client_minutes",
    "record",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Seconds: of the clock, and of CPU by process.

    Attributes:
        wall: Of the clock.
        python: CPU of the driver's Python.
        jvm: CPU of Spark.
        postgres: CPU of the job's connection.
    """

    wall: float = 0.0
    python: float = 0.0
    jvm: float = 0.0
    postgres: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(**{name: value + getattr(other, name) for name, value in asdict(self).items()})

    def __sub__(self, other: Spent) -> Spent:
        return Spent(**{name: value - getattr(other, name) for name, value in asdict(self).items()})

    @property
    def cpu(self) -> float:
        """CPU seconds of all."""
        return self.python + self.jvm + self.postgres


@dataclass(slots=True, kw_only=True)
class TimedBatch:
    """One batch.

    Attributes:
        began: What had been spent when it began.
        ended: The same for its end.
        stages: What its stages spent, by name.
    """

    began: Spent
    ended: Spent = field(default_factory=Spent)
    stages: dict[str, Spent] = field(default_factory=dict)


class _Clocks:
    def __init__(self) -> None:
        self.batches: list[TimedBatch] = []
        self.peak_bytes = {"python": 0, "jvm": 0}
        self._jvm = 0
        self._postgres = 0
        self._thread = 0

    def read(self) -> Spent:
        return Spent(
            wall=time.monotonic(),
            python=time.process_time(),
            jvm=cpu_seconds(self._jvm) if self._jvm else 0.0,
            postgres=cpu_seconds(self._postgres) if self._postgres else 0.0,
        )

    def _read_here(self, *, in_store: bool) -> Spent:
        """Return the CPU time of this thread and of PostgreSQL on its behalf."""
        return Spent(
            wall=time.monotonic(),
            python=time.thread_time(),
            postgres=cpu_seconds(self._postgres) if in_store else 0.0,
        )

    def at_batches(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def timed(*arguments: Any, **options: Any) -> Any:
            self._jvm = self._jvm or _java()
            self._thread = threading.get_ident()
            self.batches.append(TimedBatch(began=self.read()))
            result = call(*arguments, **options)
            self.batches[-1].ended = self.read()
            for name, pid in (("python", os.getpid()), ("jvm", self._jvm)):
                status = Path(f"/proc/{pid}/status").read_text()
                self.peak_bytes[name] = int(status.split("VmHWM:")[1].split()[0]) * 1024
            return result

        return timed

    def at_stage(self, name: str, call: Callable[..., Any], *, in_store: bool) -> Callable[..., Any]:
        @functools.wraps(call)
        def timed(*arguments: Any, **options: Any) -> Any:
            if not self.batches or self.batches[-1].ended.wall:
                return call(*arguments, **options)  # in maintenance
            if in_store:
                self._postgres = arguments[0].connection.info.backend_pid
            stage = name if threading.get_ident() == self._thread else name + BESIDE
            began = self._read_here(in_store=in_store)
            try:
                return call(*arguments, **options)
            finally:
                stages = self.batches[-1].stages
                spent = self._read_here(in_store=in_store) - began
                stages[stage] = stages.get(stage, Spent()) + spent

        return timed


def _java() -> int:
    return next(
        pid for pid in descendants(os.getpid()) if Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    )


def main() -> None:
    """Run the command."""
    file, *arguments = sys.argv[1:]
    clocks = _Clocks()
    batches: Any = Batches
    batches.roll_up = clocks.at_batches(Batches.roll_up)
    vars(batch_module)["reconcile"] = clocks.at_stage("reconcile", reconcile, in_store=False)
    store: Any = Batch
    store.sums = clocks.at_stage("sums", Batch.sums, in_store=False)
    for name in _STORE:
        setattr(Batch, name, clocks.at_stage(name, getattr(Batch, name), in_store=True))
    try:
        cli.app(arguments, standalone_mode=False)
    finally:
        document = {"batches": [asdict(one) for one in clocks.batches], "peak_bytes": clocks.peak_bytes}
        Path(file).write_text(json.dumps(document))


if __name__ == "__main__":
    main()
