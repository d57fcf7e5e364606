"""Finds and adds series.

Each change is a short transaction, before the load that needs it.

A series without points does no harm: it expires. So it may be added for a batch that is never
committed.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from spark_streaming.postgres.new_series import Newcomers, Refused, refuse
from spark_streaming.postgres.reasons import MAX_REASONS, base_of, digest, fold_reasons
from spark_streaming.postgres.series_cache import FoundSeries, SeriesCache
from spark_streaming.postgres.staging import stage
from spark_streaming.postgres.tables import FLEETS, GRAINS, SERIES, TOTALS
from spark_streaming.postgres.values import StoreError

Ids = npt.NDArray[np.int64]

#: The tables of what totals are about, and their ids.
_SUBJECTS: Final = {"series": SERIES.key[0], "fleet_series": FLEETS.key[0]}
#: Dimensions of a fleet series.
_FLEET: Final = ("metric", "cluster_id", "client_software_name", "client_software_version")


class Added(NamedTuple):
    """The result of :func:`add`."""

    folded: int
    """The number of series that are added up as another one."""
    refused: Refused | None
    """The series over a bound, which were not added; None if there are none."""


def find(cursor: psycopg.Cursor[Any], cache: SeriesCache, high: Ids, low: Ids) -> FoundSeries:
    """Find the ids of series hashes, and mark uncached ones as used today.

    Args:
        cursor: In a transaction that holds the lock of series, if the cache lacks one.
    """
    found = cache.find(high, low)
    asked = np.flatnonzero(~found.known)
    if len(asked):
        cursor.execute(
            "SELECT w.position, s.series_id, s.fleet_id FROM unnest(%s::bigint[], %s::bigint[]) "
            "WITH ORDINALITY AS w (series_high, series_low, position) "
            "JOIN series s USING (series_high, series_low)",
            (high[asked].tolist(), low[asked].tolist()),
        )
        rows = np.array(cursor.fetchall(), np.int64).reshape(-1, 3)
        at = asked[rows[:, 0] - 1]
        found.known[at], found.series[at], found.fleet[at] = True, rows[:, 1], rows[:, 2]
        if len(at):
            mark_used(cursor, rows[:, 1])
            cache.add(np.stack((high[at], low[at], rows[:, 1], rows[:, 2]), axis=1))
    return found


def add(
    cursor: psycopg.Cursor[Any], cache: SeriesCache, series: pa.Table, newcomers: Newcomers | None = None
) -> Added:
    """Add ``SERIES_ROWS``, and hashes to stored series without one.

    Of series that differ only in ``reason`` or ``error``, :data:`~.reasons.MAX_REASONS` are added.
    The hashes of others are found as the ids of one series, until the end of the day.

    Args:
        cursor: In a transaction that holds the lock of series.
        series: With distinct hashes.
        newcomers: The bounds of new ones; None for no bounds.

    Raises:
        StoreError: A stored series with the same hash has other dimensions.
    """
    stage(
        cursor,
        "staged",
        series.set_column(series.schema.get_field_index("rule"), "rule", series["rule"].cast(pa.int16())),
    )
    cursor.execute("ANALYZE pg_temp.staged")
    dimensions = [name for name in series.column_names if name not in ("series_high", "series_low")]
    names = {
        "all": sql.SQL(", ").join(map(sql.Identifier, series.column_names)),
        "fleet": sql.SQL(", ").join(map(sql.Identifier, _FLEET)),
        "new_fleet": digest("s", _FLEET),
        "old_fleet": digest("f", _FLEET),
        "new": digest("s", [name for name in dimensions if name != "rule"]),
        "old": digest("o", [name for name in dimensions if name != "rule"]),
        "new_base": digest("s", base_of(dimensions)),
        "old_base": digest("o", base_of(dimensions)),
        "max_reasons": sql.Literal(MAX_REASONS),
    }
    # First, because the series of the fleet are bounded by those of clients.
    refused = None if newcomers is None else refuse(cursor, series, newcomers, names)
    for statement in (
        "INSERT INTO fleet_series ({fleet}, rule) SELECT {fleet}, rule FROM pg_temp.staged "
        "ORDER BY breakdown ON CONFLICT DO NOTHING",
        "UPDATE fleet_series f SET last_day = current_date FROM pg_temp.staged s "
        "WHERE {old_fleet} = {new_fleet} AND f.last_day < current_date",
        "UPDATE series o SET series_high = s.series_high, series_low = s.series_low, "
        "last_day = current_date FROM pg_temp.staged s "
        "WHERE o.series_high IS NULL AND {old} = {new}",
    ):
        cursor.execute(sql.SQL(statement).format(**names))
    has_reasons = pc.any(pc.or_(series["reason"].is_valid(), series["error"].is_valid())).as_py()
    folded = fold_reasons(cursor, dimensions, names) if has_reasons else []
    cursor.execute(
        sql.SQL(
            "INSERT INTO series (fleet_id, {all}) SELECT f.fleet_id, s.* FROM pg_temp.staged s "
            "JOIN fleet_series f ON {old_fleet} = {new_fleet} "
            "ON CONFLICT (series_high, series_low) DO NOTHING"
        ).format(**names)
    )
    cursor.execute(
        sql.SQL(
            "SELECT o.series_high, o.series_low, o.series_id, o.fleet_id, {old} = {new} "
            "FROM pg_temp.staged s JOIN series o USING (series_high, series_low)"
        ).format(**names)
    )
    found = cursor.fetchall()
    collisions = [series_id for _, _, series_id, _, is_same in found if not is_same]
    if collisions:
        raise StoreError(
            f"{len(collisions)} series have the hash of another series, for example of {collisions[0]}; "
            "the batch was rolled back. Stop all jobs of this database, delete the row of "
            "telemetry.id_key, and start them again"
        )
    rows = [*(row[:4] for row in found), *folded]
    cache.add(np.array(rows, np.int64).reshape(-1, 4))
    return Added(len(folded), refused)


def require(cursor: psycopg.Cursor[Any], cache: SeriesCache, ids: Ids) -> None:
    """Check that the database has these series, and mark uncached ones as used.

    Args:
        cursor: In a transaction that holds the lock of series.
        ids: Series ids of totals.

    Raises:
        StoreError: The database lacks one.
    """
    asked = cache.without(ids)
    if not len(asked):
        return
    cursor.execute("SELECT series_id FROM series WHERE series_id = ANY(%s::bigint[])", (asked.tolist(),))
    found = np.array([series_id for (series_id,) in cursor], np.int64)
    if len(found):
        mark_used(cursor, found)
        cache.add_ids(found)
    missing = np.setdiff1d(asked, found).tolist()
    if missing:
        raise StoreError(
            f"totals of {len(missing)} series that are not in the database, "
            f"one of them {min(missing)}: take ids from find_series()"
        )


def delete_unused(cursor: psycopg.Cursor[Any], before: datetime) -> None:
    """Delete the series that nobody pushed since a day, with their totals.

    Args:
        cursor: In the maintenance transaction. No task runs, and no cache has these series, because
            it has those of today only.
        before: The beginning of the day. Series whose last day is earlier are deleted.
    """
    # So few partitions are read.
    until = before + timedelta(days=1)
    for table, key in _SUBJECTS.items():
        cursor.execute(
            sql.SQL("DELETE FROM {} WHERE last_day < %s RETURNING {}").format(
                sql.Identifier(table), sql.Identifier(key)
            ),
            [before.date()],
        )
        ids = [found for (found,) in cursor]
        if not ids:
            continue
        for totals in (total for total in TOTALS if total.key[0] == key):
            for grain in GRAINS:
                tables = {totals.table(grain): "bucket", totals.packed_table(grain): "start"}
                for name, time in tables.items():
                    cursor.execute(
                        sql.SQL("DELETE FROM {} WHERE {} = ANY(%s::bigint[]) AND {} < %s").format(
                            *map(sql.Identifier, (name, key, time))
                        ),
                        [ids, until],
                    )


def mark_used(cursor: psycopg.Cursor[Any], series: Ids) -> None:
    """Note that series and theirs of the fleet are used today.

    Args:
        cursor: In a transaction that holds the lock of series.
        series: Series ids.
    """
    cursor.execute(
        "WITH used AS (UPDATE series SET last_day = current_date WHERE series_id = ANY(%(ids)s::bigint[]) "
        "AND last_day < current_date) "
        "UPDATE fleet_series SET last_day = current_date WHERE last_day < current_date "
        "AND fleet_id IN (SELECT fleet_id FROM series WHERE series_id = ANY(%(ids)s::bigint[]))",
        {"ids": series.tolist()},
    )
