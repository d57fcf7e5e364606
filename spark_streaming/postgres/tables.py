"""Describes the tables of totals, and how their columns combine.

The same description generates the appending of rows, the views, the computation of hours and days,
and packed rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql

from spark_streaming.postgres.spans import Span, end
from spark_streaming.postgres.staging import append
from spark_streaming.rows import MAX_TOTAL
from spark_streaming.watched import WATCHED

#: How values of a column combine. "add" ignores nulls, and with "add all" one null makes the sum
#: null.
Combination = Literal["add", "add all", "least", "greatest", "any", "newest"]
ValueType = Literal["bigint", "double precision", "boolean", "text"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

#: SQL that combines a group of finer rows.
_OVER_ROWS: Final[dict[Combination, str]] = {
    "add": "sum({0})",
    "add all": "CASE WHEN count({0}) = count(*) THEN sum({0}) END",
    "least": "min({0})",
    "greatest": "max({0})",
    "any": "bool_or({0})",
    "newest": "(array_agg({0} ORDER BY bucket DESC, load_id DESC) FILTER (WHERE {0} IS NOT NULL))[1]",
}
#: Combines counts. Their sum is numeric and unbounded, so it is capped.
_COUNTS_OVER_ROWS: Final = f"least(sum({{0}}), {MAX_TOTAL})::bigint"
#: SQL that combines a stored value and a new one.
_COUNTS_WITH_OLD: Final = f"least(old.{{0}} + excluded.{{0}}, {MAX_TOTAL})"
_WITH_OLD: Final[dict[Combination, str]] = {
    "add": "coalesce(old.{0} + excluded.{0}, old.{0}, excluded.{0})",
    "add all": "old.{0} + excluded.{0}",
    "least": "least(old.{0}, excluded.{0})",
    "greatest": "greatest(old.{0}, excluded.{0})",
    "any": "old.{0} OR excluded.{0}",
    "newest": "coalesce(excluded.{0}, old.{0})",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grain:
    """A table's length of buckets, spans of partitions, and packed window."""

    name: Literal["1m", "1h", "1d"]
    minutes: int
    partition: Span
    """Span of the partitions of open rows."""
    window: Span
    """Span of a packed row."""
    packed_partition: Span
    """Span of the partitions of packed rows. Queries prune these while they run, not while they are
    planned, so there should be few."""

    @property
    def length(self) -> timedelta:
        """Length of a bucket."""
        return timedelta(minutes=self.minutes)

    def beginning(self, time: datetime) -> datetime:
        """Return the beginning of a time's bucket."""
        return EPOCH + (time - EPOCH) // self.length * self.length

    @property
    def slots(self) -> str:
        """Name of the table of buckets in packed windows."""
        return f"slot_{self.name}"

    def slots_in_window(self, start: datetime) -> int:
        """Return the number of buckets in a window."""
        return (end(self.window, start) - start) // self.length


