"""What a run of the roll-up on one and two workers says, with the model of more cores.

``python -m benchmarks.scaling_report FILE`` keeps the results of a run and rewrites the page. FILE
has the results of ``--part rollup-scaling``.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import Figure, table
from benchmarks.scaling_model import Batch, Limits, Parts, Predicted, predict
from spark_streaming.routing import HEAVY

KEPT: Final = Path(__file__).with_name("scaling.json")
PAGE: Final = Path(__file__).with_name("scaling.md")
_BLOCK: Final = re.compile("```text\n.*?\n```", re.DOTALL)
_PART: Final = "rollup-scaling"
_MILLION: Final = 1_000_000
#: The model's table.
_CORES: Final = (1, 2, 4, 8, 16, 32, 64, 100)
_POSTGRESQL_CORES: Final = (2, 8, 32)
#: Times the measured batch.
_TIMES: Final = 10
#: Assumed, not measured: a disk of a cloud, and 10 Gbit/s for a host of eight cores.
_WAL_BYTES_S: Final = 500e6
_NETWORK_BYTES_S: Final = 10e9 / 8 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One batch.

    Attributes:
        points: Its data points.
        seconds: From the end of the batch before to its end.
        driver_s: The part of it in which no stage of Spark ran.
        cpu: CPU seconds by process.
        wal_bytes: Bytes of the write-ahead log.
        shuffle_bytes: Bytes that its first stage wrote.
        read_share: The share of its first stage in the CPU of the tasks' threads in the JVM.
        longest: The share of the longest task in the time of all tasks, of each stage.
    """

    points: int
    seconds: float
    driver_s: float
    cpu: Mapping[str, float]
    wal_bytes: float
    shuffle_bytes: float
    read_share: float
    longest: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The batches of a run with some workers: those of full size, and those with few points."""

    workers: int
    counting: bool
    large: Sequence[Timed]
    small: Sequence[Timed]
    #: Bytes by table that the counting sink took.
    counted: Mapping[str, Mapping[str, int]]

    @property
    def rate(self) -> float:
        """Points a second by the clock, the median of the batches."""
        return statistics.median(item.points / item.seconds for item in self.large)

    @property
    def apart_rate(self) -> float:
        """Points a second if nothing shared the workers' cores, from the CPU of each process.

        It takes as long as the driver alone, the busiest worker, and PostgreSQL on cores of its
        own. PostgreSQL serves each worker as soon as it asks, and the worker waits for it.
        """
        return statistics.median(item.points / self._apart_s(item) for item in self.large)

    def _apart_s(self, one: Timed) -> float:
        busiest = max(
            sum(one.cpu[f"{part} {number}"] for part in ("executor", "tasks"))
            for number in range(self.workers)
        )
        return one.driver_s + busiest + one.cpu["postgresql"] / self.workers

    def us(self, *parts: str) -> float:
        """CPU microseconds by point of some processes, the median of the batches."""
        return statistics.median(
            sum(spent for name, spent in item.cpu.items() if name.split()[0] in parts)
            / item.points
            * _MILLION
            for item in self.large
        )

    def longest(self, stage: int) -> float:
        """The share of the longest task in the time of a stage's tasks."""
        return statistics.median(item.longest[stage] for item in self.large)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """All runs.

    Attributes:
        runs: Into PostgreSQL with one and two workers, then into the counting sink.
        many: Small batches with more tasks than cores, on two workers.
        many_tasks: Their tasks.
        files: Files of a batch.
        instances: Instances of each client id.
    """

    runs: Sequence[Run]
    many: Run
    many_tasks: int
    files: int
    instances: Sequence[int]

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Scaling:
        """Read :func:`dataclasses.asdict` of it."""
        return cls(**{**raw, "runs": list(map(_run, raw["runs"])), "many": _run(raw["many"])})

    @property
    def text(self) -> str:
        """All tables."""
        parts, batch = self._parts(), self._batch()
        here = [self._here(parts[run.counting], run.workers) for run in self.runs]
        return "\n\n".join(
            (
                _describe(self.runs),
                _describe_counted(self.runs),
                _describe_check(self.runs, here),
                _describe_parts(parts, batch),
                _describe_model(parts, batch),
            )
        )

    @property
    def figures(self) -> list[Figure]:
        """How many times the points of one worker two workers carry."""
        found = []
        for shared, name in ((True, "rate"), (False, "apart_rate")):
            for counting in (False, True):
                one, two = (getattr(run, name) for run in self.runs if run.counting is counting)
                found.append(
                    Figure(
                        name=f"two workers by one, {_sink(counting)}, {'shared' if shared else 'own'} cores",
                        value=two / one,
                        at_least=1.8,
                        note=f"{one:,.0f} and {two:,.0f} points a second, "
                        + ("by the clock" if shared else "from the CPU of each process"),
                    )
                )
        return found

    def _parts(self) -> dict[bool, Parts]:
        """By whether the sink counts, from the runs with one worker."""
        dispatch_s = max(0.0, self._dispatch_s())
        return {
            run.counting: parts_of(run.large, run.small, dispatch_s) for run in self.runs if run.workers == 1
        }

    def _dispatch_s(self) -> float:
        """Return what a task costs the driver: the CPU seconds of small batches by their tasks."""
        few = self.runs[1]

        def cpu_s(run: Run) -> float:
            return statistics.median(item.cpu["driver"] + item.cpu["jvm"] for item in run.small)

        return (cpu_s(self.many) - cpu_s(few)) / (self.many_tasks - few.workers)

    def _batch(self) -> Batch:
        points = statistics.median(item.points for item in self.runs[0].large)
        return Batch(points=points, files=self.files, instances=self.instances, heavy=HEAVY)

    def _here(self, parts: Parts, workers: int) -> Predicted:
        return predict(parts, self._batch(), workers, _limits(workers, all_cores=workers))


