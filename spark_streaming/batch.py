"""Processes a batch: decodes pushes and adds them to PostgreSQL.

A batch is one transaction. The store keeps the state between batches. The job starts and retries
batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_streaming.catalogue import plan
from spark_streaming.contributions import reconcile, required_pairs, since, split_by_client
from spark_streaming.lake import Lake
from spark_streaming.metrics import RollupMetrics
from spark_streaming.poison import MAX_ISOLATED, first_failing, is_data_error
from spark_streaming.postgres import DEAD_LETTER_ROWS, Batch, BatchStatistics, IdKey, Store
from spark_streaming.rows import BUCKET_ROWS, ENTRY_ROWS, MAX_TOTAL, ROLLUP_ROWS, SERIES_ROWS
from spark_streaming.series_hashes import register_key, replace_hashes
from spark_streaming.settings import RollupSettings

__all__ = ["BatchError", "Batches", "Progress"]

_MINUTE_NS: Final = 60_000_000_000
_SECOND_NS: Final = 1_000_000_000

#: Dead letters of a batch that keep their payload, and bytes of each payload. All keep their
#: reason.
_MAX_PAYLOADS: Final = 100
_MAX_PAYLOAD_BYTES: Final = 65_536

#: Points reconciled at once. Each takes about 200 bytes.
_RECONCILED_POINTS: Final = 400_000

#: A rebuild also reads so many minutes before its first one, because counts continue for three push
#: intervals of at most an hour. What they add to minutes before the first one is left out.
_WARM_UP_MINUTES: Final = 3 * 60 + 1

#: Most new series that are selected by a list of hashes. A longer list costs more than it saves.
_MAX_SELECTED_SERIES: Final = 1000

_HASH: Final = [pa.field("series_high", pa.int64()), pa.field("series_low", pa.int64())]
_NO_HISTOGRAMS: Final = pa.schema([*ROLLUP_ROWS, *_HASH]).empty_table().drop(["series_id", "fleet_id"])
_NO_BUCKETS: Final = pa.schema([*BUCKET_ROWS, *_HASH]).empty_table().drop(["series_id"])

Integers = npt.NDArray[np.int64]

_log = structlog.get_logger()


class BatchError(Exception):
    """The source changed while a batch was read. Nothing was committed."""


class Progress(NamedTuple):
    """How far pushes were read.

    Attributes:
        closed: The last complete minute, up to which silent clients are carried forward.
        read_until_ns: Pushes received until this time were read; None if that is unknown.
    """

    closed: int
    read_until_ns: int | None


class _TrialEndedError(Exception):
    """Rolls back a trial run that succeeded."""


class Batches:
    """Processes the batches of a streaming query.

    Args:
        spark: The session.
        store: Destination of the totals.
        settings: The configuration.
        progress_at: Maps the newest time of receipt in a batch (ns) to how far pushes were read.
        id_key: The key of the store's series hashes.
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
        progress_at: Callable[[int], Progress],
        id_key: IdKey,
        metrics: RollupMetrics,
        min_minute: int | None = None,
    ) -> None:
        self._metrics = metrics
        self._stages = metrics.stages()
        self._spark = spark
        self._store = store
        self._source = settings.source
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
        self._arguments = (
            *map(f.col, ("otlp", "client_instance_id", "received_at_ns")),
            f.lit(text),
            f.lit(id_key.key_id),
        )

    def roll_up(
        self, pushes: DataFrame, query_id: str, batch_id: int, *, damaged: Mapping[str, str] | None = None
    ) -> int | None:
        """Process one batch, unless it was committed before.

        Args:
            pushes: Columns as in :mod:`spark_streaming.sources`.
            query_id: Spark's id of the query, which the checkpoint keeps.
            batch_id: Number of the batch in the query.
            damaged: Unreadable files of the batch and empty ones, with the reasons.

        Returns:
            The number of pushes read, with repeats. None if the batch was committed before.

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
                        self._process(
                            batch, selected, query_id, batch_id, time.monotonic(), isolated, trial=True
                        )
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
            statistics = self._process(batch, pushes, query_id, batch_id, began, isolated)
            damaged_files = sorted(batch.without_dead_letter(damaged))
            for file in damaged_files:
                reason = damaged[file]
                letter = [[self._source], [file], [reason], [0], [b""]]
                batch.dead_letters(pa.table(letter, schema=DEAD_LETTER_ROWS))
            self._stages.enter("commit")
        seconds = time.monotonic() - began
        newest = statistics.newest_received_at_ns
        self._metrics.batch_committed(
            pushes=statistics.pushes,
            repeats=statistics.repeats,
            points=statistics.points,
            entries=statistics.entries,
            rows=statistics.rows,
            # The driver is the only writer.
            loads=1 if statistics.rows else 0,
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
            seconds=round(seconds, 3),
            lag_s=None if newest is None else round((time.time_ns() - newest) / _SECOND_NS, 1),
        )
        return statistics.pushes + statistics.repeats + len(isolated)

    def _begin(self, query_id: str, batch_id: int) -> AbstractContextManager[Batch | None]:
        self._stages.enter("begin")
        return self._store.batch(query_id, batch_id)

    def _process(
        self,
        batch: Batch,
        pushes: DataFrame,
        query_id: str,
        batch_id: int,
        began: float,
        isolated: Mapping[str, str],
        *,
        trial: bool = False,
    ) -> BatchStatistics:
        self._stages.enter("decode")
        if isolated:
            letters = pa.table({"position": list(isolated), "reason": list(isolated.values())})
            if not trial:
                batch.dead_letters(self._dead_letters(pushes, letters))
            without = self._spark.createDataFrame(letters.select(["position"]))
            pushes = pushes.join(f.broadcast(without), "position", "left_anti")
        decoded = self._entries(pushes)
        self._stages.enter("deduplicate")
        pushes_read, repeated = _repeats(decoded, batch)
        if repeated:
            decoded = decoded.filter(pc.invert(pc.is_in(decoded["position"], repeated)))
            positions = self._spark.createDataFrame(pa.table({"position": repeated}))
            pushes = pushes.join(f.broadcast(positions), "position", "left_anti")
        dead = decoded.filter(pc.is_valid(decoded["reason"]))
        newest = pc.max(decoded["received_at_ns"]).as_py()
        decoded = _since(decoded, self._first_minute)
        entries = decoded.filter(pc.is_valid(decoded["client_instance_id"]))
        rows = ROLLUP_ROWS.empty_table()
        if entries.num_rows:
            histograms = _total(decoded["histograms"])
            rows = self._merge(batch, pushes, entries, newest=newest, histograms=histograms)
        self._stages.enter("write")
        if dead.num_rows:
            batch.dead_letters(self._dead_letters(pushes, dead))
        if self._lake is not None and not trial:
            self._stages.enter("lake")
            self._lake.write(pushes, rows, query_id, batch_id)
        statistics = BatchStatistics(
            pushes=pushes_read - len(repeated),
            repeats=len(repeated),
            points=_total(_since(decoded, self._min_minute)["points"]),
            entries=entries.num_rows,
            rows=rows.num_rows,
            dead_letters=dead.num_rows + len(isolated),
            newest_received_at_ns=newest,
            duration_s=time.monotonic() - began,
        )
        batch.record(statistics)
        return statistics

    def _entries(self, pushes: DataFrame) -> pa.Table:
        """Decode pushes into entries, with the reason of each that can't be decoded."""
        push_columns = ["push_id", "received_at_ns", "terminating", "push_interval_ms", "position"]
        reason = f.when(f.col("empty"), "the record has no value").otherwise(f.col("decoded.error"))
        read = pushes.select(
            *push_columns,
            f.col("otlp").isNull().alias("empty"),
            f.call_function("otlp_entries", *self._arguments).alias("decoded"),
        ).select(
            *push_columns,
            f.col("decoded.fallback").alias("fallback"),
            reason.alias("reason"),
            f.explode_outer("decoded.entries").alias("entry"),
        )
        # A push without entries still counts as a push of the instance that the source names.
        instance = f.coalesce("entry.client_instance_id", "fallback")
        replaced: dict[str, Column] = {
            "time_ns": f.coalesce("entry.time_ns", "received_at_ns"),
            "minute": f.coalesce("entry.minute", f.floor(f.col("received_at_ns") / _MINUTE_NS)),
            "client_instance_id": instance,
            "pushes": f.coalesce("entry.pushes", f.lit(1)),
            "points": f.coalesce("entry.points", f.lit(0)),
        }
        names = [name for name in ENTRY_ROWS.names if name not in (*push_columns, "client_key")]
        return read.select(
            *push_columns,
            "reason",
            *(replaced.get(name, f.col(f"entry.{name}")).alias(name) for name in names),
            "entry.histograms",
        ).toArrow()

    def _merge(
        self, batch: Batch, pushes: DataFrame, entries: pa.Table, *, newest: int, histograms: int
    ) -> pa.Table:
        """Reconcile entries, merge the result into the totals, and return it."""
        histogram_rows, buckets = _NO_HISTOGRAMS, _NO_BUCKETS
        if histograms:
            self._stages.enter("histograms")
            histogram_rows, buckets = self._histograms(pushes, histograms)
        self._stages.enter("series")
        entries, histogram_rows, buckets = replace_hashes(
            _with_client_keys(batch, entries),
            histogram_rows,
            buckets,
            lambda high, low: self._series_ids(batch, pushes, high, low),
        )
        entries = _cast(entries, ENTRY_ROWS)
        self._stages.enter("look_up")
        clients = batch.clients(entries["client_key"].unique().to_pylist())
        stored = batch.contributions(self._kept(required_pairs(entries, clients)))
        progress = self._progress_at(newest)
        self._stages.enter("reconcile")
        parts, states = [], []
        # PostgreSQL stores one part while the next is reconciled. Until all are stored, only the
        # writer thread may use the batch.
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="writer") as writer:
            written = [writer.submit(batch.add_client_minutes, _since(entries, self._min_minute))]
            for part in split_by_client(entries, points=_RECONCILED_POINTS):
                keys = part["client_key"].unique().to_pylist()
                states_before = {key: clients[key] for key in keys if key in clients}
                reconciled = reconcile(part, stored, states_before, closed=progress.closed)
                parts.append(_since(reconciled.rows, self._min_minute))
                states += reconciled.clients
                contributions = reconciled.contributions
                if self._min_minute is not None:
                    contributions = since(contributions, self._min_minute)
                written.append(writer.submit(batch.put_contributions, contributions))
            written.append(writer.submit(batch.put_clients, states, entries))
            parts.append(_since(_cast(histogram_rows, ROLLUP_ROWS), self._min_minute))
            rows = pa.concat_tables(parts)
            sums = batch.sums(rows)
            self._stages.enter("write")
        for future in written:
            future.result()
        batch.merge(sums)
        batch.read_until(progress.read_until_ns)
        batch.merge_buckets(_since(_cast(buckets, BUCKET_ROWS), self._min_minute))
        return rows

    def _is_kept(self, minute: int) -> bool:
        return self._min_minute is None or minute >= self._min_minute

    def _kept(self, pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
        """Return the pairs of client and minute that may change, because others are left out."""
        return {pair for pair in pairs if self._is_kept(pair[1])}

    def _histograms(self, pushes: DataFrame, expected: int) -> tuple[pa.Table, pa.Table]:
        """Return rows and buckets of histograms, with series hashes."""
        histograms = pushes.select(f.inline(f.call_function("otlp_histograms", *self._arguments)))
        rows = (
            histograms.groupBy("minute", "series_high", "series_low", "breakdown")
            .agg(
                _saturated("points"),
                f.sum("sum").alias("sum"),
                f.min("min").alias("min"),
                f.max("max").alias("max"),
                f.count("*").alias("histograms"),
            )
            .withColumns(
                {
                    "spread": f.lit(None).cast("short"),
                    "observations": f.lit(0),
                    "pushed_sum": f.lit(None).cast("double"),
                }
            )
            .toArrow()
        )
        buckets = (
            histograms.select("minute", "series_high", "series_low", f.inline("buckets"))
            .groupBy("minute", "series_high", "series_low", "lower", "upper")
            .agg(_saturated("count"))
        )
        _require(_total(rows["histograms"]), expected, "histograms")
        return rows, buckets.toArrow()

    def _series_ids(
        self, batch: Batch, pushes: DataFrame, high: Integers, low: Integers
    ) -> tuple[Integers, Integers]:
        """Return the series and fleet ids of hashes. Adds new series."""
        found = batch.find_series(high, low)
        unknown = np.flatnonzero(~found.known)
        if len(unknown):
            series = pushes.select(f.inline(f.call_function("otlp_series", *self._arguments)))
            if len(unknown) <= _MAX_SELECTED_SERIES:
                series = series.where(f.col("series_high").isin(high[unknown].tolist()))
            added = series.dropDuplicates(["series_high", "series_low"]).toArrow()
            if folded := batch.add_series(_cast(added, SERIES_ROWS)):
                _log.warning("series with too many reasons or errors added up as other", series=folded)
            found = batch.find_series(high, low)
            _require(int(found.known.sum()), len(high), "series")
        return found.series, found.fleet

    def _dead_letters(self, pushes: DataFrame, dead: pa.Table) -> pa.Table:
        wanted = dead.select(["position", "reason"]).append_column(
            "kept", pa.array(np.arange(dead.num_rows) < _MAX_PAYLOADS)
        )
        payload = f.when(f.col("kept"), f.substring("otlp", 1, _MAX_PAYLOAD_BYTES))
        found = (
            pushes.join(f.broadcast(self._spark.createDataFrame(wanted)), "position")
            .select(
                f.lit(self._source).alias("source"),
                "position",
                "reason",
                f.coalesce(f.octet_length("otlp"), f.lit(0)).alias("bytes"),
                f.coalesce(payload, f.lit(b"")).alias("payload"),
            )
            .toArrow()
        )
        _require(found.num_rows, dead.num_rows, "payloads that can't be read")
        return _cast(found, DEAD_LETTER_ROWS)


def _since(rows: pa.Table, minute: int | None) -> pa.Table:
    """Return the rows from a minute on."""
    return rows if minute is None else rows.filter(pc.greater_equal(rows["minute"], minute))


def _with_client_keys(batch: Batch, entries: pa.Table) -> pa.Table:
    """Add the column ``client_key``."""
    instances = entries["client_instance_id"].combine_chunks().dictionary_encode()
    texts = instances.dictionary.to_pylist()
    keys = batch.client_keys(texts)
    column = pa.array([keys[text] for text in texts], pa.int64()).take(instances.indices)
    return entries.append_column("client_key", column)


def _repeats(decoded: pa.Table, batch: Batch) -> tuple[int, pa.Array]:
    """Return the number of pushes, and the positions of repeated ones."""
    pushes = (
        decoded.select(["position", "push_id", "received_at_ns"])
        .group_by("position", use_threads=False)
        .aggregate([("push_id", "first"), ("received_at_ns", "first")])
        .sort_by([("received_at_ns_first", "ascending"), ("position", "ascending")])
    )
    once = pushes.group_by("push_id_first", use_threads=False).aggregate(
        [("position", "first"), ("received_at_ns_first", "first")]
    )
    known = batch.register_pushes(
        once["push_id_first"].combine_chunks(), once["received_at_ns_first_first"].combine_chunks()
    )
    fresh = once.filter(pc.invert(pc.is_in(once["push_id_first"], pa.array(known, pa.string()))))
    repeated = pushes.filter(pc.invert(pc.is_in(pushes["position"], fresh["position_first"])))
    return pushes.num_rows, repeated["position"].combine_chunks()


def _saturated(name: str) -> Column:
    """Sum counts up to ``MAX_TOTAL``. Spark's plain sum fails on an overflow."""
    limit = f.lit(MAX_TOTAL)
    return f.least(f.coalesce(f.try_sum(name), limit), limit).alias(name)


def _require(found: int, expected: int, what: str) -> None:
    if found != expected:
        raise BatchError(
            f"read {found} {what} instead of {expected}, because a file or records of the batch were "
            "deleted; the batch is read again"
        )


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([table[field.name].cast(field.type) for field in schema], schema=schema)


def _total(column: Any) -> int:
    return int(pc.sum(column).as_py() or 0)
