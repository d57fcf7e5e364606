"""Short builders of rows for the store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import psycopg
import pyarrow as pa

from spark_streaming.postgres import Batch
from spark_streaming.rows import BUCKET_ROWS, ENTRY_ROWS, ROLLUP_ROWS, SERIES_ROWS
from spark_streaming.watched import WATCHED

__all__ = ["MINUTE", "NOW_NS", "SERIES_ROWS", "buckets", "entries", "put_series", "read", "rows", "series"]

NOW_NS = time.time_ns() // 60_000_000_000 * 60_000_000_000
MINUTE = NOW_NS // 60_000_000_000


def read(database: str, query: str) -> list[tuple[Any, ...]]:
    """Return all rows of a query, as the owner."""
    with psycopg.connect(database) as connection:
        connection.execute("SET timezone = 'UTC'")
        return connection.execute(query.encode()).fetchall()


def rows(*values: Sequence[Any]) -> pa.Table:
    """Build ``ROLLUP_ROWS`` from values in the order of columns. The last one may be left out."""
    missing = len(ROLLUP_ROWS) - 1
    return _table(ROLLUP_ROWS, [(*row, None) if len(row) == missing else row for row in values])


def buckets(*values: Sequence[Any]) -> pa.Table:
    """Build ``BUCKET_ROWS`` from values in the order of columns."""
    return _table(BUCKET_ROWS, values)


def series(*values: tuple[int, str, bool], rule: int = 0, **labels: str | None) -> pa.Table:
    """Build ``SERIES_ROWS`` from (both halves of the hash, metric, breakdown)."""
    return pa.Table.from_pylist(
        [
            {
                "series_high": one,
                "series_low": one,
                "metric": metric,
                "breakdown": breakdown,
                "rule": rule,
                **labels,
            }
            for one, metric, breakdown in values
        ],
        SERIES_ROWS,
    )


def put_series(batch: Batch, *values: tuple[int, int, str, bool], rule: int = 0) -> None:
    """Insert series from (id, fleet id, metric, breakdown), unless they exist."""
    for one, fleet, metric, breakdown in values:
        batch.connection.execute(
            "INSERT INTO fleet_series (fleet_id, metric, rule) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            (fleet, metric, rule),
        )
        batch.connection.execute(
            "INSERT INTO series (series_id, fleet_id, metric, breakdown, rule) VALUES (%s, %s, %s, %s, %s) "
            "ON CONFLICT DO NOTHING",
            (one, fleet, metric, breakdown, rule),
        )


def entries(*values: tuple[int, int, str], **others: Any) -> pa.Table:
    """Build ``ENTRY_ROWS`` from (client key, minute, client id)."""
    return pa.Table.from_pylist(
        [
            {
                "push_id": f"{key:032x}",
                "received_at_ns": minute * 60_000_000_000,
                "terminating": False,
                "push_interval_ms": 60_000,
                "time_ns": minute * 60_000_000_000,
                "minute": minute,
                "client_key": key,
                "client_instance_id": f"instance-{key}",
                "client_id": client_id,
                "pushes": 1,
                "points": 10,
                "watched": [None] * len(WATCHED),
                **others,
            }
            for key, minute, client_id in values
        ],
        ENTRY_ROWS,
    )


def _table(schema: pa.Schema, values: Sequence[Sequence[Any]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in values], schema)
