"""Reads the status of the store."""

from __future__ import annotations

from typing import Any, Final

import psycopg

from spark_streaming.postgres.values import LastBatch, Status

_QUERIES: Final = (
    "SELECT DISTINCT ON (query_id) query_id, batch_id, committed_at, newest_received_at FROM ledger "
    "ORDER BY query_id, batch_id DESC"
)
_COUNTS: Final = (
    "SELECT (SELECT max(name) FROM migration), coalesce(sum(pushes), 0)::bigint, "
    "coalesce(sum(repeats), 0)::bigint, coalesce(sum(left_out), 0)::bigint, (SELECT count(*) FROM series), "
    "(SELECT count(*) FROM dead_letter), (SELECT count(*) FROM finding WHERE resolved_at IS NULL), "
    "(SELECT count(*) FROM coarse WHERE dirty), (SELECT minutes_from FROM horizon), "
    "(SELECT read_until FROM horizon) FROM ledger"
)
#: Without open minutes, the newest is in the newest packed hour.
_NEWEST: Final = (
    "SELECT coalesce((SELECT max(bucket) FROM fleet_rollup_1m), (SELECT max(bucket) FROM fleet_1m "
    "WHERE since = (SELECT max(start) FROM fleet_rollup_1m_packed)))"
)
_CLIENTS: Final = "SELECT state, count(*) FROM client GROUP BY state"
_BYTES: Final = (
    "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class "
    "WHERE relnamespace = 'telemetry'::regnamespace AND relkind = 'r'"
)


def status(connection: psycopg.Connection[Any]) -> Status:
    """Read the status in the connection's transaction."""
    queries = [
        LastBatch(query_id=a, batch_id=b, committed_at=c, newest_received_at=d)
        for a, b, c, d in connection.execute(_QUERIES)
    ]
    (counts,) = connection.execute(_COUNTS)
    ((newest,),) = connection.execute(_NEWEST)
    ((size,),) = connection.execute(_BYTES)
    schema, pushes, repeats, left_out, series, dead_letters, findings, stale, minutes_from, read_until = (
        counts
    )
    return Status(
        schema=schema,
        queries=tuple(sorted(queries, key=lambda query: query.committed_at, reverse=True)),
        pushes=pushes,
        repeats=repeats,
        left_out=left_out,
        clients={"live": 0, "silent": 0, "disconnected": 0, "left": 0}
        | dict(connection.execute(_CLIENTS).fetchall()),
        series=series,
        dead_letters=dead_letters,
        open_findings=findings,
        stale_hours=stale,
        minutes_from=minutes_from,
        read_until=read_until,
        newest_bucket=newest,
        bytes=size,
    )
