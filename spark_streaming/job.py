"""The job: runs batches as pushes come, and the tick once a minute, until it is told to stop.

Owns the life of the query, what happens when a batch fails, and what time it is for the clients that pushed
nothing. A batch that fails is tried again until it is in: nothing is passed over.
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
from spark_streaming.batch import Batches
from spark_streaming.contributions import CodecError, reconcile, required_pairs
from spark_streaming.findings import find
from spark_streaming.postgres import Store, StoreError, StoreUnavailableError, read_again_since
from spark_streaming.rows import ENTRY_ROWS
from spark_streaming.session import has_ended
from spark_streaming.settings import RollupSettings

__all__ = ["Job", "JobError", "rebuild"]

_MINUTE_NS: Final = 60_000_000_000
_SECOND_NS: Final = 1_000_000_000
_MAINTENANCE_S: Final = 60.0
_POLL_S: Final = 0.1
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_TRIES_ONCE: Final = 4
_MOST_SHOWN: Final = 400
#: What a file system can't give now it may give later; after so many tries the file is taken for damaged.
_TRIES_TO_READ: Final = 3
_UNREADABLE: Final = re.compile(r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (\S+)\.\s")
_LOCAL: Final = re.compile("^file:/+")
_CONDITION: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\] [^\n]+")

_log = structlog.get_logger()


class JobError(Exception):
    """The job can't go on; the message says why."""


def _lasting(error: BaseException) -> bool:
    """Whether the same would happen again."""
    return isinstance(error, JobError | StoreError) and not isinstance(error, StoreUnavailableError)


