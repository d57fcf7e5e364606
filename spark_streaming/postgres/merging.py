"""Merges the rows of closed minutes: those of several loads into one for each key.

Each batch appends a row for each key of a minute. With a batch every ten seconds a minute has some
six of them, which every query and packing would add up again. Every ten minutes the rows of series
are put in order, because the rows of a series are neighbours then, and a query finds them on few
pages. Rows of pending loads stay as they are, and so do rows that come later.

Merging runs beside batches, before packing. It only touches minutes that no window is packed of.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg import sql

from spark_streaming.postgres.pack_window import names
from spark_streaming.postgres.packed import counting
from spark_streaming.postgres.packing import Packing
from spark_streaming.postgres.partitions import Partitions
from spark_streaming.postgres.tables import EPOCH, MINUTES, SERIES, TOTALS, Totals

#: Load id of merged rows. Loads are numbered from 1, so that later rows are newer.
MERGED_LOAD: Final = 0
#: How long the rows of a series are neighbours. An hour has a whole number of these times.
NEIGHBOURS: Final = timedelta(minutes=10)
_MINUTE: Final = MINUTES.length
#: Older minutes are left to packing. A job that catches up writes hardly more than one load a
#: minute.
_MAX_AGE: Final = timedelta(hours=1)
#: Fewer rows for each key are not worth a merge.
_MIN_ROWS: Final = 2
#: Of a minute with many keys, one in so many is counted. That tells rows by key well enough.
_ONE_OF: Final = 16
_ENOUGH_KEYS: Final = 500


class Merging:
    """Merges minutes in one transaction.

    Args:
        cursor: In a transaction that shares the lock of packing and holds that of plans, so that no
            window is planned meanwhile.
        worth: Whether a kind was worth merging, by its name. Empty at first, and kept between
            transactions, because counting costs a quarter of what merging does.
    """

    def __init__(self, cursor: psycopg.Cursor[Any], partitions: Partitions, worth: dict[str, bool]) -> None:
        self._cursor = cursor
        self._partitions = partitions
        self._worth = worth

    def merge_next(self, now_ns: int) -> datetime | None:
        """Merge the oldest closed minute that was not merged; return it, if there is one."""
        packing = Packing(self._cursor, self._partitions)
        closed = packing.closed(now_ns)
        ((merged_until,),) = self._cursor.execute("SELECT minutes_merged_until FROM horizon")
        minute = MINUTES.beginning(max(packing.until(MINUTES), closed - _MAX_AGE))
        if merged_until is not None:
            minute = max(minute, merged_until)
        if minute + _MINUTE > closed:
            return None
        self.merge(minute, packing.until(MINUTES))
        self._cursor.execute("UPDATE horizon SET minutes_merged_until = %s", [minute + _MINUTE])
        return minute

    def merge(self, minute: datetime, packed_until: datetime) -> None:
        """Merge a closed minute.

        After the last of ten minutes their series are put in order.

        Args:
            minute: No window of it is packed.
            packed_until: Minutes before are packed.
        """
        for totals in self._kinds_to_merge(minute):
            self._replace(totals, minute, minute, add_up=True)
        first = minute + _MINUTE - NEIGHBOURS
        if not (minute + _MINUTE - EPOCH) % NEIGHBOURS and first >= packed_until:
            # Adding them up would take longer, and few keys have several rows.
            self._replace(SERIES, first, minute, add_up=False)

    def _kinds_to_merge(self, minute: datetime) -> Iterator[Totals]:
        if not (minute - EPOCH) % NEIGHBOURS:
            self._worth.clear()
        for totals in TOTALS:
            if self._partitions.has(totals.table(MINUTES), minute) and self._is_worth(totals, minute):
                yield totals

    def _is_worth(self, totals: Totals, minute: datetime) -> bool:
        """Return whether a minute or a recent one has enough rows for each key."""
        if totals.name not in self._worth:
            rows, keys = self._count(totals, minute, one_of=_ONE_OF)
            if keys < _ENOUGH_KEYS:
                rows, keys = self._count(totals, minute)
            if keys < _ENOUGH_KEYS:
                # Counted quickly, and it may say nothing of other minutes.
                return rows >= _MIN_ROWS * keys > 0
            self._worth[totals.name] = rows >= _MIN_ROWS * keys
        return self._worth[totals.name]

    def _count(self, totals: Totals, minute: datetime, *, one_of: int = 1) -> tuple[int, int]:
        """Count the rows of a minute and their keys, or those of one key in so many."""
        query = sql.SQL(
            "SELECT coalesce(sum(rows), 0)::bigint, count(*) FROM "
            "(SELECT count(*) AS rows FROM {table} WHERE {of_minute} AND {first} % {one_of} = 0 "
            "GROUP BY {key}) AS keys"
        ).format(
            table=sql.Identifier(totals.table(MINUTES)),
            of_minute=_within(minute, minute),
            first=sql.Identifier(totals.key[0]),
            one_of=sql.Literal(one_of),
            key=names(totals.key),
        )
        ((rows, keys),) = self._cursor.execute(query)
        return rows, keys

    def _replace(self, totals: Totals, first: datetime, last: datetime, *, add_up: bool) -> None:
        """Replace the rows of some minutes that count, in order of their key.

        Args:
            add_up: Whether the rows of a key become one. Otherwise each is only moved.
        """
        key = names([*totals.key, "bucket"])
        # Both parts of the statement see the rows that there were before it. Reading them twice
        # takes less than keeping what DELETE returns. Nobody else deletes them meanwhile, because
        # of the locks.
        self._cursor.execute(
            sql.SQL(
                "WITH deleted AS (DELETE FROM {table} WHERE {minutes}) "
                "INSERT INTO {table} ({columns}, load_id) "
                "SELECT found.*, {load} FROM ("
                "SELECT {key}, {values} FROM {table} WHERE {minutes}{grouped}) AS found ORDER BY {key}"
            ).format(
                table=sql.Identifier(totals.table(MINUTES)),
                minutes=_within(first, last),
                columns=names([*totals.key, "bucket", *totals.values]),
                load=sql.Literal(MERGED_LOAD),
                key=key,
                values=totals.combined() if add_up else names(totals.values),
                grouped=sql.SQL(" GROUP BY {}").format(key) if add_up else sql.SQL(""),
            )
        )


def _within(first: datetime, last: datetime) -> sql.Composed:
    """The condition that a row is of some minutes and counts."""
    return sql.SQL("bucket >= {} AND bucket <= {} AND {}").format(
        sql.Literal(first), sql.Literal(last), counting(MINUTES)
    )
