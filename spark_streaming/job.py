"""Runs the streaming query, and maintenance once a minute, until stopped.

Owns the query's life cycle, retries, and the time up to which silent clients are carried forward. A
failed batch is retried until it is committed. No batch is skipped.
"""

from __future__ import annotations

import json
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from spark_streaming import sources
from spark_streaming.alertmanager import Alertmanager, AlertmanagerError
from spark_streaming.batch import Batches, Progress
from spark_streaming.checkpoint import damaged_file
from spark_streaming.contributions import CodecError, reconcile, required_pairs
from spark_streaming.findings import FindingCounts, PacedFindings
from spark_streaming.findings.answers import open_findings
from spark_streaming.metrics import RollupMetrics
from spark_streaming.pace import rest_s
from spark_streaming.postgres import Store, StoreError, StoreUnavailableError, read_again_since
from spark_streaming.rows import ENTRY_ROWS
from spark_streaming.session import has_ended
from spark_streaming.settings import RollupSettings

_MINUTE_NS: Final = 60_000_000_000
_SECOND_NS: Final = 1_000_000_000
_MAINTENANCE_S: Final = 60.0
#: How often to look at the query. Each look is a call into Spark's JVM, and ten a second took a
#: fifth of the CPU of an idle job.
_LOOK_S: Final = 1
_MIN_PAUSE_S: Final = 1.0
_MAX_PAUSE_S: Final = 60.0
_MAX_TRIES_ONCE: Final = 4
_MAX_MESSAGE_CHARACTERS: Final = 400
#: A file counts as damaged after so many failed reads, because a file system error may be
#: temporary.
_MAX_READ_TRIES: Final = 3
_UNREADABLE: Final = re.compile(r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (\S+)\.\s")
_LOCAL: Final = re.compile("^file:/+")
_CONDITION: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\] [^\n]+")

_log = structlog.get_logger()


class JobError(Exception):
    """The job can't continue. The message says why."""


def _is_permanent(error: BaseException) -> bool:
    """Return whether a retry would fail in the same way."""
    return isinstance(error, JobError | StoreError) and not isinstance(error, StoreUnavailableError)


class _BatchFailedError(Exception):
    """Tells Spark that a batch failed, in a few words."""