class Job:
    """A run over a source.

    Args:
        spark: The session.
        store: Where totals go, migrated.
        settings: Everything else.
        stop: When it is set, the run ends: a batch under way is abandoned, and comes again next time.
    """

    def __init__(
        self, spark: SparkSession, store: Store, settings: RollupSettings, stop: threading.Event
    ) -> None:
        self._spark = spark
        self._store = store
        self._settings = settings
        self._stop = stop
        # The store's connection is one: a batch, in Spark's thread, and the tick take turns.
        self._turn = threading.Lock()
        self._newest_ns: int | None = None
        self._once = False
        self._caught_up = False
        self._failure: BaseException | None = None
        self._committed = 0
        # By batch, until Spark tells its offsets. It counts rows once for each pass over them.
        self._read: dict[int, int] = {}
        # What was said of files of the batch under way that can't be read, once for each try.
        self._unreadable: dict[str, list[str]] = {}

    def run(self) -> None:
        """Take pushes in until told to stop.

        Raises:
            JobError: What is stored is another version's, or Spark has ended.
            StoreError: PostgreSQL can't be used.
        """
        self._run(self._settings.checkpoint_path)

    def run_once(self, *, checkpoint: str | None = None, min_minute: int | None = None) -> None:
        """Take in everything there is, and end with a tick.

        Args:
            checkpoint: Another one than the settings', for a rebuild.
            min_minute: Leave out what is older, for a rebuild; pushes are read again from
                :func:`read_again_since` on.

        Raises:
            JobError: A batch failed several times, or can't be taken in, or Spark has ended.
            StoreError: PostgreSQL can't be used.
        """
        self._once = True
        self._run(checkpoint or self._settings.checkpoint_path, min_minute)

    def _run(self, checkpoint: str, min_minute: int | None = None) -> None:
        since = None if min_minute is None else int(read_again_since(min_minute).timestamp()) * _SECOND_NS
        pause, tries, committed, migrated = _FIRST_PAUSE_S, 0, 0, False
        while not self._stop.is_set():
            try:
                if not migrated:
                    for name in self._store.migrate():
                        _log.info("migrated", migration=name)
                    migrated = True
                batches = Batches(
                    self._spark,
                    self._store,
                    self._settings,
                    closed_at=self._closed_with,
                    id_key=self._store.id_key(),
                    min_minute=min_minute,
                )
                self._watch(self._begin(batches, checkpoint, since))
                if self._once and not self._stop.is_set():
                    self._maintain()
                return
            except (PySparkException, Py4JError, StoreUnavailableError, OSError) as error:
                if self._stop.is_set():
                    return
                if self._failure is not None and _lasting(self._failure):
                    raise self._failure from None
                if has_ended(self._spark):
                    raise JobError("Spark's process has ended, or Spark was stopped: start again") from None
                failure = self._failure or error
            if self._committed > committed:
                pause, tries, committed = _FIRST_PAUSE_S, 0, self._committed
            problem, wait = _first_line(failure), _FIRST_PAUSE_S
            if not self._count_unreadable(failure):
                tries, wait, pause = tries + 1, pause, min(2 * pause, _LONGEST_PAUSE_S)
            if self._once and tries >= _TRIES_ONCE:
                raise JobError(f"a batch failed {tries} times, nothing of it is in: {problem}")
            _log.warning("batch failed, it is tried again", problem=problem, in_s=wait)
            self._stop.wait(wait)

    def _count_unreadable(self, failure: BaseException) -> bool:
        """Count a try of a file that can't be read; false if it is of none, or of one left out already."""
        found = _UNREADABLE.search(str(failure))
        if found is None:
            return False
        # As Hadoop writes it into the rows' column.
        file = _LOCAL.sub("file:/", found[1])
        if file in self._damaged():
            return False
        self._unreadable.setdefault(file, []).append(_first_line(failure))
        return True

    def _damaged(self) -> dict[str, str]:
        """The files of the batch under way that are left out, with the reasons."""
        return {
            file: problems[-1]
            for file, problems in self._unreadable.items()
            if len(problems) >= _TRIES_TO_READ
        }

    def _begin(self, batches: Batches, checkpoint: str, since_ns: int | None) -> StreamingQuery:
        self._failure = None
        self._caught_up = False
        # Of batches before.
        self._read.clear()

        def take_in(pushes: DataFrame, batch_id: int) -> None:
            query_id = self._spark.sparkContext.getLocalProperty("sql.streaming.queryId")
            assert query_id is not None  # noqa: S101 -- Spark sets it for each batch
            damaged = self._damaged()
            try:
                with self._in_turn():
                    read = batches.roll_up(pushes, query_id, batch_id, damaged=damaged)
            except BaseException as error:
                # Spark makes one long text of it.
                self._failure = error
                raise
            self._committed += 1
            if read is not None and self._settings.source == "kafka":
                self._read[batch_id] = read
            if damaged:
                _log.warning("damaged files are passed over", files=sorted(damaged))
            self._unreadable.clear()

        pushes = sources.stream(self._spark, self._settings, since_ns=since_ns)
        if damaged := sorted(self._damaged()):
            # Spark then does not open them.
            pushes = pushes.where(~f.col("file").isin(damaged))
        writer = pushes.writeStream.foreachBatch(take_in).option("checkpointLocation", checkpoint)
        if self._once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(
            processingTime=f"{round(self._settings.trigger_seconds * 1000)} milliseconds"
        ).start()

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        with self._turn:
            try:
                yield
            except CodecError as error:
                # The next try would find the same bytes.
                raise JobError(str(error)) from None

    def _watch(self, query: StreamingQuery) -> None:
        """Return when the query has ended by itself or was stopped; raise what it failed with."""
        due = time.monotonic() + _MAINTENANCE_S
        try:
            while query.isActive and not self._stop.wait(_POLL_S):
                self._tell_lost(query)
                if not self._once and time.monotonic() >= due:
                    due = time.monotonic() + _MAINTENANCE_S
                    status = query.status
                    waiting = status["isDataAvailable"] or status["isTriggerActive"]
                    self._caught_up = query.lastProgress is not None and not waiting
                    self._try_maintenance()
        finally:
            query.stop()
        self._tell_lost(query)
        error = query.exception()
        if error is not None:
            raise error

    def _try_maintenance(self) -> None:
        try:
            self._maintain()
        except StoreUnavailableError as error:
            _log.warning("maintenance failed, retrying", problem=_first_line(error), in_s=_MAINTENANCE_S)

    def _maintain(self) -> None:
        began = time.monotonic()
        now_ns = time.time_ns()
        closed = self._closed(now_ns)
        with self._in_turn(), self._store.maintenance(now_ns) as maintenance:
            nothing = ENTRY_ROWS.empty_table()
            clients = maintenance.clients_to_carry(closed)
            stored = maintenance.contributions(required_pairs(nothing, clients))
            reconciled = reconcile(nothing, stored, clients, closed=closed)
            maintenance.merge(maintenance.sums(reconciled.rows))
            maintenance.put_contributions(reconciled.contributions)
            maintenance.put_clients(reconciled.clients, nothing)
            maintenance.compute_hours_and_days(all_of_them=self._once)
            found = find(
                maintenance.connection,
                self._settings.findings,
                datetime.fromtimestamp(now_ns / _SECOND_NS, UTC),
            )
            maintenance.expire()
        _log.info(
            "maintenance",
            carried_clients=len(reconciled.clients),
            rows=reconciled.rows.num_rows,
            findings_opened=sum(found.opened.values()),
            findings_resolved=sum(found.resolved.values()),
            findings_left_out=sum(found.left_out.values()),
            seconds=round(time.monotonic() - began, 3),
        )

    def _closed_with(self, newest_ns: int) -> int:
        self._newest_ns = max(newest_ns, self._newest_ns or 0)
        return self._closed(time.time_ns())

    def _closed(self, now_ns: int) -> int:
        """Up to which minute clients are carried on that pushed nothing.

        Not by the wall clock alone: while there is a backlog, the pushes of the minutes between are only not
        read yet, and every client would be carried, found silent, and corrected again. So time goes as far as
        what was read; when the source has nothing more to read, silence is the clients' own, and the wall
        clock counts. A run over everything there is ends where its newest push ends.
        """
        if self._caught_up:
            return int(now_ns - self._settings.grace_seconds * _SECOND_NS) // _MINUTE_NS - 1
        if self._newest_ns is None:
            return 0
        if self._once:
            return self._newest_ns // _MINUTE_NS
        behind = min(now_ns, self._newest_ns) - self._settings.grace_seconds * _SECOND_NS
        return int(behind) // _MINUTE_NS - 1

    def _tell_lost(self, query: StreamingQuery) -> None:
        if not self._read:
            return
        for progress in query.recentProgress:
            read = self._read.pop(progress["batchId"], None)
            if read is None:
                continue
            lost = sum(_offsets(one) for one in progress["sources"]) - read
            if lost > 0:
                _log.warning(
                    "Kafka offsets without a record: expired before they were read, or of transactions",
                    offsets=lost,
                    batch=progress["batchId"],
                )