def _run(raw: Mapping[str, Any]) -> Run:
    large, small = (
        [Timed(**{**item, "longest": tuple(item["longest"])}) for item in raw[size]]
        for size in ("large", "small")
    )
    return Run(**{**raw, "large": large, "small": small})


def parts_of(large: Sequence[Timed], small: Sequence[Timed], dispatch_s: float) -> Parts:
    """Return the model's parts.

    Args:
        large: Batches of one worker.
        small: Batches of the same run with next to no points.
        dispatch_s: What a task costs the driver.
    """
    points = statistics.median(item.points for item in large)

    def more(of: Callable[[Timed], float]) -> float:
        """By how much a large batch has more, by point."""
        less = statistics.median(map(of, small))
        return max(0.0, statistics.median(map(of, large)) - less) / points

    read_us = more(lambda one: one.cpu["executor 0"] * one.read_share) * _MILLION
    executor_us = more(lambda one: one.cpu["executor 0"] + one.cpu["tasks 0"]) * _MILLION
    return Parts(
        read_us=read_us,
        task_us=executor_us - read_us,
        postgresql_us=more(lambda one: one.cpu["postgresql"]) * _MILLION,
        commit_us=more(lambda one: one.driver_s) * _MILLION,
        fixed_s=statistics.median(item.seconds for item in small),
        dispatch_s=dispatch_s,
        shuffle_bytes=more(lambda one: one.shuffle_bytes),
        wal_bytes=more(lambda one: one.wal_bytes),
    )


def timed(document: Sequence[Mapping[str, Any]], points: Sequence[int]) -> list[Timed]:
    """Return the batches of ``rollup_timed`` but for the first, which starts with the command.

    Args:
        document: Its batches.
        points: The points of each batch.
    """
    found = []
    for before, item, count in zip(document, document[1:], points[1:], strict=False):
        seconds = item["ended"]["wall"] - before["ended"]["wall"] - item["measuring_s"]
        stages = item["stages"]
        cpu_s = sum(stage["cpu_s"] for stage in stages)
        found.append(
            Timed(
                points=count,
                seconds=seconds,
                driver_s=seconds - sum(stage["seconds"] for stage in stages),
                cpu=_less(item["ended"]["cpu"], before["ended"]["cpu"]),
                wal_bytes=item["ended"]["wal_bytes"] - before["ended"]["wal_bytes"],
                shuffle_bytes=stages[0]["shuffle_bytes"],
                read_share=stages[0]["cpu_s"] / cpu_s,
                longest=tuple(max(stage["task_seconds"]) / sum(stage["task_seconds"]) for stage in stages),
            )
        )
    return found


def _less(cpu: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: spent - before[name] for name, spent in cpu.items()}


def _limits(postgresql_cores: float = math.inf, **shared: float) -> Limits:
    return Limits(
        postgresql_cores=postgresql_cores,
        wal_bytes_s=_WAL_BYTES_S,
        network_bytes_s=_NETWORK_BYTES_S,
        **shared,
    )


def _sink(counting: bool) -> str:  # noqa: FBT001 -- a value, no option
    return "counting" if counting else "PostgreSQL"


