"""Overflow series: they count the data points of series over a bound.

A client has one only beside its own series, so that clients can't add any number of them.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
from psycopg import sql

from spark_streaming.postgres.series import mark_used
from spark_streaming.postgres.series_cache import FoundSeries, SeriesCache
from spark_streaming.postgres.staging import stage
from spark_streaming.rows import CLIENT_DIMENSIONS, RULES

Ids = npt.NDArray[np.int64]

#: The metric under which the receiver counts what it leaves out.
OVERFLOW: Final = "kafka.client.telemetry.overflow"
#: The series that each client has once the first of its series is added.
_OWN: Final = "kafka.client.telemetry.pushes"

#: A client's series of a metric. The first conditions are those of an index.
_SERIES: Final = (
    "LEFT JOIN LATERAL (SELECT series_id, fleet_id FROM series s WHERE s.metric = {metric} "
    "AND (s.client_id = a.client_id OR s.client_id IS NULL AND a.client_id IS NULL) "
    "AND ({of_series}) IS NOT DISTINCT FROM ({of_asked}) AND NOT s.breakdown "
    "AND num_nonnulls(s.topic, s.node_id, s.node_role, s.reason, s.error, s.acks, s.partition) = 0 "
    "ORDER BY series_id LIMIT 1) {name} ON true "
)
_FIND: Final = (
    "SELECT a.position, o.series_id, o.fleet_id FROM pg_temp.asked a {overflow_series} "
    "WHERE o.series_id IS NOT NULL"
)
_ADD: Final = (
    "DELETE FROM pg_temp.asked WHERE position NOT IN (SELECT a.position FROM pg_temp.asked a "
    "{overflow_series} {own_series} WHERE o.series_id IS NULL AND own.series_id IS NOT NULL)",
    "INSERT INTO fleet_series (metric, cluster_id, client_software_name, client_software_version, rule) "
    "SELECT DISTINCT {overflow}, cluster_id, client_software_name, client_software_version, {rule} "
    "FROM pg_temp.asked ON CONFLICT DO NOTHING",
    # Without a hash. It gets one if the receiver sends this series.
    "INSERT INTO series (fleet_id, metric, {client}, breakdown, rule) "
    "SELECT f.fleet_id, {overflow}, {of_asked}, false, {rule} FROM pg_temp.asked a JOIN fleet_series f "
    "ON f.metric = {overflow} AND (f.cluster_id, f.client_software_name, f.client_software_version) "
    "IS NOT DISTINCT FROM (a.cluster_id, a.client_software_name, a.client_software_version)",
)


def keys(clients: pa.Table) -> tuple[Ids, Ids]:
    """Return what :class:`SeriesCache` finds these clients' overflow series by."""
    rows = zip(*(clients[name].to_pylist() for name in CLIENT_DIMENSIONS), strict=True)
    digests = [hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16) for row in rows]
    halves = np.frombuffer(b"".join(digest.digest() for digest in digests), np.int64).reshape(-1, 2)
    return halves[:, 0].copy(), halves[:, 1].copy()


def find(cursor: psycopg.Cursor[Any], cache: SeriesCache, clients: pa.Table) -> FoundSeries:
    """Find the overflow series of distinct clients, and add missing ones.

    Those found are marked as used. Clients without a series of their own get none.

    Args:
        cursor: In a transaction that holds the lock of series.
        clients: The columns ``CLIENT_DIMENSIONS``.
    """
    high, low = keys(clients)
    found = cache.find(high, low)
    asked = pa.array(np.flatnonzero(~found.known))
    stage(cursor, "asked", clients.take(asked).append_column("position", asked))
    _look_up(cursor, found)
    if not found.known.all():
        for statement in _ADD:
            cursor.execute(_statement(statement))
        _look_up(cursor, found)
    mark_used(cursor, found.series[found.known])
    cache.add(np.stack((high, low, found.series, found.fleet), axis=1)[found.known])
    return found


def _look_up(cursor: psycopg.Cursor[Any], found: FoundSeries) -> None:
    cursor.execute(_statement(_FIND))
    rows = np.array(cursor.fetchall(), np.int64).reshape(-1, 3)
    at = rows[:, 0]
    found.known[at], found.series[at], found.fleet[at] = True, rows[:, 1], rows[:, 2]


def _statement(text: str) -> sql.Composed:
    parts: dict[str, sql.Composable] = {
        "client": sql.SQL(", ").join(map(sql.Identifier, CLIENT_DIMENSIONS)),
        "of_series": sql.SQL(", ").join(sql.Identifier("s", name) for name in CLIENT_DIMENSIONS),
        "of_asked": sql.SQL(", ").join(sql.Identifier("a", name) for name in CLIENT_DIMENSIONS),
        "overflow": sql.Literal(OVERFLOW),
        "rule": sql.Literal(RULES.index("last")),
    }
    for name, metric in (("o", OVERFLOW), ("own", _OWN)):
        series = sql.SQL(_SERIES).format(metric=sql.Literal(metric), name=sql.Identifier(name), **parts)
        parts["overflow_series" if name == "o" else "own_series"] = series
    return sql.SQL(text).format(**parts)
