"""Describes the tables of totals, and how their columns combine.

The same description generates the merge of new rows and the computation of hours and days.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from spark_streaming.postgres.staging import append, stage
from spark_streaming.rows import MAX_TOTAL
from spark_streaming.watched import WATCHED

__all__ = ["CLIENTS", "FLEETS", "GRAINS", "HISTOGRAMS", "SERIES", "SPREADS", "TOTALS", "Grain", "Totals"]

Combination = Literal["add", "least", "greatest", "any", "newest"]

#: Sums of values within the plan's bounds stay far below. Older versions may have stored more.
MAX_SUM: Final = 1e300

#: SQL that combines a group of finer rows.
_OVER_ROWS: Final[dict[Combination, str]] = {
    "add": f"sum(CASE WHEN abs({{0}}) > {MAX_SUM} THEN sign({{0}}) * {MAX_SUM} ELSE {{0}} END)",
    "least": "min({0})",
    "greatest": "max({0})",
    "any": "bool_or({0})",
    "newest": "(array_agg({0} ORDER BY bucket DESC) FILTER (WHERE {0} IS NOT NULL))[1]",
}
#: The same for counts. Their sum is numeric and unbounded, so it is capped.
_COUNTS_OVER_ROWS: Final = f"least(sum({{0}}), {MAX_TOTAL})"
#: SQL that combines a stored value and a new one.
_COUNTS_WITH_OLD: Final = f"least(least(old.{{0}}, {MAX_TOTAL}) + excluded.{{0}}, {MAX_TOTAL})"
_WITH_OLD: Final[dict[Combination, str]] = {
    "add": "coalesce(old.{0} + excluded.{0}, old.{0}, excluded.{0})",
    "least": "least(old.{0}, excluded.{0})",
    "greatest": "greatest(old.{0}, excluded.{0})",
    "any": "old.{0} OR excluded.{0}",
    "newest": "coalesce(excluded.{0}, old.{0})",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grain:
    """Length of a table's buckets, and span of its partitions."""

    name: Literal["1m", "1h", "1d"]
    minutes: int
    partition: Literal["day", "month"]

    @property
    def length(self) -> timedelta:
        """Length of a bucket."""
        return timedelta(minutes=self.minutes)


