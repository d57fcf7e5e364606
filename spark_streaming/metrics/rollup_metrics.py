"""Counts the batches, stages, maintenances and failures of the roll-up.

All series are known before the first batch, except those of errors. No label has a client's text,
so the number of series is bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import nan
from typing import Final, Literal, Self, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary, disable_created_metrics
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from spark_streaming.admission import Bound
from spark_streaming.findings.settings import KINDS
from spark_streaming.findings.versions import SEVERITIES
from spark_streaming.log_writer import dropped_lines
from spark_streaming.scraping.negotiation import scrape_format

#: A part of a batch. Spark reports ``find``, ``plan`` and ``checkpoint``. ``run`` is the Spark job;
#: those from ``decode`` to ``write`` are parts of it, of all tasks together.
Stage = Literal[
    "find",
    "plan",
    "checkpoint",
    "begin",
    "run",
    "decode",
    "deduplicate",
    "series",
    "look_up",
    "reconcile",
    "write",
    "lake",
    "commit",
]
_PREFIX: Final = "kafka_telemetry_rollup_"
#: The names of Spark's durations, in its progress of a query, by stage.
_SPARK_STAGES: Final[Mapping[Stage, tuple[str, ...]]] = {
    "find": ("latestOffset", "getBatch"),
    "plan": ("queryPlanning",),
    "checkpoint": ("walCommit", "commitOffsets"),
}
#: From a quiet batch to one that an operator must know of.
_SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
_During = Literal["batch", "maintenance", "alerts"]


class RollupMetrics:
    """The roll-up's metrics, in a registry of their own. Thread-safe.

    Args:
        clock: Seconds since the epoch.

    Attributes:
        registry: Holds every series of the roll-up and of its process.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        # Creation times would double the series, and counter resets show without them.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        self.registry.register(_DroppedLines())
        self._read_until_s = nan
        self._gauge("lag_seconds", "Age of the oldest push that may be unread.").set_function(self._lag_s)
        self._read_until = self._gauge(
            "read_until_timestamp_seconds", "Pushes received until this time were read."
        )
        self._read_until.set(nan)
        self._batches = self._counter("batches", "Batches committed.")
        self._batch_seconds = self._histogram("batch_seconds", "Duration of committed batches.")
        self._stages = Summary(
            f"{_PREFIX}stage_seconds",
            "Time of a stage of batches, including batches that failed.",
            ["stage"],
            registry=self.registry,
        )
        for stage in get_args(Stage):
            self._stages.labels(stage)
        self._pushes = self._counter("pushes", "New pushes in committed batches.")
        self._repeats = self._counter("repeated_pushes", "Pushes left out because they were counted before.")
        self._points = self._counter("points", "Data points in committed batches.")
        self._entries = self._counter(
            "entries", "Entries in committed batches: the points of a push with one instance and time."
        )
        self._rows = self._counter("rows", "Rows that committed batches added to the totals of minutes.")
        self._overflowed = self._counter(
            "overflowed_points",
            "Data points of committed batches whose series are new beyond a bound. They are left out.",
        )
        self._refused = self._counter("refused_series", "New series over a bound, by bound.", "bound")
        for bound in get_args(Bound):
            self._refused.labels(bound)
        self._loads = self._counter("loads", "Loads that commits made visible.")
        self._dead_letters = self._counter(
            "dead_letters", "Pushes and files of committed batches that could not be read."
        )
        self._missing_offsets = self._counter(
            "missing_offsets", "Kafka offsets without a record: expired, or transaction markers."
        )
        self._failures = self._counter(
            "failures", "Failed batches, maintenances and deliveries of alerts.", "during"
        )
        for during in get_args(_During):
            self._failures.labels(during)
        self._consecutive_failures = self._gauge(
            "consecutive_failures", "Failures of batches since the last committed one."
        )
        self._last_error = self._gauge(
            "last_error_timestamp_seconds", "Time of the last error of a type.", "during", "error"
        )
        self._maintenance_seconds = self._histogram("maintenance_seconds", "Duration of maintenances.")
        self._maintenance_at = self._gauge(
            "maintenance_last_success_timestamp_seconds",
            "Time of the last completed maintenance, or of the job's start.",
        )
        self._maintenance_at.set(nan)
        self._is_maintained = False
        self._findings = self._gauge(
            "findings", "Open findings, by kind and severity, after the last look.", "kind", "severity"
        )
        for kind, severity in product(KINDS, SEVERITIES):
            self._findings.labels(kind, severity).set(nan)
        self._backlog = self._gauge(
            "maintenance_backlog",
            "Hours and days that changed and are not computed yet, and hours, days and months to pack.",
            "kind",
        )
        for kind in ("hours", "days", "hours_to_pack", "days_to_pack", "months_to_pack"):
            self._backlog.labels(kind)

    def stages(self) -> StageClock:
        """Return a clock for the stages of one thread's batches."""
        return StageClock(lambda stage, seconds: self._stages.labels(stage).observe(seconds))

    def batch_committed(
        self,
        *,
        pushes: int,
        repeats: int,
        points: int,
        entries: int,
        rows: int,
        loads: int,
        overflowed: int,
        refused_series: Mapping[Bound, int],
        dead_letters: int,
        newest_received_at_ns: int | None,
        seconds: float,
    ) -> None:
        """Count a committed batch.

        Args:
            pushes: New pushes.
            repeats: Pushes counted before.
            points: Data points of the new pushes.
            entries: Points of one push, instance and time.
            loads: Sets of rows, one for each writer, that the commit made visible.
            overflowed: Data points of series over a bound of new ones.
            refused_series: Such series by bound.
            newest_received_at_ns: Time of receipt of the newest push. None without pushes.
        """
        self._batches.inc()
        self._batch_seconds.observe(seconds)
        for counter, count in (
            (self._pushes, pushes),
            (self._repeats, repeats),
            (self._points, points),
            (self._entries, entries),
            (self._rows, rows),
            (self._loads, loads),
            (self._overflowed, overflowed),
            (self._dead_letters, dead_letters),
        ):
            counter.inc(count)
        for bound, count in refused_series.items():
            self._refused.labels(bound).inc(count)
        self._consecutive_failures.set(0)
        if newest_received_at_ns is not None:
            # A client's clock plays no part, but the receiver's may be ahead.
            self._advance(min(newest_received_at_ns / 1e9, self._clock()))

    def task_stage(self, stage: Stage, seconds: float) -> None:
        """Add the time that tasks spent on a stage."""
        self._stages.labels(stage).observe(seconds)

    def spark_finished(self, durations_ms: Mapping[str, float]) -> None:
        """Add the durations that Spark reports of a batch."""
        for stage, names in _SPARK_STAGES.items():
            self._stages.labels(stage).observe(sum(durations_ms.get(name, 0) for name in names) / 1000)

    def batch_skipped(self) -> None:
        """Note that a repeated batch turned out to be committed before."""
        self._consecutive_failures.set(0)

    def source_is_read(self) -> None:
        """Note that the source had nothing left to read.

        So no batch can fail.
        """
        self._consecutive_failures.set(0)
        self._advance(self._clock())

    def offsets_missing(self, count: int) -> None:
        """Count Kafka offsets without a record."""
        self._missing_offsets.inc(count)

    def failed(self, during: _During, error: BaseException) -> None:
        """Count a failed batch, maintenance or delivery of alerts."""
        self._failures.labels(during).inc()
        if during == "batch":
            self._consecutive_failures.inc()
        # The type only, because the text may be a client's.
        self._last_error.labels(during, type(error).__name__).set(self._clock())

    def maintenance_expected(self) -> None:
        """Note that maintenance runs regularly from now on."""
        if not self._is_maintained:
            self._is_maintained = True
            self._maintenance_at.set(self._clock())

    def findings_open(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Set the numbers of open findings."""
        for (kind, severity), count in counts.items():
            self._findings.labels(kind, severity).set(count)

    def maintained(self, *, seconds: float, backlog: Mapping[str, int]) -> None:
        """Count a completed maintenance, and the hours and days that it left, by kind."""
        self._maintenance_seconds.observe(seconds)
        self._maintenance_at.set(self._clock())
        for kind, count in backlog.items():
            self._backlog.labels(kind).set(count)

    def exposition(self, accept: str) -> tuple[str, bytes]:
        """Return the content type and the text of all series."""
        encode, content_type = choose_encoder(scrape_format(accept))
        return content_type, encode(self.registry)

    def _advance(self, until_s: float) -> None:
        if not self._read_until_s >= until_s:
            self._read_until_s = until_s
            self._read_until.set(until_s)

    def _lag_s(self) -> float:
        return self._clock() - self._read_until_s

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(_PREFIX + name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(_PREFIX + name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(_PREFIX + name, text, buckets=_SECONDS, registry=self.registry)


class _DroppedLines(Collector):
    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(
            f"{_PREFIX}log_lines_dropped",
            "Log lines that were dropped because the log could not be written.",
            dropped_lines(),
        )


class StageClock:
    """Measures stages that follow each other in one thread.

    Leaving its context ends the running stage, also after an error.

    Args:
        observe: Gets each stage that ended, and its seconds.
    """

    def __init__(
        self, observe: Callable[[Stage, float], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._observe = observe
        self._clock = clock
        self._running: Stage | None = None
        self._began = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end(self._clock())

    def enter(self, stage: Stage) -> None:
        """End the running stage and begin another."""
        now = self._clock()
        self._end(now)
        self._running, self._began = stage, now

    def _end(self, now: float) -> None:
        if self._running is not None:
            self._observe(self._running, now - self._began)
            self._running = None
