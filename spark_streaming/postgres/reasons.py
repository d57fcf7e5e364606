"""Bounds the series that differ only in ``reason`` or ``error``.

Clients choose these texts, and some put ids or times into them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import psycopg
from psycopg import sql

#: Series with the same other dimensions. Values of further ones go to the series :data:`OTHER`.
MAX_REASONS: Final = 100
OTHER: Final = "other"

_BOUNDED: Final = ("reason", "error")
#: The same series but for the hash. The first condition is that of the index.
_IS_SAME: Final = (
    "(o.reason IS NOT NULL OR o.error IS NOT NULL) AND {old_base} = {new_base} "
    "AND (o.reason, o.error) IS NOT DISTINCT FROM (s.reason, s.error)"
)
_FOLD: Final = (
    "DROP TABLE IF EXISTS pg_temp.folded",
    # New series beyond the bound, together with those that are stored.
    "CREATE TEMPORARY TABLE folded ON COMMIT DROP AS WITH "
    "new AS (SELECT s.*, {new_base} AS base FROM pg_temp.staged s "
    "WHERE (s.reason IS NOT NULL OR s.error IS NOT NULL) AND NOT EXISTS "
    "(SELECT FROM series o WHERE (o.series_high, o.series_low) = (s.series_high, s.series_low))), "
    "stored AS (SELECT b.base, count(*) AS size FROM (SELECT DISTINCT base FROM new) b JOIN series o "
    "ON {old_base} = b.base AND (o.reason IS NOT NULL OR o.error IS NOT NULL) GROUP BY b.base), "
    "numbered AS (SELECT new.*, coalesce(size, 0) + row_number() OVER ("
    "PARTITION BY base ORDER BY series_high, series_low) AS number FROM new LEFT JOIN stored USING (base)) "
    "SELECT {all} FROM numbered WHERE number > {max}",
    "DELETE FROM pg_temp.staged s USING pg_temp.folded f "
    "WHERE (s.series_high, s.series_low) = (f.series_high, f.series_low)",
    "UPDATE pg_temp.folded SET reason = CASE WHEN reason IS NOT NULL THEN {other} END, "
    "error = CASE WHEN error IS NOT NULL THEN {other} END",
    # Without a hash. It gets one if a client sends this text within the bound.
    "INSERT INTO series (fleet_id, {dimensions}) "
    "SELECT DISTINCT ON ({new_base}, s.reason, s.error) f.fleet_id, {values} "
    "FROM pg_temp.folded s JOIN fleet_series f ON {old_fleet} = {new_fleet} "
    "WHERE NOT EXISTS (SELECT FROM series o WHERE {is_same})",
    "UPDATE series o SET last_day = current_date FROM pg_temp.folded s WHERE {is_same} "
    "AND o.last_day < current_date",
)
_FOUND: Final = (
    "SELECT DISTINCT ON (s.series_high, s.series_low) s.series_high, s.series_low, o.series_id, o.fleet_id "
    "FROM pg_temp.folded s JOIN series o ON {is_same}"
)


def digest(table: str, names: Iterable[str]) -> sql.Composed:
    """Return the SQL of the digest of a row's dimensions, as in the tables' indexes."""
    columns = (
        sql.SQL("{}::text" if name == "breakdown" else "{}").format(sql.Identifier(table, name))
        for name in names
    )
    return sql.SQL("texts_digest({})").format(sql.SQL(", ").join(columns))


def base_of(dimensions: Iterable[str]) -> list[str]:
    """Return the dimensions beside reason and error."""
    return [name for name in dimensions if name not in ("rule", *_BOUNDED)]


def fold_reasons(
    cursor: psycopg.Cursor[Any], dimensions: Sequence[str], names: Mapping[str, sql.Composable]
) -> list[tuple[int, int, int, int]]:
    """Take the series beyond :data:`MAX_REASONS` out of ``pg_temp.staged``.

    Args:
        cursor: In a transaction that has staged new series, and has added their fleet series.
        dimensions: Columns of series but the hash, in the order of the tables' indexes.
        names: Parts of statements: ``all`` columns of the staged series; ``old_fleet`` and
            ``new_fleet``, the digests of fleet series ``f`` and of a series ``s``; ``old_base`` and
            ``new_base``, those of series ``o`` and ``s`` without reason and error.

    Returns:
        For each: both halves of its hash, and the ids of the series that gets its values and of the
        fleet series.
    """
    names = {
        **names,
        "dimensions": sql.SQL(", ").join(map(sql.Identifier, dimensions)),
        "values": sql.SQL(", ").join(sql.Identifier("s", name) for name in dimensions),
        "max": sql.Literal(MAX_REASONS),
        "other": sql.Literal(OTHER),
    }
    names["is_same"] = sql.SQL(_IS_SAME).format(**names)
    for statement in _FOLD:
        cursor.execute(sql.SQL(statement).format(**names))
    return cursor.execute(sql.SQL(_FOUND).format(**names)).fetchall()