def _describe(runs: Sequence[Run]) -> str:
    head = (
        "sink", "workers", "points/s", "CPU us/point", "executors", "tasks", "PostgreSQL", "driver",
        "driver's JVM", "driver alone s", "longest read", "longest task", "WAL B/point", "shuffle B/point",
    )  # fmt: skip
    rows = [
        (
            _sink(run.counting),
            str(run.workers),
            f"{run.rate:,.0f}",
            f"{run.us('executor', 'tasks', 'postgresql', 'driver', 'jvm'):.2f}",
            *(f"{run.us(name):.2f}" for name in ("executor", "tasks", "postgresql", "driver", "jvm")),
            f"{statistics.median(batch.driver_s for batch in run.large):.2f}",
            f"{run.longest(0):.0%}",
            f"{run.longest(-1):.0%}",
            f"{statistics.median(batch.wal_bytes / batch.points for batch in run.large):.0f}",
            f"{statistics.median(batch.shuffle_bytes / batch.points for batch in run.large):.0f}",
        )
        for run in runs
    ]
    return table(head, rows)


def _describe_counted(runs: Sequence[Run]) -> str:
    """Say what the sink took, so that its runs can be judged."""
    counted = [run for run in runs if run.counting][-1].counted
    found = ", ".join(
        f"{name} {of['rows']:,} rows, {of['bytes'] / _MILLION:.0f} MB" for name, of in counted.items()
    )
    return f"What the counting sink took in a run: {found}."


def _describe_check(runs: Sequence[Run], shared: Sequence[Predicted]) -> str:
    head = ("sink", "workers", "measured points/s", "predicted", "by measured", "cores of their own")
    rows = [
        (
            _sink(run.counting),
            str(run.workers),
            f"{run.rate:,.0f}",
            f"{predicted.points_s:,.0f}",
            f"{predicted.points_s / run.rate:.2f}",
            f"{run.apart_rate:,.0f}",
        )
        for run, predicted in zip(runs, shared, strict=True)
    ]
    return "The model on this machine, from the parts of one worker:\n" + table(head, rows)


def _describe_parts(parts: Mapping[bool, Parts], batch: Batch) -> str:
    head = (
        "sink", "read us/point", "tasks", "PostgreSQL", "commit", "s/batch", "driver ms/task",
        "WAL B/point", "shuffle B/point",
    )  # fmt: skip
    rows = [
        (
            _sink(counting),
            f"{part.read_us:.2f}",
            f"{part.task_us:.2f}",
            f"{part.postgresql_us:.2f}",
            f"{part.commit_us:.3f}",
            f"{part.fixed_s:.2f}",
            f"{part.dispatch_s * 1e3:.1f}",
            f"{part.wal_bytes:.0f}",
            f"{part.shuffle_bytes:.0f}",
        )
        for counting, part in parts.items()
    ]
    return (
        f"The parts of one worker; a batch has {batch.points / _MILLION:.1f} M points in {batch.files} "
        f"files, and {len(batch.instances)} client ids:\n{table(head, rows)}"
    )


def _describe_model(parts: Mapping[bool, Parts], batch: Batch) -> str:
    larger = replace(batch, points=batch.points * _TIMES, files=batch.files * _TIMES)
    cases = [
        *((f"PostgreSQL {cores} cores", False, batch, _limits(cores)) for cores in _POSTGRESQL_CORES),
        (f"... batch x {_TIMES}", False, larger, _limits(_POSTGRESQL_CORES[-1])),
        (f"counting, batch x {_TIMES}", True, larger, _limits()),
    ]
    head = ("cores", "longest task", *(text for name, *_ in cases for text in (name, "ceiling")))
    rows = []
    for cores in _CORES:
        found = [predict(parts[sink], size, cores, limits) for _, sink, size, limits in cases]
        shown = [text for item in found for text in (f"{item.points_s / _MILLION:.2f} M", item.ceiling)]
        rows.append((str(cores), f"{found[0].longest:.1%}", *shown))
    title = "The model's points a second, executors and PostgreSQL on cores of their own:"
    return f"{title}\n{table(head, rows)}"


def page(kept: Mapping[str, Any]) -> str:
    """Return the block of the page.

    Args:
        kept: What :func:`main` keeps.
    """
    machine = kept["machine"]
    when = (
        f"{kept['measured_at'][:10]}, {machine['cores']} cores, load average before the run "
        f"{machine['load_average_before']:.1f}"
    )
    scaling = Scaling.of(kept["raw"])
    rows = [
        (figure.name, figure.text, figure.goal, figure.verdict, figure.note) for figure in scaling.figures
    ]
    return f"{when}\n\n{scaling.text}\n\n{table(('figure', 'value', 'goal', 'verdict', 'note'), rows)}"


def main() -> None:
    """Keep the results of a run and rewrite the page."""
    results = json.loads(Path(sys.argv[1]).read_text())
    kept = {**{name: results[name] for name in ("measured_at", "machine")}, "raw": results["raw"][_PART]}
    KEPT.write_text(json.dumps(kept) + "\n")
    text = PAGE.read_text()
    PAGE.write_text(_BLOCK.sub(lambda _: f"```text\n{page(kept)}\n```", text, count=1))


if __name__ == "__main__":
    main()
