"""Packs closed windows, step by step, and unpacks those that must change.

A row is either open or packed, and views read both kinds. So a window may be packed in any number
of steps, and a step that is rolled back changes nothing. Rows of pending loads stay open. They are
late rows once their load counts.

Packing runs beside batches. Each locks the row of ``horizon`` at its end. So either a batch sees
that its hours are packed, or packing sees the rows of the batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Final

import psycopg
from psycopg import sql

from spark_streaming.postgres.packed import PACKED_LOAD, as_rows, counting, packed_columns, to_pack
from spark_streaming.postgres.partitions import Partitions
from spark_streaming.postgres.spans import beginning, end
from spark_streaming.postgres.tables import GRAINS, MINUTES, TOTALS, Grain, Totals

__all__ = ["Packing", "create_tables"]

#: About how many rows a step packs.
_STEP_ROWS: Final = 500_000
#: No step begins after so many seconds of a transaction.
_BUDGET_S: Final = 10.0
#: How long hours and days stay open after minutes are packed, because it takes long to change them.
_COARSE_DELAY: Final = timedelta(days=1)
_UNTIL: Final = {"1m": "minutes_packed_until", "1h": "hours_packed_until", "1d": "days_packed_until"}
_KINDS: Final = {
    grain.name: tuple(totals for totals in TOTALS if grain.name in totals.grains) for grain in GRAINS
}
_KEY_TYPES: Final = {"spread": "smallint", "lower": "double precision", "upper": "double precision"}


def create_tables(connection: psycopg.Connection[Any]) -> None:
    """Create the tables of packed rows, and add columns for values that are new."""
    for grain in GRAINS:
        for totals in _KINDS[grain.name]:
            columns = packed_columns(totals)
            connection.execute(
                sql.SQL(
                    "CREATE TABLE IF NOT EXISTS {table} ("
                    "{keys}, start timestamptz NOT NULL, present bigint, PRIMARY KEY ({key})"
                    ") PARTITION BY RANGE (start); "
                    "CREATE INDEX IF NOT EXISTS {index} ON {table} USING brin (start) "
                    "WITH (pages_per_range = 16, autosummarize = on); "
                    "ALTER TABLE {table} {changes}"
                ).format(
                    table=sql.Identifier(totals.packed_table(grain)),
                    index=sql.Identifier(f"{totals.packed_table(grain)}_start"),
                    keys=sql.SQL(", ").join(
                        sql.SQL("{} {} NOT NULL").format(
                            sql.Identifier(name), sql.SQL(_KEY_TYPES.get(name, "bigint"))
                        )
                        for name in totals.key
                    ),
                    key=_names([totals.key[0], "start", *totals.key[1:]]),
                    changes=sql.SQL(", ").join(
                        [
                            sql.SQL("ADD COLUMN IF NOT EXISTS {} {}").format(
                                sql.Identifier(name), sql.SQL(sql_type)
                            )
                            for name, sql_type in columns
                        ]
                    ),
                )
            )
            # Arrays stay in the row if it fits into a page.
            connection.execute(
                sql.SQL("ALTER TABLE {} {}").format(
                    sql.Identifier(totals.packed_table(grain)),
                    sql.SQL(", ").join(
                        sql.SQL("ALTER COLUMN {} SET STORAGE MAIN").format(sql.Identifier(name))
                        for name, sql_type in columns
                        if sql_type.endswith("[]")
                    ),
                )
            )


class Packing:
    """The packed windows as seen by one transaction.

    Args:
        cursor: In a transaction that holds the lock of packing, or only notes late buckets.
        partitions: The partitions as seen by the same transaction.
    """

    def __init__(self, cursor: psycopg.Cursor[Any], partitions: Partitions) -> None:
        self._cursor = cursor
        self._partitions = partitions
        self._until = self._read_until("")

    def note_late(self, buckets: Mapping[str, Iterable[datetime]]) -> None:
        """Note buckets that got open rows. If they are packed, they will be packed again.

        Args:
            buckets: By the name of the grain.
        """
        self._until = self._read_until("FOR UPDATE")
        for grain in GRAINS:
            until, window = self._until[grain.name], grain.window
            late = {beginning(window, bucket) for bucket in buckets.get(grain.name, ()) if bucket < until}
            if late:
                self._cursor.execute(
                    "INSERT INTO repack SELECT %s, unnest(%s::timestamptz[]) ON CONFLICT DO NOTHING",
                    [grain.name, sorted(late)],
                )

    def closed(self, now_ns: int) -> datetime:
        """Return the time before which rows are complete.

        Args:
            now_ns: The time, nanoseconds since the epoch. The earlier of two clocks counts.
        """
        ((now, whole_until),) = self._cursor.execute("SELECT now(), whole_until FROM progress")
        closed: datetime = min(now, datetime.fromtimestamp(now_ns / 1e9, UTC), whole_until)
        return closed

    def pack(self, closed: datetime) -> bool:
        """Pack windows for some seconds, the oldest first: minutes, then hours, then days.

        Args:
            closed: Windows that end before are packed.

        Returns:
            Whether nothing is left.
        """
        deadline = monotonic() + _BUDGET_S
        done: list[tuple[Grain, datetime]] = []
        is_done = True
        for grain in GRAINS:
            for start in itertools.chain(self._again(grain), self._due(grain, closed)):
                is_done = self._pack(grain, start, deadline)
                if not is_done:
                    break
                done.append((grain, start))
            if not is_done:
                break
        self._finish(done)
        return is_done

    def backlog(self, closed: datetime) -> dict[str, int]:
        """Return the number of windows to pack, by the grain of their buckets."""
        return {
            grain.name: len(self._again(grain)) + sum(1 for _ in self._due(grain, closed)) for grain in GRAINS
        }

    def until(self, grain: Grain) -> datetime:
        """Return the time before which windows are packed, but for late rows."""
        return self._until[grain.name]

    def open_window(self, grain: Grain, bucket: datetime) -> None:
        """Unpack the window of a bucket, so that its rows can be replaced, and pack it later."""
        start = beginning(grain.window, bucket)
        if start < self._until[grain.name]:
            self._unpack(grain, start)
            self.note_late({grain.name: [start]})

    def forget_since(self, since: datetime) -> None:
        """Delete packed rows from a time on. Open rows are left to the caller."""
        for grain in GRAINS:
            start = beginning(grain.window, since)
            if start >= self._until[grain.name]:
                continue
            self._unpack(grain, start)
            for totals in _KINDS[grain.name]:
                self._partitions.drop(totals.packed_table(grain), since=start)
                self._cursor.execute(
                    sql.SQL("DELETE FROM {} WHERE start >= %s").format(
                        sql.Identifier(totals.packed_table(grain))
                    ),
                    [start],
                )
            self._cursor.execute(
                sql.SQL("DELETE FROM {} WHERE start >= %s").format(sql.Identifier(grain.slots)), [start]
            )
            self._cursor.execute("DELETE FROM repack WHERE grain = %s AND start >= %s", [grain.name, start])
            self._until[grain.name] = start
            self._put_until(grain)

    def expire(self, horizons: dict[str, datetime]) -> None:
        """Forget windows whose rows have expired.

        Args:
            horizons: The oldest rows that are kept, by the grain of their buckets.
        """
        for grain in GRAINS:
            first = beginning(grain.window, horizons[grain.name])
            self._cursor.execute(
                sql.SQL("DELETE FROM {} WHERE start < %s").format(sql.Identifier(grain.slots)), [first]
            )
            self._cursor.execute("DELETE FROM repack WHERE grain = %s AND start < %s", [grain.name, first])
            self._until[grain.name] = max(self._until[grain.name], first)

    def _read_until(self, lock: str) -> dict[str, datetime]:
        self._cursor.execute(
            sql.SQL(
                "SELECT minutes_from, hours_from, days_from, "
                "minutes_packed_until, hours_packed_until, days_packed_until FROM horizon {}"
            ).format(sql.SQL(lock))
        )
        (row,) = self._cursor.fetchall()
        found: dict[str, datetime] = {}
        for grain, kept_from, until in zip(GRAINS, row[:3], row[3:], strict=True):
            first = beginning(grain.window, kept_from)
            found[grain.name] = first if until is None else max(first, until)
        return found

    def _finish(self, done: Iterable[tuple[Grain, datetime]]) -> None:
        """Note which windows were packed, and those of them that have got other rows since."""
        for grain, start in done:
            self._until[grain.name] = max(self._until[grain.name], end(grain.window, start))
        for grain in GRAINS:
            self._put_until(grain)
        for grain, start in done:
            is_left = any(
                self._has_open_rows(totals, grain, start, sql.SQL("true")) for totals in _KINDS[grain.name]
            )
            self._cursor.execute(
                "INSERT INTO repack VALUES (%s, %s) ON CONFLICT DO NOTHING"
                if is_left
                else "DELETE FROM repack WHERE (grain, start) = (%s, %s)",
                [grain.name, start],
            )

    def _again(self, grain: Grain) -> list[datetime]:
        self._cursor.execute("SELECT start FROM repack WHERE grain = %s ORDER BY start", [grain.name])
        return [start for (start,) in self._cursor]

    def _due(self, grain: Grain, until: datetime) -> Iterator[datetime]:
        if grain is not GRAINS[0]:
            until -= _COARSE_DELAY
        start = self._until[grain.name]
        while end(grain.window, start) <= until:
            yield start
            start = end(grain.window, start)

    def _put_until(self, grain: Grain) -> None:
        self._cursor.execute(
            sql.SQL("UPDATE horizon SET {} = %s").format(sql.Identifier(_UNTIL[grain.name])),
            [self._until[grain.name]],
        )

    def _pack(self, grain: Grain, start: datetime, deadline: float) -> bool:
        """Pack the open rows of a window that count. Return whether none is left."""
        for totals in _KINDS[grain.name]:
            least: int | None = None
            while self._has_open_rows(totals, grain, start, _counting(totals, grain, least, None)):
                if monotonic() > deadline:
                    return False
                most = self._end_of_step(totals, grain, start, least)
                self._add_slots(grain, start)
                self._partitions.ensure(totals.packed_table(grain), [start])
                self._pack_keys(totals, grain, start, _between(totals, least, most))
                if most is None:
                    break
                least = most + 1
        return True

    def _has_open_rows(
        self, totals: Totals, grain: Grain, start: datetime, condition: sql.Composable
    ) -> bool:
        if not self._partitions.has(totals.table(grain), start):
            return False
        query = sql.SQL("SELECT EXISTS (SELECT FROM {table} WHERE {window} AND {condition})").format(
            table=sql.Identifier(totals.table(grain)), window=_within(grain, start), condition=condition
        )
        ((found,),) = self._cursor.execute(query)
        return bool(found)

    def _end_of_step(self, totals: Totals, grain: Grain, start: datetime, least: int | None) -> int | None:
        """Return the greatest key of the next step; None if it has all keys that are left."""
        query = sql.SQL(
            "SELECT {key} FROM {table} WHERE {window} AND {keys} ORDER BY {key} OFFSET {rows} LIMIT 1"
        ).format(
            key=sql.Identifier(totals.key[0]),
            table=sql.Identifier(totals.table(grain)),
            window=_within(grain, start),
            keys=_counting(totals, grain, least, None),
            rows=sql.Literal(_STEP_ROWS),
        )
        row = self._cursor.execute(query).fetchone()
        return None if row is None else int(row[0])

    def _pack_keys(self, totals: Totals, grain: Grain, start: datetime, keys: sql.Composable) -> None:
        columns = _names(["bucket", *totals.key, *totals.values])
        load_id = sql.SQL("load_id" if grain is MINUTES else "0")
        found: sql.Composable = sql.SQL("SELECT * FROM moved")
        if self._is_packed(totals, grain, start, keys):
            found = sql.SQL(
                "SELECT * FROM moved "
                "UNION ALL SELECT {columns}, {packed_load} FROM ({packed}) AS packed_rows "
                "WHERE ({key}) IN (SELECT {key} FROM moved)"
            ).format(
                key=_names(totals.key),
                columns=columns,
                packed_load=sql.Literal(PACKED_LOAD),
                packed=as_rows(totals, grain, start=start),
            )
        rows = sql.SQL(
            "SELECT bucket, {key}, {values} FROM ({found}) AS found GROUP BY bucket, {key}"
        ).format(key=_names(totals.key), values=totals.combined(), found=found)
        self._cursor.execute(
            sql.SQL(
                "WITH moved AS (DELETE FROM {table} WHERE {window} AND {keys} AND {counting} "
                "RETURNING {columns}, {load_id} AS load_id) {pack}"
            ).format(
                table=sql.Identifier(totals.table(grain)),
                window=_within(grain, start),
                keys=keys,
                counting=counting(grain),
                columns=columns,
                load_id=load_id,
                pack=to_pack(totals, grain, start, rows),
            )
        )

    def _is_packed(self, totals: Totals, grain: Grain, start: datetime, keys: sql.Composable) -> bool:
        query = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE start = {} AND {})").format(
            sql.Identifier(totals.packed_table(grain)), sql.Literal(start), keys
        )
        ((found,),) = self._cursor.execute(query)
        return bool(found)

    def _add_slots(self, grain: Grain, start: datetime) -> None:
        self._cursor.execute(
            sql.SQL(
                "INSERT INTO {} (bucket, start, at, bit, below) "
                "SELECT %(start)s + n * %(length)s, %(start)s, n + 1, 1::bigint << n, (1::bigint << n) - 1 "
                "FROM generate_series(0, %(last)s) AS n ON CONFLICT DO NOTHING"
            ).format(sql.Identifier(grain.slots)),
            {"start": start, "length": grain.length, "last": grain.slots_in_window(start) - 1},
        )
        if self._cursor.rowcount:
            # Plans depend on how many buckets a range has.
            self._cursor.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(grain.slots)))

    def _unpack(self, grain: Grain, start: datetime) -> None:
        for totals in _KINDS[grain.name]:
            if not self._is_packed(totals, grain, start, sql.SQL("true")):
                continue
            # Late rows may have the same keys.
            if self._has_open_rows(totals, grain, start, counting(grain)):
                self._pack_keys(totals, grain, start, sql.SQL("true"))
            self._partitions.ensure(totals.table(grain), [start])
            columns = _names(["bucket", *totals.key, *totals.values])
            self._cursor.execute(
                sql.SQL("INSERT INTO {table} ({columns}) SELECT {columns} FROM ({packed}) AS packed").format(
                    table=sql.Identifier(totals.table(grain)),
                    columns=columns,
                    packed=as_rows(totals, grain, start=start),
                )
            )
            self._cursor.execute(
                sql.SQL("DELETE FROM {} WHERE start = %s").format(sql.Identifier(totals.packed_table(grain))),
                [start],
            )


def _within(grain: Grain, start: datetime) -> sql.Composed:
    """The condition that a row is in a window."""
    return sql.SQL("bucket >= {} AND bucket < {}").format(
        sql.Literal(start), sql.Literal(end(grain.window, start))
    )


def _counting(totals: Totals, grain: Grain, least: int | None, most: int | None) -> sql.Composed:
    """The condition that an open row counts, and that its first key is in a range."""
    return sql.SQL("{} AND {}").format(_between(totals, least, most), counting(grain))


def _between(totals: Totals, least: int | None, most: int | None) -> sql.Composed:
    """The condition that the first key is in a range; None has no bound."""
    bounds = [("{} >= {}", least), ("{} <= {}", most)]
    return sql.SQL(" AND ").join(
        [
            sql.SQL("true"),
            *(
                sql.SQL(text).format(sql.Identifier(totals.key[0]), sql.Literal(bound))
                for text, bound in bounds
                if bound is not None
            ),
        ]
    )


def _names(names: Iterable[str], table: str | None = None) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(*filter(None, (table, name))) for name in names)
