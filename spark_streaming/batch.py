"""Processes a batch: executors write loads, the driver lets them count.

Spark decodes where it reads, and brings the entries of a client together. A task writes the load of
its clients (:mod:`spark_streaming.tasks`). The driver sees one row of each task. Its transaction
makes all loads of the batch count at once, or none. The job starts and retries batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, get_args

import pyarrow as pa
import structlog
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from spark_streaming import tasks
from spark_streaming.admission import Bound
from spark_streaming.catalogue import plan
from spark_streaming.entries import MAX_PAYLOAD_BYTES, Entries
from spark_streaming.lake import Lake
from spark_streaming.metrics import RollupMetrics
from spark_streaming.poison import MAX_ISOLATED, first_failing, is_data_error
from spark_streaming.postgres import DEAD_LETTER_ROWS, Batch, BatchStatistics, IdKey, Store
from spark_streaming.routing import Routes
from spark_streaming.rows import cast
from spark_streaming.series_hashes import register_key
from spark_streaming.settings import RollupSettings
from spark_streaming.tasks import RESULT_ROWS, TaskSettings, TaskStage, UndescribedError, failure

_SECOND_NS: Final = 1_000_000_000

#: A rebuild also reads so many minutes before its first one, because counts continue for three push
#: intervals of at most an hour. What they add to minutes before the first one is left out.
_WARM_UP_MINUTES: Final = 3 * 60 + 1

#: Of the tasks' frame.
_RESULTS: Final = from_arrow_schema(RESULT_ROWS)

#: Seconds between two warnings of new series over a bound.
_REFUSALS_EVERY_S: Final = 60.0
_SETTING_OF: Final[dict[Bound, str]] = {
    "client": "new_series.client_per_hour",
    "principal": "new_series.principal_per_hour",
    "minute": "new_series.per_minute",
}

_log = structlog.get_logger()


class BatchError(Exception):
    """The source changed while a batch was read. Nothing was committed."""


class Progress(NamedTuple):
    """How far pushes were read."""

    closed: int
    """The last complete minute, up to which silent clients are carried forward."""
    read_until_ns: int | None
    """Pushes received until this time were read; None if that is unknown."""


@dataclass(frozen=True, slots=True)
class _Run:
    """The function of a task.

    A class, because Spark sends it to executors with its settings.
    """

    settings: TaskSettings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return tasks.run(batches, self.settings)


class _TrialEndedError(Exception):
    """Rolls back a trial run that succeeded."""


class Batches:
    """Processes the batches of a streaming query.

    Args:
        progress_at: Maps the newest time of receipt in a batch (ns), or None before a batch, to how
            far pushes were read.
        metrics: Gets the stages and the results of batches.
        min_minute: Change no earlier minute, for a rebuild. Data points of the three hours before
            only tell which counts continue, and the last values of cumulative sums.
    """

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        settings: RollupSettings,
        *,
        progress_at: Callable[[int | None], Progress],
        id_key: IdKey,
        metrics: RollupMetrics,
        min_minute: int | None = None,
    ) -> None:
        self._metrics = metrics
        self._stages = metrics.stages()
        self._spark = spark
        self._store = store
        self._source = settings.source
        self._url = store.url
        self._retention = settings.retention
        self._new_series = settings.new_series
        self._refusals_logged_at = float("-inf")
        self._routes = Routes()
        self._lake = None if settings.lake is None else Lake(spark, settings.lake)
        self._progress_at = progress_at
        self._min_minute = min_minute
        self._first_minute = None if min_minute is None else min_minute - _WARM_UP_MINUTES
        text = plan(
            min_minute=self._first_minute,
            max_behind_s=settings.max_behind_s,
            max_ahead_s=settings.max_ahead_s,
            max_value=settings.max_value,
            max_count=settings.max_count,
            max_partitions=settings.max_partitions,
        )
        register_key(spark, id_key)
        self._entries = Entries(text, id_key.key_id)

    def roll_up(
        self, pushes: DataFrame, query_id: str, batch_id: int, *, damaged: Mapping[str, str] | None = None
    ) -> int | None:
        """Process one batch; return the number of its pushes, with repeats.

        None if it was committed before.

        Args:
            pushes: Columns as in :mod:`spark_streaming.sources`.
            query_id: Spark's id of the query, which the checkpoint keeps.
            damaged: Unreadable files of the batch and empty ones, with the reasons.

        Raises:
            BatchError: The source changed while it was read. Read the batch again.
        """
        isolated: dict[str, str] = {}
        known_good = 0
        while True:
            try:
                return self._commit(pushes, query_id, batch_id, damaged or {}, isolated)
            except Exception as error:
                if not is_data_error(error) or len(isolated) >= MAX_ISOLATED:
                    raise
                positions = sorted(pushes.select("position").toArrow()["position"].to_pylist())
                fails = self._trial(pushes, positions, query_id, batch_id, isolated)
                known_good = first_failing(len(positions), fails, known_good=known_good)
                position = positions[known_good] if positions else ""
                if not position or position in isolated:
                    # No push causes the failure.
                    raise
                isolated[position] = f"the batch fails with this push: {type(error).__name__}: {error}"
                _log.warning(
                    "push isolated because the batch fails with it",
                    batch=batch_id,
                    position=position,
                    problem=type(error).__name__,
                )

    def _trial(
        self,
        pushes: DataFrame,
        positions: Sequence[str],
        query_id: str,
        batch_id: int,
        isolated: Mapping[str, str],
    ) -> Callable[[int], bool]:
        """Return a function that tries the first n pushes and returns whether they fail."""

        def fails(size: int) -> bool:
            part = self._spark.createDataFrame(pa.table({"position": positions[:size]}))
            selected = pushes.join(f.broadcast(part), "position", "left_semi")
            try:
                with self._stages, self._store.batch(query_id, batch_id) as batch:
                    if batch is not None:
                        self._process(batch, selected, query_id, batch_id, isolated, trial=True)
                    raise _TrialEndedError
            except _TrialEndedError:
                return False
            except Exception as error:
                if not is_data_error(error):
                    raise
                return True

        return fails

    def _commit(
        self,
        pushes: DataFrame,
        query_id: str,
        batch_id: int,
        damaged: Mapping[str, str],
        isolated: Mapping[str, str],
    ) -> int | None:
        began = time.monotonic()
        damaged_files: list[str] = []
        with self._stages, self._begin(query_id, batch_id) as batch:
            if batch is None:
                _log.info("batch was committed before", batch=batch_id)
                self._metrics.batch_skipped()
                return None
            done = self._process(batch, pushes, query_id, batch_id, isolated)
            self._stages.enter("commit")
            batch.enter(done.load_ids, done.first_minutes)
            batch.disconnected(done.ends_ns)
            damaged_files = sorted(batch.without_dead_letter(damaged))
            for file in damaged_files:
                letter = [[self._source], [file], [damaged[file]], [0], [b""]]
                batch.dead_letters(pa.table(letter, schema=DEAD_LETTER_ROWS))
            if done.newest_received_at_ns is not None:
                batch.read_until(self._progress_at(done.newest_received_at_ns).read_until_ns)
            statistics = BatchStatistics(
                pushes=done.total("pushes"),
                repeats=done.total("repeats"),
                points=done.total("points"),
                entries=done.total("entries"),
                rows=done.total("rows"),
                dead_letters=done.total("dead_letters") + len(isolated),
                left_out=done.total("left_out"),
                overflowed=done.total("overflowed"),
                newest_received_at_ns=done.newest_received_at_ns,
                duration_s=time.monotonic() - began,
            )
            batch.record(statistics)
        seconds = time.monotonic() - began
        newest = statistics.newest_received_at_ns
        self._metrics.batch_committed(
            pushes=statistics.pushes,
            repeats=statistics.repeats,
            points=statistics.points,
            entries=statistics.entries,
            rows=statistics.rows,
            loads=len(done.load_ids),
            overflowed=statistics.overflowed,
            refused_series={bound: done.total(f"refused_{bound}") for bound in get_args(Bound)},
            dead_letters=statistics.dead_letters + len(damaged_files),
            newest_received_at_ns=newest,
            seconds=seconds,
        )
        _log.info(
            "batch",
            batch=batch_id,
            pushes=statistics.pushes,
            points=statistics.points,
            repeats=statistics.repeats,
            dead_letters=statistics.dead_letters,
            rows=statistics.rows,
            loads=len(done.load_ids),
            seconds=round(seconds, 3),
            lag_s=None if newest is None else round((time.time_ns() - newest) / _SECOND_NS, 1),
        )
        return statistics.pushes + statistics.repeats + done.total("departures") + len(isolated)

    def _begin(self, query_id: str, batch_id: int) -> AbstractContextManager[Batch | None]:
        self._stages.enter("begin")
        return self._store.batch(query_id, batch_id)

    def _process(
        self,
        batch: Batch,
        pushes: DataFrame,
        query_id: str,
        batch_id: int,
        isolated: Mapping[str, str],
        *,
        trial: bool = False,
    ) -> _Results:
        """Let executors write the loads of a batch.

        Raises:
            BatchError: The source changed while it was read.
            Exception: What a task raised.
        """
        if isolated:
            letters = pa.table({"position": list(isolated), "reason": list(isolated.values())})
            if not trial:
                batch.dead_letters(self._dead_letters(pushes, letters))
            without = self._spark.createDataFrame(letters.select(["position"]))
            pushes = pushes.join(f.broadcast(without), "position", "left_anti")
        with_rows = self._lake is not None and not trial
        settings = TaskSettings(
            url=self._url,
            retention=self._retention,
            new_series=self._new_series,
            source=self._source,
            query_id=query_id,
            batch_id=batch_id,
            closed=self._progress_at(None).closed,
            min_minute=self._min_minute,
            first_minute=self._first_minute,
            with_rows=with_rows,
        )
        describe_all = False
        while True:
            self._stages.enter("run")
            found = self._tasks(pushes, settings, describe_all=describe_all)
            if with_rows:
                found.persist(StorageLevel.DISK_ONLY)
            try:
                results = self._results(found)
                if split := batch.split_clients(results.load_ids):
                    # Rare: an instance sends several client ids, or sends some pushes without one.
                    self._routes.by_instance(split)
                    _log.info("clients with several client ids are routed by instance", clients=len(split))
                    continue
                if self._lake is not None and with_rows:
                    self._stages.enter("lake")
                    rows = found.where(f.col("row").isNotNull()).select("row.*")
                    self._lake.write(self._without_repeats(pushes, results), rows, query_id, batch_id)
            except UndescribedError:
                if describe_all:
                    raise BatchError(
                        "a series has no dimensions, because a file or records of the batch were deleted; "
                        "the batch is read again"
                    ) from None
                # An attempt that failed has used them up.
                describe_all = True
                continue
            finally:
                found.unpersist()
            points, tasks = results.total("points"), self._number_of_tasks()
            self._routes.weigh(results.slots)
            # Later batches would find them in several tasks.
            self._routes.by_instance(results.several)
            for client_id, most in results.largest():
                self._routes.learn(client_id, points=most, of=points, tasks=tasks)
            return results

    def _tasks(self, pushes: DataFrame, settings: TaskSettings, *, describe_all: bool) -> DataFrame:
        """Return the frame that runs the tasks when it is read."""
        number = self._number_of_tasks()
        return (
            self._entries.of(pushes, self._routes, describe_all=describe_all)
            .repartitionById(number, self._routes.task(f.col("slot"), number))
            .mapInArrow(_Run(settings), _RESULTS)
        )

    def _results(self, found: DataFrame) -> _Results:
        """Run the tasks.

        Raises:
            Exception: What a task raised.
        """
        began = time.monotonic()
        rows = found.where(f.col("row").isNull()).drop("row").toArrow().to_pylist()
        for row in rows:
            if row["error"] is not None:
                raise failure(row["error"], row["text"])
        results = _Results(rows)
        for stage in get_args(TaskStage):
            self._metrics.task_stage(stage, results.seconds(stage))
        # Tasks run after all pushes are decoded.
        longest = max((sum(row[f"{stage}_s"] for stage in get_args(TaskStage)) for row in rows), default=0.0)
        self._metrics.task_stage("decode", max(0.0, time.monotonic() - began - longest))
        if folded := results.total("folded"):
            _log.warning("series with too many reasons or errors added up as other", series=folded)
        self._log_refusals(results)
        return results

    def _log_refusals(self, results: _Results) -> None:
        """Warn of new series over a bound, at most once a minute."""
        refused = {bound: results.total(f"refused_{bound}") for bound in get_args(Bound)}
        now = time.monotonic()
        if not any(refused.values()) or now - self._refusals_logged_at < _REFUSALS_EVERY_S:
            return
        self._refusals_logged_at = now
        client_id, principal = results.refused_of
        _log.warning(
            "new series over a bound are left out",
            **{_SETTING_OF[bound]: count for bound, count in refused.items() if count},
            points=results.total("overflowed"),
            client_id=client_id,
            principal=principal,
        )

    def _number_of_tasks(self) -> int:
        """Return the number of tasks: one for each core of the executors."""
        return max(1, self._spark.sparkContext.defaultParallelism)

    def _without_repeats(self, pushes: DataFrame, results: _Results) -> DataFrame:
        if not results.repeated:
            return pushes
        positions = self._spark.createDataFrame(pa.table({"position": results.repeated}))
        return pushes.join(f.broadcast(positions), "position", "left_anti")

    def _dead_letters(self, pushes: DataFrame, isolated: pa.Table) -> pa.Table:
        found = (
            pushes.join(f.broadcast(self._spark.createDataFrame(isolated)), "position")
            .select(
                f.lit(self._source).alias("source"),
                "position",
                "reason",
                f.coalesce(f.octet_length("otlp"), f.lit(0)).alias("bytes"),
                f.coalesce(f.substring("otlp", 1, MAX_PAYLOAD_BYTES), f.lit(b"")).alias("payload"),
            )
            .toArrow()
        )
        if found.num_rows != isolated.num_rows:
            raise BatchError(
                f"read {found.num_rows} isolated pushes instead of {isolated.num_rows}, because a file or "
                "records of the batch were deleted; the batch is read again"
            )
        return cast(found, DEAD_LETTER_ROWS)


class _Results:
    """What the tasks of a batch returned.

    Args:
        rows: ``RESULT_ROWS``, one of each task.

    Attributes:
        first_minutes: The first minutes of each hour of each load, since the epoch.
        newest_received_at_ns: Time of receipt of the newest push; None without pushes.
        repeated: Positions of what are no new pushes, if there is a lake.
        ends_ns: When the connections of client instances ended.
        several: Client instances with several slots in one task.
        refused_of: A client id with many new series over a bound, and its principal.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows
        self.load_ids = [row["load_id"] for row in rows if row["load_id"] is not None]
        self.first_minutes = {minute for row in rows for minute in row["first_minutes"]}
        times = [row["newest_received_at_ns"] for row in rows if row["newest_received_at_ns"] is not None]
        self.newest_received_at_ns: int | None = max(times, default=None)
        self.repeated = [position for row in rows for position in row["repeated"] or ()]
        self.ends_ns: dict[str, int] = {}
        for row in rows:
            for instance, ended_ns in zip(row["gone"] or (), row["gone_ns"] or (), strict=True):
                self.ends_ns[instance] = max(ended_ns, self.ends_ns.get(instance, 0))
        self.several = [instance for row in rows for instance in row["several"]]
        self.slots = {
            slot: points
            for row in rows
            for slot, points in zip(row["slots"], row["slot_points"], strict=True)
        }

        refused = [row["refused_of"] for row in rows if row["refused_of"]]
        self.refused_of: tuple[str | None, str | None] = tuple(refused[0]) if refused else (None, None)

    def total(self, name: str) -> int:
        """Add up a statistic."""
        return sum(row[name] or 0 for row in self._rows)

    def seconds(self, stage: TaskStage) -> float:
        return float(sum(row[f"{stage}_s"] for row in self._rows))

    def largest(self) -> Iterator[tuple[str, int]]:
        """Yield the client id with the most points of each task, and their number."""
        for row in self._rows:
            if row["most"] is not None:
                yield row["most"], row["most_points"]
