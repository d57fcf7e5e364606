"""The driver's transaction for one batch. It alone makes the batch count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pyarrow as pa

from spark_streaming.postgres import clients, dead_letters, loads
from spark_streaming.postgres.coarse import mark
from spark_streaming.postgres.horizons import read_until
from spark_streaming.postgres.packing import Packing
from spark_streaming.postgres.partitions import Partitions
from spark_streaming.postgres.tables import EPOCH, GRAINS, MINUTES
from spark_streaming.postgres.values import BatchStatistics


class Batch:
    """Commits one batch.

    :meth:`Store.batch` creates it, and commits it or rolls it back.

    Args:
        connection: In a transaction that holds the store's lock.
        query_id: Spark's id of the query.
    """

    def __init__(self, connection: psycopg.Connection[Any], *, query_id: str, batch_id: int) -> None:
        self._cursor = connection.cursor()
        self._id = (query_id, batch_id)

    def split_clients(self, load_ids: Sequence[int]) -> list[str]:
        """Return the client instances that several loads have.

        Such loads must not be entered.
        """
        return clients.split(self._cursor, load_ids)

    def enter(self, load_ids: Sequence[int], minutes: Iterable[int]) -> None:
        """Let the loads of the attempts that won count.

        Args:
            minutes: The minutes of the loads since the epoch; at least the first one of each hour.

        Raises:
            StoreUnavailableError: A load is gone. Repeat the batch.
        """
        partitions = Partitions(self._cursor)
        late = loads.enter(self._cursor, load_ids, partitions)
        hour, day = GRAINS[1:]
        changed = {EPOCH + timedelta(minutes=minute) for minute in minutes}
        Packing(self._cursor, partitions).note_late({**late, MINUTES.name: changed})
        mark(self._cursor, hour, changed)
        mark(self._cursor, day, late[hour.name])

    def disconnected(self, ends_ns: Mapping[str, int]) -> None:
        """Record when connections of client instances ended, by client instance id."""
        clients.disconnect(self._cursor, ends_ns)

    def dead_letters(self, letters: pa.Table) -> None:
        """Insert ``DEAD_LETTER_ROWS``, beside those of loads."""
        dead_letters.put(self._cursor, letters, self._id)

    def without_dead_letter(self, positions: Iterable[str]) -> set[str]:
        """Return the positions in a source that no dead letter has."""
        return dead_letters.without(self._cursor, positions)

    def read_until(self, time_ns: int | None) -> None:
        """Record that pushes received until this time were read. It never decreases."""
        read_until(self._cursor, time_ns)

    def record(self, statistics: BatchStatistics) -> None:
        """Add the batch to the ledger."""
        newest = statistics.newest_received_at_ns
        self._cursor.execute(
            "INSERT INTO ledger (query_id, batch_id, committed_at, pushes, repeats, points, rows, "
            "dead_letters, left_out, overflowed, newest_received_at, duration_s) "
            "VALUES (%s, %s, clock_timestamp(), %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                *self._id,
                statistics.pushes,
                statistics.repeats,
                statistics.points,
                statistics.rows,
                statistics.dead_letters,
                statistics.left_out,
                statistics.overflowed,
                _time(newest),
                statistics.duration_s,
            ),
        )


def _time(time_ns: int | None) -> datetime | None:
    return None if time_ns is None else EPOCH + timedelta(microseconds=time_ns // 1000)