GRAINS: Final = (
    Grain(name="1m", minutes=1, partition="hour", window="hour", packed_partition="day"),
    Grain(name="1h", minutes=60, partition="day", window="day", packed_partition="week"),
    Grain(name="1d", minutes=1440, partition="month", window="month", packed_partition="month"),
)
MINUTES: Final = GRAINS[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """One kind of totals, with a table for each grain."""

    name: str
    """Name of the tables without the grain."""
    key: tuple[str, ...]
    """Key columns beside ``bucket``. The first is the id of the subject."""
    values: dict[str, Combination]
    """The other columns, and how they combine."""
    grains: tuple[str, ...] = ("1m", "1h", "1d")
    counts: tuple[str, ...] = ()
    """Integer values that add up. They saturate at ``MAX_TOTAL``."""
    usual: Mapping[str, int | str] = field(default_factory=dict)
    """What a packed row need not store, by value: a number, or the name of another value that is
    the same. Null for other values."""

    def table(self, grain: Grain) -> str:
        """Return the name of a grain's table."""
        return f"{self.name}_{grain.name}"

    def waiting(self, grain: Grain) -> str:
        """Return the name of the table of hours or days that wait for the driver."""
        return f"{self.table(grain)}_load"

    def packed_table(self, grain: Grain) -> str:
        """Return the name of a grain's table of packed rows."""
        return f"{self.table(grain)}_packed"

    def type_of(self, value: str) -> ValueType:
        """Return the SQL type of a value."""
        if value in self.counts:
            return "bigint"
        types: dict[Combination, ValueType] = {"any": "boolean", "newest": "text"}
        return types.get(self.values[value], "double precision")

    def combined(self) -> sql.Composed:
        """Return the SQL that combines each value over a group of rows.

        The rows have columns ``bucket`` and ``load_id``, the last of which is the newest.
        """
        return sql.SQL(", ").join(
            sql.SQL((_COUNTS_OVER_ROWS if name in self.counts else _OVER_ROWS[how]) + " AS {0}").format(
                sql.Identifier(name)
            )
            for name, how in self.values.items()
        )

    def append(self, cursor: psycopg.Cursor[Any], grain: Grain, rows: pa.Table, load_id: int) -> None:
        """Append rows under a load id.

        Args:
            cursor: In the transaction of the load.
            grain: Of the rows. Minutes go to their table, whose partitions exist. Hours and days
                wait until :meth:`add_waiting`.
        """
        rows = rows.select(["bucket", *self.key, *self.values])
        loads = pa.array(np.full(rows.num_rows, load_id))
        table = self.table(grain) if grain is MINUTES else self.waiting(grain)
        append(cursor, sql.Identifier(table), rows.append_column("load_id", loads))

    def add_waiting(
        self,
        cursor: psycopg.Cursor[Any],
        grain: Grain,
        load_ids: Sequence[int],
        ensure: Callable[[str, Iterable[datetime]], None],
    ) -> list[datetime]:
        """Add the hours or days of loads to the stored ones; return the changed ones.

        Args:
            cursor: In the driver's transaction for the batch.
            grain: Hours or days.
            ensure: Creates the missing partitions of a table for some times.
        """
        waiting, loads = sql.Identifier(self.waiting(grain)), list(load_ids)
        buckets = cursor.execute(
            sql.SQL("SELECT DISTINCT bucket FROM {} WHERE load_id = ANY(%s)").format(waiting), [loads]
        ).fetchall()
        if not buckets:
            return []
        ensure(self.table(grain), [bucket for (bucket,) in buckets])
        cursor.execute(
            sql.SQL(
                "{insert} SELECT bucket, {key}, {values} FROM {waiting} WHERE load_id = ANY(%s) "
                "GROUP BY bucket, {key} {add}"
            ).format(
                insert=self._insert(grain),
                key=_names(self.key),
                values=self.combined(),
                waiting=waiting,
                add=self._add_to_old(),
            ),
            [loads],
        )
        return [bucket for (bucket,) in buckets]

    def compute(
        self,
        cursor: psycopg.Cursor[Any],
        grain: Grain,
        bucket: datetime,
        rows: sql.Composable,
        *,
        add: bool,
    ) -> None:
        """Compute a bucket from finer rows.

        Args:
            cursor: In the maintenance transaction.
            bucket: The beginning of the bucket. None of its rows is packed.
            rows: A query of the bucket's finer rows: all of them, or those to add.
            add: Add to the stored rows, instead of replacing them.
        """
        cursor.execute(
            sql.SQL(
                "{insert} SELECT {bucket}, {key}, {values} FROM ({rows}) AS finer GROUP BY {key} {change}"
            ).format(
                insert=self._insert(grain),
                bucket=sql.Literal(bucket),
                key=_names(self.key),
                values=self.combined(),
                rows=rows,
                change=self._add_to_old() if add else self._replace_old(),
            )
        )

    def _insert(self, grain: Grain) -> sql.Composed:
        return sql.SQL("INSERT INTO {table} AS old (bucket, {columns})").format(
            table=sql.Identifier(self.table(grain)), columns=_names([*self.key, *self.values])
        )

    def _add_to_old(self) -> sql.Composed:
        return sql.SQL("ON CONFLICT ({target}) DO UPDATE SET {changes}").format(
            target=self._target(),
            changes=_assignments(
                {
                    name: _COUNTS_WITH_OLD if name in self.counts else _WITH_OLD[how]
                    for name, how in self.values.items()
                }
            ),
        )

    def _replace_old(self) -> sql.Composed:
        return sql.SQL(
            "ON CONFLICT ({target}) DO UPDATE SET {changes} WHERE ({old}) IS DISTINCT FROM ({new})"
        ).format(
            target=self._target(),
            changes=_assignments(dict.fromkeys(self.values, "excluded.{0}")),
            old=_names(self.values, "old"),
            new=_names(self.values, "excluded"),
        )

    def _target(self) -> sql.Composed:
        return _names([self.key[0], "bucket", *self.key[1:]])


def _names(names: Any, table: str | None = None) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(*filter(None, (table, name))) for name in names)


def _assignments(expressions: dict[str, str]) -> sql.Composed:
    return sql.SQL(", ").join(
        sql.SQL("{0} = " + expression).format(sql.Identifier(name))
        for name, expression in expressions.items()
    )


_STATISTICS: Final[dict[str, Combination]] = {
    "points": "add",
    "sum": "add all",
    "min": "least",
    "max": "greatest",
    "pushed_sum": "add",
}
_KEPT: Final[dict[str, Combination]] = {"sum": "add", "points": "add", "max": "greatest"}

#: So are minutes of a series that one instance pushes, at most once a minute.
_USUAL: Final[Mapping[str, int | str]] = {"points": 1, "min": "sum", "max": "sum", "pushed_sum": "sum"}

SERIES: Final = Totals(
    name="rollup",
    key=("series_id",),
    values=_STATISTICS,
    counts=("points",),
    usual=_USUAL,
)
FLEETS: Final = Totals(
    name="fleet_rollup",
    key=("fleet_id",),
    values=_STATISTICS,
    counts=("points",),
    usual=_USUAL,
)
SPREADS: Final = Totals(
    name="fleet_spread",
    key=("fleet_id", "spread"),
    values={"observations": "add"},
    counts=("observations",),
)
HISTOGRAMS: Final = Totals(
    name="rollup_histogram", key=("series_id", "lower", "upper"), values={"count": "add"}, counts=("count",)
)
CLIENTS: Final = Totals(
    name="client_rollup",
    key=("client_key",),
    values={
        "pushes": "add",
        "points": "add",
        "push_interval_ms_sum": "add",
        "terminating": "any",
        "broker_id": "newest",
        "client_source_address": "newest",
        **{slot.column: _KEPT[slot.keeps] for slot in WATCHED},
    },
    grains=("1m", "1h"),
    counts=("pushes", "points", "push_interval_ms_sum"),
)
TOTALS: Final = (SERIES, FLEETS, SPREADS, HISTOGRAMS, CLIENTS)
