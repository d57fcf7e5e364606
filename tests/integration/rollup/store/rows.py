"""Short builders of rows for the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import psycopg
import pyarrow as pa

from spark_streaming.contributions import ClientState, Contribution
from spark_streaming.postgres import BatchStatistics, Store, Sums, TaskStore
from spark_streaming.rows import BUCKET_ROWS, ENTRY_ROWS, ROLLUP_ROWS, SERIES_ROWS
from spark_streaming.settings import RetentionSettings
from spark_streaming.watched import WATCHED

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
                "series_high": value,
                "series_low": value,
                "metric": metric,
                "breakdown": breakdown,
                "rule": rule,
                **labels,
            }
            for value, metric, breakdown in values
        ],
        SERIES_ROWS,
    )


def put_series(url: str, *values: tuple[int, int, str, bool], rule: int = 0) -> None:
    """Insert series from (id, fleet id, metric, breakdown), unless they exist."""
    with psycopg.connect(url) as connection:
        connection.execute("SET search_path = telemetry")
        for value, fleet, metric, breakdown in values:
            connection.execute(
                "INSERT INTO fleet_series (fleet_id, metric, rule) VALUES (%s, %s, %s) "
                "ON CONFLICT DO NOTHING",
                (fleet, metric, rule),
            )
            connection.execute(
                "INSERT INTO series (series_id, fleet_id, metric, breakdown, rule) "
                "VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                (value, fleet, metric, breakdown, rule),
            )


def statistics(**others: Any) -> BatchStatistics:
    """Build the statistics of a batch, with zeros for what is not given.

    Its newest push came at ``NOW_NS``. Without one, minutes would be whole until the time of the
    query, and two stores with the same rows would differ from a minute on.
    """
    names = ("pushes", "repeats", "points", "entries", "rows", "dead_letters", "left_out", "overflowed")
    return BatchStatistics(
        **{**dict.fromkeys(names, 0), "newest_received_at_ns": NOW_NS, "duration_s": 1.0, **others}
    )


def write_load(
    tasks: TaskStore,
    batch: tuple[str, int],
    *,
    totals: pa.Table | None = None,
    histograms: pa.Table | None = None,
    entries: pa.Table | None = None,
    minutes: pa.Table | None = None,
    states: Sequence[ClientState] = (),
    contributions: Sequence[Contribution] = (),
    pushes: Mapping[str, int] | None = None,
    letters: pa.Table | None = None,
) -> tuple[int, Sums]:
    """Write a load, and leave it pending.

    Args:
        tasks: The store of the task.
        batch: Query id and number.
        totals: ``ROLLUP_ROWS``.
        histograms: ``BUCKET_ROWS``.
        entries: ``ENTRY_ROWS`` of the clients' labels.
        minutes: ``ENTRY_ROWS`` to add up by client.
        states: States of clients.
        contributions: Contributions.
        pushes: Times of receipt by push id.
        letters: ``DEAD_LETTER_ROWS``.

    Returns:
        The load's id, and its totals.
    """
    horizons = tasks.begin()
    sums = Sums(horizons)
    if totals is not None:
        sums.add(totals)
    if histograms is not None:
        sums.add_buckets(histograms)
    if minutes is not None:
        sums.add_clients(minutes)
    days = tasks.days_of(pushes or {}, horizons)
    with tasks.load(horizons, sums, days, batch) as load:
        load.totals(sums)
        load.pushes(days)
        load.contributions(contributions)
        if entries is not None:
            load.clients(states, entries)
        if letters is not None:
            load.dead_letters(letters, batch)
        return load.load_id, sums


def take_in(
    store: Store,
    query_id: str,
    number: int,
    *,
    retention: RetentionSettings | None = None,
    recorded: BatchStatistics | None = None,
    then: Callable[[], object] = lambda: None,
    **load: Any,
) -> bool:
    """Commit a batch that one task has written.

    Args:
        store: The driver's store.
        query_id: Of the query.
        number: Of the batch.
        retention: That of the task.
        recorded: For the ledger.
        then: Called before the commit.
        load: As for :func:`write_load`.

    Returns:
        Whether the batch was not committed before.
    """
    with (
        store.batch(query_id, number) as batch,
        closing(TaskStore(store.url, retention=retention or RetentionSettings())) as tasks,
    ):
        if batch is None:
            return False
        load_id, sums = write_load(tasks, (query_id, number), **load)
        then()
        batch.enter([load_id], sums.first_minutes())
        batch.record(recorded or statistics(left_out=sums.left_out))
    return True


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