def _offsets(source: dict[str, Any]) -> int:
    start, end = (json.loads(source[name] or "null") or {} for name in ("startOffset", "endOffset"))
    return sum(
        last - (start.get(topic) or {}).get(partition, last)
        for topic, partitions in end.items()
        for partition, last in partitions.items()
    )


def rebuild(
    spark: SparkSession, store: Store, settings: RollupSettings, stop: threading.Event, *, since: int
) -> int | None:
    """Forget what was rolled up since a minute, and roll it up again from what the source still holds.

    The settings' checkpoint is left alone: a job that goes on from it recognises the pushes.

    Args:
        spark: The session.
        store: What is rebuilt.
        settings: The source. The lake is not written again.
        stop: As for a job.
        since: The minute from which on, in minutes since the epoch.

    Returns:
        The minute from which on it was done, later than ``since`` where the source begins later, as nothing
        must be forgotten that can't be read again; None when the source holds nothing.

    Raises:
        JobError: It was stopped or failed half-way: do it again.
    """
    store.migrate()
    whole_ns = sources.whole_since(spark, settings)
    if whole_ns is None:
        return None
    # The minute of the oldest push may have had others, and a client's clock may be ahead.
    minute = max(since, int(whole_ns + settings.max_ahead_s * _SECOND_NS) // _MINUTE_NS + 1)
    # Where only hours or days are kept, the whole of the first one goes.
    minute = store.forget_since(minute)
    with tempfile.TemporaryDirectory() as scratch:
        job = Job(spark, store, settings.model_copy(update={"lake": None}), stop)
        job.run_once(checkpoint=Path(scratch).as_uri(), min_minute=minute)
    if stop.is_set():
        raise JobError("the rebuild was stopped half-way: do it again")
    return minute


def _first_line(error: BaseException) -> str:
    text = str(error)
    # Spark's own words for it stand somewhere below a Java stack.
    condition = _CONDITION.search(text)
    text = condition[0] if condition is not None else text.split("\n\tat ")[0]
    return f"{type(error).__name__}: {' '.join(text.split())[:_MOST_SHOWN]}"