GRAINS: Final = (
    Grain(name="1m", minutes=1, partition="day"),
    Grain(name="1h", minutes=60, partition="day"),
    Grain(name="1d", minutes=1440, partition="month"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """One kind of totals, with a table for each grain.

    Attributes:
        name: Name of the tables without the grain.
        key: Key columns beside ``bucket``. The first is the id of the subject.
        values: The other columns, and how they combine.
        grains: Names of the grains.
        counts: Integer values that add up. They saturate at ``MAX_TOTAL``.
        optional: A value that most rows lack.
    """

    name: str
    key: tuple[str, ...]
    values: dict[str, Combination]
    grains: tuple[str, ...] = ("1m", "1h", "1d")
    counts: tuple[str, ...] = ()
    optional: str | None = None

    def table(self, grain: Grain) -> str:
        """Return the name of a grain's table."""
        return f"{self.name}_{grain.name}"

    def merge(
        self, cursor: psycopg.Cursor[Any], grain: Grain, rows: pa.Table, *, newest: datetime | None
    ) -> None:
        """Combine rows with the stored ones.

        Args:
            cursor: In the batch's transaction.
            grain: Selects the table.
            rows: The table's columns, with distinct keys.
            newest: The table has no later bucket than this. None if unknown.
        """
        rows = rows.select(["bucket", *self.key, *self.values])
        if newest is not None:
            # Later rows can't exist yet, and a plain COPY takes less than half the time.
            new = pc.greater(rows["bucket"], pa.scalar(newest, rows["bucket"].type))
            if pa.string() not in rows.schema.types:
                for field in rows.schema:
                    if field.type == pa.float64() and field.name != self.optional:
                        new = pc.and_(new, pc.is_finite(rows[field.name]).fill_null(fill_value=False))
            for part in self._without_nulls(rows.filter(new)):
                append(cursor, sql.Identifier(self.table(grain)), part)
            rows = rows.filter(pc.invert(new))
            if not rows.num_rows:
                return
        stage(cursor, "staged", rows)
        cursor.execute(
            sql.SQL(
                "INSERT INTO {table} AS old ({columns}) SELECT {staged} FROM pg_temp.staged "
                "ON CONFLICT ({key}) DO UPDATE SET {changes}"
            ).format(
                table=sql.Identifier(self.table(grain)),
                columns=_names(rows.column_names),
                staged=sql.SQL(", ").join(
                    sql.SQL("nullif({}, 'NaN')" if field.type == pa.float64() else "{}").format(
                        sql.Identifier(field.name)
                    )
                    for field in rows.schema
                ),
                key=_names([self.key[0], "bucket", *self.key[1:]]),
                changes=_assignments(
                    {
                        name: _COUNTS_WITH_OLD if name in self.counts else _WITH_OLD[how]
                        for name, how in self.values.items()
                    }
                ),
            )
        )

    def _without_nulls(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Split rows by whether they have the optional value, because COPY writes no nulls."""
        if self.optional is None:
            yield rows
            return
        has_value = rows[self.optional].is_valid()
        yield rows.filter(has_value)
        yield rows.filter(pc.invert(has_value)).drop([self.optional])

    def compute(self, cursor: psycopg.Cursor[Any], grain: Grain, finer: Grain, bucket: datetime) -> None:
        """Compute a bucket from the finer rows, and replace the stored rows.

        Args:
            cursor: In the maintenance transaction.
            grain: Selects the table.
            finer: Selects the table that it is computed from.
            bucket: The beginning of the bucket.
        """
        cursor.execute(
            sql.SQL(
                "INSERT INTO {table} AS old (bucket, {columns}) "
                "SELECT {bucket}, {key}, {values} FROM {finer} "
                "WHERE bucket >= {bucket} AND bucket < {end} GROUP BY {key} "
                "ON CONFLICT ({target}) DO UPDATE SET {changes} WHERE ({old}) IS DISTINCT FROM ({new})"
            ).format(
                table=sql.Identifier(self.table(grain)),
                finer=sql.Identifier(self.table(finer)),
                columns=_names([*self.key, *self.values]),
                key=_names(self.key),
                target=_names([self.key[0], "bucket", *self.key[1:]]),
                values=sql.SQL(", ").join(
                    sql.SQL(_COUNTS_OVER_ROWS if name in self.counts else _OVER_ROWS[how]).format(
                        sql.Identifier(name)
                    )
                    for name, how in self.values.items()
                ),
                changes=_assignments(dict.fromkeys(self.values, "excluded.{0}")),
                old=_names(self.values, "old"),
                new=_names(self.values, "excluded"),
                bucket=sql.Literal(bucket),
                end=sql.Literal(bucket + grain.length),
            )
        )


def _names(names: Any, table: str | None = None) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(*filter(None, (table, name))) for name in names)


def _assignments(expressions: dict[str, str]) -> sql.Composed:
    return sql.SQL(", ").join(
        sql.SQL("{0} = " + expression).format(sql.Identifier(name))
        for name, expression in expressions.items()
    )


_STATISTICS: Final[dict[str, Combination]] = {
    "points": "add",
    "sum": "add",
    "min": "least",
    "max": "greatest",
    "pushed_sum": "add",
}
_KEPT: Final[dict[str, Combination]] = {"sum": "add", "points": "add", "max": "greatest"}

SERIES: Final = Totals(
    name="rollup", key=("series_id",), values=_STATISTICS, counts=("points",), optional="pushed_sum"
)
FLEETS: Final = Totals(
    name="fleet_rollup", key=("fleet_id",), values=_STATISTICS, counts=("points",), optional="pushed_sum"
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
