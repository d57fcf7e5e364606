"""Owns the rows of client instances: who they are, where they stand, what is kept of each by minute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from spark_streaming.contributions import ClientState
from spark_streaming.postgres.staging import stage
from spark_streaming.postgres.tables import Combination
from spark_streaming.postgres.values import StoreError
from spark_streaming.rows import CLIENT_LABELS
from spark_streaming.watched import WATCHED

__all__ = ["AGGREGATES", "by_instance", "put_labels", "put_states", "states"]

#: Arrow's names for the ways in which values combine, over rows in order of time.
AGGREGATES: Final[dict[Combination, str]] = {
    "add": "sum",
    "least": "min",
    "greatest": "max",
    "any": "any",
    "newest": "last",
}
_STATE: Final = (
    "client_key",
    "minute",
    "last_ns",
    "push_interval_ms",
    "terminated",
    "covered_until",
    "counts",
    "cumulative",
)
_STATE_TYPES: Final = ("int8", "int8", "int8", "int8", "bool", "int8", "bytea", "bytea")


def states(
    cursor: psycopg.Cursor[Any], condition: sql.SQL, parameters: Sequence[Any]
) -> dict[int, ClientState]:
    """Where clients stand.

    Args:
        cursor: A binary one, in the transaction.
        condition: Of which clients, over the columns of ``client_state``.
        parameters: Of the condition.

    Returns:
        The states by client key; clients without state are left out.

    Raises:
        psycopg.Error: They can't be read.
    """
    columns = sql.SQL(", ").join(map(sql.Identifier, _STATE))
    query = sql.SQL("SELECT {} FROM client_state WHERE minute IS NOT NULL AND {}").format(columns, condition)
    return {
        row[0]: ClientState(**dict(zip(_STATE, row, strict=True)))
        for row in cursor.execute(query, parameters)
    }


def put_states(cursor: psycopg.Cursor[Any], changed: Sequence[ClientState]) -> None:
    """Keep where clients stand; see :meth:`Batch.put_clients`."""
    if not changed:
        return
    cursor.execute("DROP TABLE IF EXISTS pg_temp.staged_state")
    cursor.execute(
        "CREATE TEMPORARY TABLE staged_state (client_key bigint, minute bigint, last_ns bigint, "
        "push_interval_ms bigint, terminated boolean, covered_until bigint, counts bytea, cumulative bytea) "
        "ON COMMIT DROP"
    )
    with cursor.copy("COPY pg_temp.staged_state FROM STDIN (FORMAT binary)") as copy:
        copy.set_types(_STATE_TYPES)
        for one in changed:
            copy.write_row([getattr(one, name) for name in _STATE])
    cursor.execute("ANALYZE pg_temp.staged_state")
    cursor.execute(
        "UPDATE client_state old SET minute = new.minute, last_ns = new.last_ns, "
        "push_interval_ms = new.push_interval_ms, terminated = new.terminated, "
        "terminated_at = CASE WHEN new.terminated THEN coalesce(old.terminated_at, old.last_seen) END, "
        "covered_until = new.covered_until, counts = new.counts, cumulative = new.cumulative "
        "FROM pg_temp.staged_state new WHERE new.client_key = old.client_key"
    )
    if cursor.rowcount != len(changed):
        raise StoreError(
            f"{len(changed) - cursor.rowcount} of {len(changed)} clients' states are of clients without an "
            "entry: put_clients() needs the entries that the states were settled from"
        )


def put_labels(cursor: psycopg.Cursor[Any], entries: pa.Table) -> None:
    """Keep who clients are, and when they were heard of; see :meth:`Batch.put_clients`."""
    if entries.num_rows == 0:
        return
    columns = [
        "client_key",
        "client_instance_id",
        *CLIENT_LABELS,
        "push_interval_ms",
        "received_at_ns",
        "time_ns",
    ]
    stage(cursor, "staged", entries.select(columns))
    labels = sql.SQL(", ").join(map(sql.Identifier, CLIENT_LABELS))
    # A push without points has no labels: those that are known stay.
    newest = sql.SQL(", ").join(
        sql.SQL(
            "{0} = CASE WHEN excluded.last_seen >= old.last_seen THEN coalesce(excluded.{0}, old.{0}) "
            "ELSE coalesce(old.{0}, excluded.{0}) END"
        ).format(sql.Identifier(name))
        for name in CLIENT_LABELS
    )
    cursor.execute(
        sql.SQL(
            "INSERT INTO client_state AS old (client_key, client_instance_id, {labels}, push_interval_ms, "
            "terminated, first_seen, last_seen) "
            "SELECT DISTINCT ON (client_key) client_key, client_instance_id, {labels}, push_interval_ms, "
            "false, "
            "to_timestamp(min(received_at_ns) OVER mine / 1e9), "
            "to_timestamp(max(received_at_ns) OVER mine / 1e9) "
            "FROM pg_temp.staged WINDOW mine AS (PARTITION BY client_key) "
            "ORDER BY client_key, client_id IS NULL, received_at_ns DESC, time_ns DESC "
            "ON CONFLICT (client_key) DO UPDATE SET {newest}, push_interval_ms = excluded.push_interval_ms, "
            "first_seen = least(old.first_seen, excluded.first_seen), "
            "last_seen = greatest(old.last_seen, excluded.last_seen)"
        ).format(labels=labels, newest=newest)
    )


def by_instance(entries: pa.Table) -> pa.Table:
    """The columns that are added up by instance and minute, in order of time.

    Args:
        entries: ``ENTRY_ROWS``.

    Returns:
        ``client_key``, ``minute`` and the columns of ``telemetry.client_1m`` that are kept.
    """
    entries = entries.sort_by([("received_at_ns", "ascending"), ("time_ns", "ascending")])
    kept = entries.select(
        ["client_key", "minute", "pushes", "points", "terminating", "broker_id", "client_source_address"]
    )
    for name in ("pushes", "points"):
        kept = kept.set_column(kept.schema.get_field_index(name), name, kept[name].cast(pa.int64()))
    for number, slot in enumerate(WATCHED):
        kept = kept.append_column(slot.column, pc.list_element(entries["watched"], number))
    return kept
