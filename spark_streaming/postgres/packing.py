"""Plans which closed windows to pack, and unpacks those that must change.

A row is either open or packed, and views read both kinds. Windows before a time are packed, except
those in ``repack``, which has a row for each kind of totals. A plan moves that time forward and
notes the windows that it passes. Packing them (pack_window.py) removes the notes, in any order and
by any number of connections. So whatever dies, the next packing goes on.

Packing runs beside batches. A batch notes the windows before that time that got rows, and packing
removes a note. Each locks the row of ``horizon`` before. So packing sees whether a batch has noted
the window meanwhile, and keeps the note then. Rows of pending loads stay open. They are late rows
once their load counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg import sql

from spark_streaming.postgres.pack_window import Window, has_rows, is_packed, names, pack_rows
from spark_streaming.postgres.packed import as_rows, counting, packed_columns
from spark_streaming.postgres.partitions import Partitions
from spark_streaming.postgres.spans import beginning, end
from spark_streaming.postgres.tables import GRAINS, TOTALS, Grain

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
                    key=names([totals.key[0], "start", *totals.key[1:]]),
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
    """

    def __init__(self, cursor: psycopg.Cursor[Any], partitions: Partitions) -> None:
        self._cursor = cursor
        self._partitions = partitions
        self._until = self._read_until("")

    def note_late(self, buckets: Mapping[str, Iterable[datetime]]) -> None:
        """Note buckets that got open rows. If they are packed, they will be packed again."""
        self._until = self._read_until("FOR UPDATE")
        for grain in GRAINS:
            until, window = self._until[grain.name], grain.window
            late = {beginning(window, bucket) for bucket in buckets.get(grain.name, ()) if bucket < until}
            if late:
                self._cursor.execute(
                    "INSERT INTO repack (grain, start, kind) "
                    "SELECT %s, start, kind "
                    "FROM unnest(%s::timestamptz[]) AS start CROSS JOIN unnest(%s::text[]) AS kind "
                    "ON CONFLICT (grain, start, kind) DO UPDATE SET noted = repack.noted + 1",
                    [grain.name, sorted(late), [totals.name for totals in _KINDS[grain.name]]],
                )

    def closed(self, now_ns: int) -> datetime:
        """Return the time before which rows are complete.

        Args:
            now_ns: The time, nanoseconds since the epoch. The earlier of two clocks counts.
        """
        ((now, whole_until),) = self._cursor.execute("SELECT now(), whole_until FROM progress")
        closed: datetime = min(now, datetime.fromtimestamp(now_ns / 1e9, UTC), whole_until)
        return closed

    def plan(self, closed: datetime) -> list[Window]:
        """Note the windows that are due; return all noted, by grain and age.

        It creates what packing them needs: partitions, and the buckets of the windows. Notes that
        batches add meanwhile are left to the next plan.

        Args:
            closed: Windows that end before are packed.
        """
        noted, due = self._noted(), self._windows_due(closed)
        # Before the lock, because batches wait for it.
        self._make_room([*noted, *due])
        self._read_until("FOR UPDATE")
        for window in due:
            self._cursor.execute(
                "INSERT INTO repack (grain, start, kind) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                [window.grain.name, window.start, window.totals.name],
            )
        for grain in GRAINS:
            for start in list(self._due(grain, closed)):
                self._until[grain.name] = end(grain.window, start)
            self._put_until(grain)
        return _in_order([*noted, *due])

    def backlog(self, closed: datetime) -> dict[str, int]:
        """Return the number of windows to pack, by the grain of their buckets."""
        left = {(window.grain.name, window.start) for window in (*self._noted(), *self._windows_due(closed))}
        return {grain.name: sum(name == grain.name for name, _ in left) for grain in GRAINS}

    def until(self, grain: Grain) -> datetime:
        """Return the time before which windows are packed, but for late rows."""
        return self._until[grain.name]

    def open_window(self, grain: Grain, bucket: datetime) -> None:
        """Unpack the window of a bucket to replace its rows, and pack it later."""
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
        """Forget windows that are older than all rows, by the horizons of the grains."""
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

    def _noted(self) -> list[Window]:
        self._cursor.execute("SELECT grain, kind, start FROM repack")
        grains = {grain.name: grain for grain in GRAINS}
        kinds = {totals.name: totals for totals in TOTALS}
        return [
            Window(totals=kinds[kind], grain=grains[grain], start=start)
            for grain, kind, start in self._cursor
        ]

    def _windows_due(self, closed: datetime) -> list[Window]:
        return [
            Window(totals=totals, grain=grain, start=start)
            for grain in GRAINS
            for start in self._due(grain, closed)
            for totals in _KINDS[grain.name]
            if self._partitions.has(totals.table(grain), start)
        ]

    def _make_room(self, windows: Iterable[Window]) -> None:
        for grain in GRAINS:
            own = [window for window in windows if window.grain is grain]
            for window in own:
                self._partitions.ensure(window.totals.packed_table(grain), [window.start])
            self._add_slots(grain, sorted({window.start for window in own}))

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

    def _add_slots(self, grain: Grain, starts: Iterable[datetime]) -> None:
        added = 0
        for start in starts:
            self._cursor.execute(
                sql.SQL(
                    "INSERT INTO {} (bucket, start, at, bit, below) SELECT "
                    "%(start)s + n * %(length)s, %(start)s, n + 1, 1::bigint << n, (1::bigint << n) - 1 "
                    "FROM generate_series(0, %(last)s) AS n ON CONFLICT DO NOTHING"
                ).format(sql.Identifier(grain.slots)),
                {"start": start, "length": grain.length, "last": grain.slots_in_window(start) - 1},
            )
            added += self._cursor.rowcount
        if added:
            # Plans depend on how many buckets a range has.
            self._cursor.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(grain.slots)))

    def _unpack(self, grain: Grain, start: datetime) -> None:
        for totals in _KINDS[grain.name]:
            window = Window(totals=totals, grain=grain, start=start)
            if not is_packed(self._cursor, window):
                continue
            # Late rows may have the same keys.
            is_open = self._partitions.has(totals.table(grain), start)
            if is_open and has_rows(self._cursor, window, counting(grain)):
                pack_rows(self._cursor, window, sql.SQL("true"))
            self._partitions.ensure(totals.table(grain), [start])
            columns = names(["bucket", *totals.key, *totals.values])
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


def _in_order(windows: Iterable[Window]) -> list[Window]:
    return sorted(windows, key=lambda one: (one.grain.minutes, one.start, TOTALS.index(one.totals)))