class Job:
    """Rolls one source up into one store.

    Args:
        stop: Ends the run when set. A running batch is abandoned and repeated by the next run.
        metrics: Gets what the job does. None: nobody reads them.
        alertmanager: Gets the findings. None: nobody does.
    """

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        settings: RollupSettings,
        stop: threading.Event,
        *,
        metrics: RollupMetrics | None = None,
        alertmanager: Alertmanager | None = None,
    ) -> None:
        self._metrics = metrics or RollupMetrics()
        self._alertmanager = alertmanager
        self._spark = spark
        self._store = store
        self._settings = settings
        self._stop = stop
        # The store has one connection. Batches, in Spark's thread, and maintenance share it.
        self._store_lock = threading.Lock()
        self._newest_ns: int | None = None
        self._goal_ns: int | None = None
        # Set when the query is to end. Until then, the query rests after small batches.
        self._awake = threading.Event()
        self._once = False
        self._caught_up = False
        self._failure: BaseException | None = None
        self._committed = 0
        self._findings = PacedFindings(settings.findings)
        # Records read by batch, until Spark reports its offsets and durations; None if nobody needs
        # the number. Spark's own count has one for each pass.
        self._records_read: dict[int, int | None] = {}
        # Read errors by file of the running batch, one for each try.
        self._read_errors: dict[str, list[str]] = {}
        self._empty_files = sources.EmptyFiles(settings)

    def run(self) -> None:
        """Process pushes until stopped.

        Raises:
            JobError: The store has data of another version, or Spark has ended; or there is no
                checkpoint.
            StoreError: PostgreSQL can't be used.
        """
        self._run(self._checkpoint())

    def run_once(
        self, *, checkpoint: str | None = None, min_minute: int | None = None, newest_ns: int | None = None
    ) -> None:
        """Process everything the source holds, then run maintenance.

        Args:
            checkpoint: Replaces the settings' checkpoint, for a rebuild.
            min_minute: Change no earlier minute, for a rebuild. Pushes are read again from
                :func:`read_again_since` on.
            newest_ns: Time of receipt of the source's newest push, for the progress of a rebuild.

        Raises:
            JobError: A batch failed several times or permanently, or Spark has ended.
            StoreError: PostgreSQL can't be used.
        """
        self._once = True
        self._goal_ns = newest_ns
        self._run(checkpoint or self._checkpoint(), min_minute)

    def _checkpoint(self) -> str:
        path = self._settings.checkpoint_path
        if path is None:
            raise JobError("checkpoint: required unless PostgreSQL is embedded; give --checkpoint DIR")
        return path

    def _run(self, checkpoint: str, min_minute: int | None = None) -> None:
        since = None if min_minute is None else int(read_again_since(min_minute).timestamp()) * _SECOND_NS
        pause, tries, committed, migrated = _MIN_PAUSE_S, 0, 0, False
        while not self._stop.is_set():
            self._forget_failure()
            try:
                if not migrated:
                    for name in self._store.migrate():
                        _log.info("migrated", migration=name)
                    migrated = True
                sources.check_reachable(self._settings)
                batches = Batches(
                    self._spark,
                    self._store,
                    self._settings,
                    progress_at=self._progress_after,
                    id_key=self._store.id_key(),
                    metrics=self._metrics,
                    min_minute=min_minute,
                )
                query = self._begin(batches, checkpoint, since)
                if not committed:
                    _log.info(
                        "reading",
                        source=self._settings.source,
                        first_batch=sources.first_batch(self._settings),
                    )
                self._watch(query)
                if self._once and not self._stop.is_set():
                    self._maintain(min_minute)
                    self._alert()
                return
            except (PySparkException, Py4JError, StoreUnavailableError, OSError) as error:
                if self._stop.is_set():
                    return
                self._metrics.failed("batch", self._failure or error)
                if self._failure is not None and _is_permanent(self._failure):
                    raise self._failure from None
                if self._failure is None and (file := damaged_file(checkpoint, str(error))) is not None:
                    raise JobError(
                        f"checkpoint: {file} is damaged: delete the folder {checkpoint} and start the job "
                        "again. Pushes that were counted are recognised"
                    ) from None
                if has_ended(self._spark):
                    raise JobError("Spark has ended or was stopped: start the job again") from None
                failure = self._failure or error
            if self._committed > committed:
                pause, tries, committed = _MIN_PAUSE_S, 0, self._committed
            problem, wait = _first_line(failure), _MIN_PAUSE_S
            if not self._count_read_error(failure):
                tries, wait, pause = tries + 1, pause, min(2 * pause, _MAX_PAUSE_S)
            if self._once and tries >= _MAX_TRIES_ONCE:
                raise JobError(f"a batch failed {tries} times and was not committed: {problem}")
            _log.warning("batch failed, retrying", problem=problem, in_s=wait)
            self._stop.wait(wait)

    def _forget_failure(self) -> None:
        """Forget the failure of a try, because the next one may fail before it begins."""
        self._failure = None

    def _count_read_error(self, failure: BaseException) -> bool:
        """Count a failed read of a file. Return false for other errors."""
        found = _UNREADABLE.search(str(failure))
        if found is None:
            return False
        # In the form that Hadoop writes into the column.
        file = _LOCAL.sub("file:/", found[1])
        if file in self._damaged():
            return False
        self._read_errors.setdefault(file, []).append(_first_line(failure))
        return True

    def _damaged(self) -> dict[str, str]:
        """Return the files that are left out of the running batch, with the reasons."""
        return {
            file: problems[-1]
            for file, problems in self._read_errors.items()
            if len(problems) >= _MAX_READ_TRIES
        }

    def _begin(self, batches: Batches, checkpoint: str, since_ns: int | None) -> StreamingQuery:
        self._failure = None
        self._caught_up = False
        self._records_read.clear()
        self._awake.clear()

        def process(pushes: DataFrame, batch_id: int) -> None:
            began = time.monotonic()
            query_id = self._spark.sparkContext.getLocalProperty("sql.streaming.queryId")
            assert query_id is not None  # noqa: S101 -- Spark sets it for each batch
            damaged = self._damaged() | self._empty_files.find()
            try:
                with self._exclusive():
                    read = batches.roll_up(pushes, query_id, batch_id, damaged=damaged)
            except BaseException as error:
                # Kept, because Spark turns it into a string. When a query is stopped, Spark matches
                # that string with a regular expression that needs the stack for each character.
                self._failure = error
                raise _BatchFailedError(_first_line(error)) from None
            self._committed += 1
            self._report_rebuild(since_ns)
            self._records_read[batch_id] = read if self._settings.source == "kafka" else None
            if damaged:
                _log.warning("damaged files skipped", files=sorted(damaged))
            self._read_errors.clear()
            self._empty_files.clear()
            self._rest(read, began)

        pushes = sources.stream(self._spark, self._settings, since_ns=since_ns)
        if damaged := sorted(self._damaged()):
            # Spark does not open files that this filter excludes.
            pushes = pushes.where(~f.col("file").isin(damaged))
        writer = pushes.writeStream.foreachBatch(process).option("checkpointLocation", checkpoint)
        if self._once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(
            processingTime=f"{round(self._settings.trigger_seconds * 1000)} milliseconds"
        ).start()

    def _rest(self, pushes: int | None, began: float) -> None:
        """Wait after a batch with few pushes, because Spark has one interval for all."""
        if self._once or pushes is None or self._newest_ns is None:
            return
        rest = rest_s(
            pushes,
            spent_s=time.monotonic() - began,
            behind_s=(time.time_ns() - self._newest_ns) / _SECOND_NS,
            longest_s=self._settings.longest_trigger_s,
            grace_s=self._settings.grace_seconds,
        )
        if rest > 0:
            self._awake.wait(rest)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        with self._store_lock:
            try:
                yield
            except CodecError as error:
                # Permanent, because a retry reads the same bytes.
                raise JobError(str(error)) from None

    def _watch(self, query: StreamingQuery) -> None:
        """Run maintenance until the query ends. Raise the query's error."""
        due = time.monotonic() + _MAINTENANCE_S
        if not self._once:
            self._metrics.maintenance_expected()
        try:
            while not self._stop.is_set() and not _has_ended_within(query, _LOOK_S):
                self._report_progress(query)
                if self._once:
                    continue
                has_read_all = _has_read_all(query)
                if has_read_all:
                    self._metrics.source_is_read()
                if time.monotonic() >= due:
                    due = time.monotonic() + _MAINTENANCE_S
                    self._caught_up = has_read_all
                    self._try_maintenance()
        finally:
            self._awake.set()
            query.stop()
        self._report_progress(query)
        error = query.exception()
        if error is not None:
            raise error

    def _try_maintenance(self) -> None:
        try:
            self._maintain()
        except StoreUnavailableError as error:
            self._metrics.failed("maintenance", error)
            _log.warning("maintenance failed, retrying", problem=_first_line(error), in_s=_MAINTENANCE_S)
        else:
            self._alert()

    def _alert(self) -> None:
        """Send the findings.

        They are sent anew after each maintenance, so a failure needs no retry.
        """
        if self._alertmanager is None:
            return
        try:
            self._alertmanager.send(datetime.now(UTC))
        except (AlertmanagerError, StoreError) as error:
            self._metrics.failed("alerts", error)
            _log.warning("findings were not sent", problem=_first_line(error), in_s=_MAINTENANCE_S)

    def _maintain(self, min_minute: int | None = None) -> None:
        began = time.monotonic()
        now_ns = time.time_ns()
        closed, read_until_ns = self._progress(now_ns)
        with self._exclusive(), self._store.maintenance(now_ns) as maintenance:
            no_entries = ENTRY_ROWS.empty_table()
            clients = maintenance.clients_to_carry(closed)
            stored = maintenance.contributions(required_pairs(no_entries, clients))
            reconciled = reconcile(no_entries, stored, clients, closed=closed)
            maintenance.carry(reconciled if min_minute is None else reconciled.since(min_minute))
            last_minute = maintenance.read_until(read_until_ns, ended=self._once)
            maintenance.compute_hours_and_days(all_of_them=self._once)
            swept = maintenance.sweep()
            found = None
            if last_minute is not None:
                found = self._findings.find(
                    maintenance.connection,
                    last_minute,
                    at_once=self._once,
                    found_at=datetime.fromtimestamp(now_ns / _SECOND_NS, UTC),
                )
            if found is not None:
                counts = open_findings(maintenance.connection)
            maintenance.expire()
            backlog = maintenance.backlog()
        backlog |= self._store.pack(now_ns, all_of_them=self._once)
        seconds = time.monotonic() - began
        self._metrics.maintained(seconds=seconds, backlog=backlog)
        if found is not None:
            self._metrics.findings_open(counts)
        _log.info(
            "maintenance",
            carried_clients=len(reconciled.clients),
            rows=reconciled.rows.num_rows,
            **({} if found is None else _totals(found)),
            loads_swept=swept,
            seconds=round(seconds, 3),
        )

    def _progress_after(self, newest_ns: int | None) -> Progress:
        if newest_ns is not None:
            self._newest_ns = max(newest_ns, self._newest_ns or 0)
        return self._progress(time.time_ns())

    def _progress(self, now_ns: int) -> Progress:
        """Return how far pushes were read.

        The wall clock alone would be wrong during a backlog: pushes of the minutes in between are
        not read yet, so every client would be carried forward, found silent, and corrected later.
        So time advances only to the newest push that was read. Once the source has nothing left to
        read, the wall clock counts. Receivers write pushes late by up to the grace period, each at
        its own time. A run with ``--once`` ends at its newest push.
        """
        grace_ns = round(self._settings.grace_seconds * _SECOND_NS)
        if self._caught_up:
            return _before(now_ns - grace_ns)
        if self._newest_ns is None:
            return Progress(closed=0, read_until_ns=None)
        newest_ns = min(now_ns, self._newest_ns)
        if self._once:
            return Progress(closed=self._newest_ns // _MINUTE_NS, read_until_ns=newest_ns)
        return _before(newest_ns - grace_ns)

    def _report_rebuild(self, since_ns: int | None) -> None:
        """Log how much of a rebuild is done, by times of receipt."""
        if since_ns is None or self._goal_ns is None or self._newest_ns is None:
            return
        _log.info(
            "rebuilding",
            until=f"{datetime.fromtimestamp(self._newest_ns / _SECOND_NS, UTC):%Y-%m-%dT%H:%M:%SZ}",
            done_percent=done_percent(since_ns, self._newest_ns, self._goal_ns),
        )

    def _report_progress(self, query: StreamingQuery) -> None:
        """Report what Spark says of committed batches, once for each."""
        if not self._records_read:
            return
        recent = query.recentProgress
        for progress in recent:
            if progress["batchId"] not in self._records_read:
                continue
            self._metrics.spark_finished(progress["durationMs"])
            read = self._records_read.pop(progress["batchId"])
            if read is None:
                continue
            lost = sum(_offsets(source) for source in progress["sources"]) - read
            if lost > 0:
                self._metrics.offsets_missing(lost)
                _log.warning(
                    "Kafka offsets without a record: expired before they were read, or transaction markers",
                    offsets=lost,
                    batch=progress["batchId"],
                )
        # Spark keeps a few reports only. What it no longer has will not come.
        for batch_id in [number for number in self._records_read if recent and number < recent[0]["batchId"]]:
            del self._records_read[batch_id]


def done_percent(since_ns: int, reached_ns: int, goal_ns: int) -> int:
    """Return how much of a span of time was reached, from 0 to 100."""
    if goal_ns <= since_ns:
        return 100
    return max(0, min(100, 100 * (reached_ns - since_ns) // (goal_ns - since_ns)))


def _totals(found: FindingCounts) -> dict[str, int]:
    return {
        "findings_opened": sum(found.opened.values()),
        "findings_resolved": sum(found.resolved.values()),
        "findings_left_out": sum(found.left_out.values()),
    }


def _has_ended_within(query: StreamingQuery, seconds: int) -> bool:
    """Wait for the end of a query.

    Return whether it has ended, with an error or without.
    """
    try:
        return bool(query.awaitTermination(seconds))
    except PySparkException:
        # The caller asks for the error.
        return True


def _has_read_all(query: StreamingQuery) -> bool:
    """Return whether the source has nothing left to read."""
    status = query.status
    is_busy = status["isDataAvailable"] or status["isTriggerActive"]
    return not is_busy and query.lastProgress is not None


def _before(read_until_ns: int) -> Progress:
    return Progress(closed=read_until_ns // _MINUTE_NS - 1, read_until_ns=read_until_ns)


def _offsets(source: dict[str, Any]) -> int:
    start, end = (json.loads(source[name] or "null") or {} for name in ("startOffset", "endOffset"))
    return sum(
        last - (start.get(topic) or {}).get(partition, last)
        for topic, partitions in end.items()
        for partition, last in partitions.items()
    )


def rebuild(
    spark: SparkSession,
    store: Store,
    settings: RollupSettings,
    stop: threading.Event,
    *,
    since: int,
    metrics: RollupMetrics | None = None,
) -> int | None:
    """Delete the totals since a minute and compute them again from the source.

    The settings' checkpoint is not changed. A job that continues from it recognises the pushes.

    Args:
        settings: The configuration. The lake is not written again.
        since: First minute to rebuild, in minutes since the epoch.
        metrics: Gets what the job does. None: nobody reads them.

    Returns:
        The first minute that was rebuilt. It is later than ``since`` if the source begins later,
        because totals that can't be read again are kept. None if the source holds nothing.

    Raises:
        JobError: The rebuild was stopped or failed before its end. Repeat it.
    """
    store.migrate()
    held = sources.held(spark, settings)
    if held is None:
        return None
    # The next minute, because older pushes of the first one may be gone, and client clocks may be
    # ahead.
    minute = max(since, int(held.whole_since_ns + settings.max_ahead_s * _SECOND_NS) // _MINUTE_NS + 1)
    # Rounded up to a whole hour or day where minutes are no longer kept.
    minute = store.forget_since(minute)
    _log.info(
        "rebuilding",
        since=f"{datetime.fromtimestamp(minute * 60, UTC):%Y-%m-%dT%H:%MZ}",
        until=f"{datetime.fromtimestamp(held.newest_ns / _SECOND_NS, UTC):%Y-%m-%dT%H:%M:%SZ}",
    )
    with tempfile.TemporaryDirectory() as scratch:
        job = Job(spark, store, settings.model_copy(update={"lake": None}), stop, metrics=metrics)
        job.run_once(checkpoint=Path(scratch).as_uri(), min_minute=minute, newest_ns=held.newest_ns)
    if stop.is_set():
        raise JobError("the rebuild was stopped before its end: repeat it")
    return minute


def _first_line(error: BaseException) -> str:
    text = str(error)
    # Spark's error condition is somewhere below a Java stack trace.
    condition = _CONDITION.search(text)
    text = condition[0] if condition is not None else text.split("\n\tat ")[0]
    return f"{type(error).__name__}: {' '.join(text.split())[:_MAX_MESSAGE_CHARACTERS]}"
