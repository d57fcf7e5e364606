"""Creates and drops the partitions of tables.

A partition is created as a table and then attached, which does not block readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import psycopg
from psycopg import sql

from spark_streaming.postgres.spans import Span, beginning, end
from spark_streaming.postgres.tables import GRAINS, MINUTES, TOTALS

#: Span of the partitions of each table of packed rows.
PACKED: Final[dict[str, Span]] = {
    kind.packed_table(grain): grain.packed_partition
    for kind in TOTALS
    for grain in GRAINS
    if grain.name in kind.grains
}
#: Span of the partitions of each partitioned table.
PARTITIONED: Final[dict[str, Span]] = {
    **{
        kind.table(grain): grain.partition for kind in TOTALS for grain in GRAINS if grain.name in kind.grains
    },
    **PACKED,
    "push": "day",
    "contribution": "hour",
}
_FORMATS: Final[dict[Span, str]] = {"hour": "%Y%m%d%H", "day": "%Y%m%d", "week": "%Y%m%d", "month": "%Y%m"}
#: Hours and days are updated several times. Free space in their page avoids index updates (HOT).
_UPDATED: Final = "fillfactor = 70"
_APPENDED: Final = "fillfactor = 100"
#: Merging deletes most rows of each minute. By default the hour would be vacuumed and analyzed once
#: a minute, each time with all of its index.
_MERGED: Final = (
    f"{_APPENDED}, autovacuum_vacuum_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 0.5, "
    "autovacuum_analyze_scale_factor = 0.5"
)
_OPTIONS: Final = {
    **dict.fromkeys((kind.table(MINUTES) for kind in TOTALS), _MERGED),
    **dict.fromkeys(PACKED, _APPENDED),
    "push": _APPENDED,
    # The TOAST target keeps contributions inline if they fit into a page. Analyzing reads such
    # pages, by default whenever the hour has grown by a tenth.
    "contribution": f"{_APPENDED}, toast_tuple_target = 8160, autovacuum_analyze_scale_factor = 0.5",
}


class Partitions:
    """Partitions as seen by one transaction."""

    def __init__(self, cursor: psycopg.Cursor[Any]) -> None:
        self._cursor = cursor
        self._names: set[str] = {
            name
            for (name,) in cursor.execute(
                "SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r' "
                "AND relnamespace = 'telemetry'::regnamespace"
            )
        }

    def lack(self, table: str, times: Iterable[datetime]) -> bool:
        """Return whether a partition for rows of these times is missing."""
        return any(True for _ in self._missing(table, times))

    def has(self, table: str, time: datetime) -> bool:
        """Return whether there is a partition for rows of a time."""
        return not self.lack(table, [time])

    def exactly(self, table: str, start: datetime) -> str | None:
        """Return the partition that begins at a time and has the table's span.

        None without one.
        """
        name = _name(table, PARTITIONED[table], start)
        return name if name in self._names else None

    def holding(self, table: str, time: datetime) -> str:
        """Return the partition for rows of a time, which exists."""
        found = self.exactly(table, beginning(PARTITIONED[table], time))
        return found or _name(table, "day", time)

    def ensure(self, table: str, times: Iterable[datetime]) -> None:
        """Create the missing partitions for rows of these times.

        The caller bounds the times, and thereby the number of partitions.
        """
        span = PARTITIONED[table]
        for name, start in list(self._missing(table, times)):
            self._cursor.execute(
                sql.SQL(
                    "CREATE TABLE {partition} (LIKE {table} INCLUDING ALL) WITH ({options}); "
                    "ALTER TABLE {table} ATTACH PARTITION {partition} FOR VALUES FROM ({start}) TO ({end})"
                ).format(
                    partition=sql.Identifier(name),
                    table=sql.Identifier(table),
                    options=sql.SQL(_OPTIONS.get(table, _UPDATED)),
                    start=sql.Literal(start.isoformat()),
                    end=sql.Literal(end(span, start).isoformat()),
                )
            )
            self._names.add(name)

    def _missing(self, table: str, times: Iterable[datetime]) -> Iterator[tuple[str, datetime]]:
        span = PARTITIONED[table]
        for start in sorted({beginning(span, time) for time in times}):
            name = _name(table, span, start)
            if name not in self._names:
                yield name, start

    def drop(self, table: str, *, before: datetime | None = None, since: datetime | None = None) -> None:
        """Drop the partitions that end at or before a time, or begin at or after one.

        Raises:
            psycopg.Error: A partition can't be dropped, for example because a reader holds it.
        """
        for name, start, until in self._of(table):
            if (before is not None and until <= before) or (since is not None and start >= since):
                self._drop(name)

    def drop_empty(self, table: str, *, before: datetime) -> None:
        """Drop the partitions without rows that end at or before a time.

        Raises:
            psycopg.Error: A partition can't be dropped, for example because a reader holds it.
        """
        for name, _, until in self._of(table):
            if until <= before and self._is_empty(name):
                # Waits for tasks that write. What they wrote is seen then. Readers lock the table
                # before its partitions, too, so there is no deadlock.
                self._cursor.execute(sql.SQL("LOCK TABLE ONLY {}").format(sql.Identifier(table)))
                self._cursor.execute(sql.SQL("LOCK TABLE {}").format(sql.Identifier(name)))
                if self._is_empty(name):
                    self._drop(name)

    def _of(self, table: str) -> list[tuple[str, datetime, datetime]]:
        """The name, beginning and end of each partition of a table."""
        found = []
        for name in sorted(self._names):
            parent, _, start_text = name.rpartition("_p")
            if parent == table:
                span = PARTITIONED[table]
                start = datetime.strptime(start_text, _FORMATS[span]).replace(tzinfo=UTC)
                found.append((name, start, end(span, start)))
        return found

    def _is_empty(self, name: str) -> bool:
        ((found,),) = self._cursor.execute(
            sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(name))
        )
        return not found

    def _drop(self, name: str) -> None:
        self._cursor.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(name)))
        self._names.discard(name)


def _name(table: str, span: Span, start: datetime) -> str:
    return f"{table}_p{start:{_FORMATS[span]}}"
