"""Transaction of one batch: push ids, dead letters and the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql

from spark_streaming.postgres.series_cache import SeriesCache
from spark_streaming.postgres.staging import stage, storable
from spark_streaming.postgres.transaction import DAY, DAYS_AHEAD, EPOCH, TIME, Transaction
from spark_streaming.postgres.values import BatchStatistics
from spark_streaming.settings import RetentionSettings

__all__ = ["DEAD_LETTER_ROWS", "Batch"]

#: Payloads that could not be read: source, reason, length, and the part that is kept.
DEAD_LETTER_ROWS: Final = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("position", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
_DAY_NS: Final = 86_400_000_000_000


class Batch(Transaction):
    """Writes one batch. :meth:`Store.batch` creates, commits or rolls it back.

    Args:
        connection: In a transaction that holds the store's lock and has inserted the ledger row.
        retention: How long rows are kept.
        series_cache: Series that are known to be in the database.
        query_id: Spark's id of the query.
        batch_id: Number of the batch in the query.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        *,
        retention: RetentionSettings,
        series_cache: SeriesCache,
        query_id: str,
        batch_id: int,
    ) -> None:
        super().__init__(connection, retention=retention, series_cache=series_cache)
        self._id = (query_id, batch_id)

    def register_pushes(self, push_ids: pa.Array, received_at_ns: pa.Array) -> set[str]:
        """Insert push ids, and return those that were inserted before.

        A push is compared with those received from the day before it to the day after it.

        Args:
            push_ids: Distinct strings.
            received_at_ns: Time of receipt of each (int64).
        """
        days = np.asarray(received_at_ns.to_numpy(zero_copy_only=False)) // _DAY_NS
        # Clamped, so that wrong clocks create no partitions. Their pushes still count once.
        today = (self._today - EPOCH).days
        days = np.clip(days, today - self._retention.hour_days, today + DAYS_AHEAD)
        table = pa.table({"push_id": push_ids, "received_at": pa.array(days * 86_400_000_000).cast(TIME)})
        stage(self._cursor, "staged_push", table)
        # Without statistics the planner assumes a few thousand rows and chooses a nested loop.
        self._cursor.execute("ANALYZE pg_temp.staged_push")
        found: set[str] = set()
        for number in np.unique(days).tolist():
            day = EPOCH + timedelta(days=number)
            self._partitions.ensure("push", [day])
            # Constants instead of parameters, so that the planner prunes to three partitions.
            span = {
                "day": sql.Literal(day),
                "since": sql.Literal(day - DAY),
                "end": sql.Literal(day + 2 * DAY),
            }
            digest = sql.SQL("encode(substring(sha256(convert_to(s.push_id, 'UTF8')) FOR 16), 'hex')::uuid")
            self._cursor.execute(
                sql.SQL(
                    "DELETE FROM pg_temp.staged_push s USING push p WHERE p.push_id = {digest} AND "
                    "s.received_at = {day} AND p.received_at >= {since} AND p.received_at < {end} "
                    "RETURNING s.push_id"
                ).format(digest=digest, **span)
            )
            found.update(push_id for (push_id,) in self._cursor)
            self._cursor.execute(
                sql.SQL(
                    "INSERT INTO push (push_id, received_at) SELECT {digest}, s.received_at "
                    "FROM pg_temp.staged_push s WHERE s.received_at = {day}"
                ).format(digest=digest, **span)
            )
        return found

    def dead_letters(self, letters: pa.Table) -> None:
        """Insert ``DEAD_LETTER_ROWS``."""
        texts = [storable(letters[name]).to_pylist() for name in ("source", "position", "reason")]
        others = [letters[name].to_pylist() for name in ("bytes", "payload")]
        with self._cursor.copy(
            "COPY dead_letter (query_id, batch_id, source, position, reason, bytes, payload) "
            "FROM STDIN (FORMAT binary)"
        ) as copy:
            copy.set_types(["text", "int8", "text", "text", "text", "int8", "bytea"])
            for letter in zip(*texts, *others, strict=True):
                copy.write_row((*self._id, *letter))

    def without_dead_letter(self, positions: Iterable[str]) -> set[str]:
        """Return the positions in a source that no dead letter has."""
        asked = set(positions)
        if asked:
            known = self._cursor.execute(
                "SELECT position FROM dead_letter WHERE position = ANY(%s)", [sorted(asked)]
            )
            asked.difference_update(position for (position,) in known)
        return asked

    def record(self, statistics: BatchStatistics) -> None:
        """Write the statistics into the batch's ledger row."""
        newest = statistics.newest_received_at_ns
        self._cursor.execute(
            "UPDATE ledger SET committed_at = clock_timestamp(), pushes = %s, repeats = %s, "
            "points = %s, rows = %s, dead_letters = %s, left_out = %s, newest_received_at = %s, "
            "duration_s = %s WHERE (query_id, batch_id) = (%s, %s)",
            (
                statistics.pushes,
                statistics.repeats,
                statistics.points,
                statistics.rows,
                statistics.dead_letters,
                self._left_out,
                None if newest is None else EPOCH + timedelta(microseconds=newest // 1000),
                statistics.duration_s,
                *self._id,
            ),
        )
