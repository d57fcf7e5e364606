"""Rows of client instances: labels, state, and values by minute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from spark_streaming.contributions import ClientState
from spark_streaming.postgres.staging import storable
from spark_streaming.postgres.tables import Combination
from spark_streaming.postgres.values import StoreError
from spark_streaming.rows import CLIENT_LABELS
from spark_streaming.watched import WATCHED

#: Arrow's aggregation for each combination, over rows in order of time.
AGGREGATES: Final[dict[Combination, str]] = {
    "add": "sum",
    "least": "min",
    "greatest": "max",
    "any": "any",
    "newest": "last",
}
_STATE_BUT_KEY: Final = {
    "minute": "int8",
    "last_ns": "int8",
    "push_interval_ms": "int8",
    "terminated": "bool",
    "covered_until": "int8",
    "carried_from": "int8",
    "counts": "bytea",
    "cumulative": "bytea",
}
#: The fields of ``ClientState``, in their order.
_STATE: Final = {"client_key": "int8", **_STATE_BUT_KEY}
_LABELS: Final = {"client_key": "int8", "client_instance_id": "text", **dict.fromkeys(CLIENT_LABELS, "text")}
_WAITING: Final = {
    **_LABELS,
    "heard_interval_ms": "int8",
    "first_ns": "int8",
    "heard_ns": "int8",
    **_STATE_BUT_KEY,
    "load_id": "int8",
}


def states(
    cursor: psycopg.Cursor[Any], condition: sql.SQL, parameters: Sequence[Any]
) -> dict[int, ClientState]:
    """Return the states of clients that have one, by key; ``cursor`` is binary."""
    columns = sql.SQL(", ").join(map(sql.Identifier, _STATE))
    query = sql.SQL("SELECT {} FROM client_state WHERE minute IS NOT NULL AND {}").format(columns, condition)
    return {row[0]: ClientState._make(row) for row in cursor.execute(query, parameters)}


def keys(cursor: psycopg.Cursor[Any], instances: Sequence[str]) -> dict[str, int]:
    """Return the keys of client instances. New instances get new keys.

    Args:
        cursor: In a transaction.
        instances: Distinct ids. An entry of each must be appended.
    """
    cursor.execute(
        "SELECT client_instance_id, client_key FROM client_state WHERE client_instance_id = ANY(%s)",
        [list(instances)],
    )
    found: dict[str, int] = dict(cursor.fetchall())
    new = [instance for instance in instances if instance not in found]
    if new:
        cursor.execute("SELECT nextval('client_state_id') FROM generate_series(1, %s)", [len(new)])
        found.update(zip(new, (key for (key,) in cursor.fetchall()), strict=True))
    return found


def append(
    cursor: psycopg.Cursor[Any], changed: Sequence[ClientState], entries: pa.Table, load_id: int
) -> int:
    """Append states and labels of clients, which wait until :func:`enter`.

    Returns the number of rows.

    Args:
        cursor: In the transaction of the load.
        changed: Replace the stored states.
        entries: ``ENTRY_ROWS``. The newest of each client has its labels.

    Raises:
        StoreError: A state belongs to a client without an entry.
    """
    states = {state.client_key: state for state in changed}
    pushed = _newest(entries)
    own = [states.pop(key, None) for key in pushed["client_key"].to_pylist()]
    if states:
        raise _without_entry(len(states), len(changed))
    columns = [
        (storable(column) if column.type == pa.string() else column).to_pylist() for column in pushed.columns
    ]
    no_state = (None,) * len(_STATE_BUT_KEY)
    _copy(
        cursor,
        "client_load",
        _WAITING,
        (
            [*labels, *(no_state if state is None else state[1:]), load_id]
            for *labels, state in zip(*columns, own, strict=True)
        ),
    )
    return len(own)


def split(cursor: psycopg.Cursor[Any], load_ids: Sequence[int]) -> list[str]:
    """Return the instances that several of the loads have."""
    found = cursor.execute(
        "SELECT client_instance_id FROM client_load WHERE load_id = ANY(%s) "
        "GROUP BY client_instance_id HAVING count(*) > 1",
        [list(load_ids)],
    )
    return [instance for (instance,) in found]


def enter(cursor: psycopg.Cursor[Any], load_ids: Sequence[int]) -> None:
    """Store the states and labels of loads."""
    # Stored labels stay, because a push without points has none.
    labels = sql.SQL(", ").join(
        sql.SQL(
            "{0} = CASE WHEN excluded.last_seen >= old.last_seen THEN coalesce(excluded.{0}, old.{0}) "
            "ELSE coalesce(old.{0}, excluded.{0}) END"
        ).format(sql.Identifier(name))
        for name in CLIENT_LABELS
    )
    # One statement, because each would rewrite the whole row and its index entries.
    cursor.execute(
        sql.SQL(
            "INSERT INTO client_state AS old ({columns}, first_seen, last_seen, push_interval_ms, minute, "
            "last_ns, terminated, terminated_at, covered_until, carried_from, counts, cumulative) "
            "SELECT {columns}, to_timestamp(first_ns / 1e9), to_timestamp(heard_ns / 1e9), "
            "coalesce(push_interval_ms, heard_interval_ms), minute, last_ns, coalesce(terminated, false), "
            "CASE WHEN terminated THEN to_timestamp(heard_ns / 1e9) END, covered_until, carried_from, "
            "counts, cumulative "
            "FROM client_load WHERE load_id = ANY(%s) "
            "ON CONFLICT (client_key) DO UPDATE SET {labels}, push_interval_ms = excluded.push_interval_ms, "
            "first_seen = least(old.first_seen, excluded.first_seen), "
            "last_seen = greatest(old.last_seen, excluded.last_seen), "
            "minute = coalesce(excluded.minute, old.minute), "
            "last_ns = coalesce(excluded.last_ns, old.last_ns), "
            "terminated = CASE WHEN excluded.minute IS NULL THEN old.terminated "
            "ELSE excluded.terminated END, "
            "terminated_at = CASE WHEN excluded.minute IS NULL THEN old.terminated_at "
            "WHEN excluded.terminated "
            "THEN coalesce(old.terminated_at, greatest(old.last_seen, excluded.last_seen)) END, "
            "covered_until = coalesce(excluded.covered_until, old.covered_until), "
            "carried_from = coalesce(excluded.carried_from, old.carried_from), "
            "counts = coalesce(excluded.counts, old.counts), "
            "cumulative = coalesce(excluded.cumulative, old.cumulative)"
        ).format(columns=sql.SQL(", ").join(map(sql.Identifier, _LABELS)), labels=labels),
        [list(load_ids)],
    )


def disconnect(cursor: psycopg.Cursor[Any], ends_ns: Mapping[str, int]) -> None:
    """Store when connections ended, by client instance id; ignore unknown ones."""
    if ends_ns:
        cursor.execute(
            "UPDATE client_state c SET disconnected_at = "
            "greatest(c.disconnected_at, to_timestamp(ended.ns / 1e9)) "
            "FROM unnest(%s::text[], %s::bigint[]) AS ended (instance, ns) "
            "WHERE c.client_instance_id = ended.instance",
            (list(ends_ns), list(ends_ns.values())),
        )


def put_silent(cursor: psycopg.Cursor[Any], states: Sequence[ClientState]) -> None:
    """Store the states of clients without a new push.

    Raises:
        StoreError: There is no such client.
    """
    if not states:
        return
    columns = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in _STATE.items()
    )
    cursor.execute("DROP TABLE IF EXISTS pg_temp.staged_client")
    cursor.execute(sql.SQL("CREATE TEMPORARY TABLE staged_client ({}) ON COMMIT DROP").format(columns))
    _copy(cursor, "staged_client", _STATE, states)
    cursor.execute("ANALYZE pg_temp.staged_client")
    cursor.execute(
        "UPDATE client_state old SET minute = new.minute, last_ns = new.last_ns, "
        "push_interval_ms = new.push_interval_ms, terminated = new.terminated, "
        "terminated_at = CASE WHEN new.terminated THEN coalesce(old.terminated_at, old.last_seen) END, "
        "covered_until = new.covered_until, carried_from = new.carried_from, counts = new.counts, "
        "cumulative = new.cumulative "
        "FROM pg_temp.staged_client new WHERE new.client_key = old.client_key"
    )
    if cursor.rowcount != len(states):
        raise _without_entry(len(states) - cursor.rowcount, len(states))


def _newest(entries: pa.Table) -> pa.Table:
    """Return each client's newest labels, and first and last time of receipt."""
    client, received, time = (
        entries[name].to_numpy() for name in ("client_key", "received_at_ns", "time_ns")
    )
    # A push without points has no labels.
    without_labels = entries["client_id"].is_null().to_numpy()
    order = np.lexsort((-time, -received, without_labels, client))
    _, begins = np.unique(client[order], return_index=True)
    newest = entries.select([*_LABELS, "push_interval_ms"]).take(order[begins])
    for name, extreme in (("first_ns", np.minimum), ("heard_ns", np.maximum)):
        newest = newest.append_column(name, pa.array(extreme.reduceat(received[order], begins)))
    return newest


def _without_entry(missing: int, states: int) -> StoreError:
    return StoreError(
        f"{missing} of {states} client states belong to clients without an entry: "
        "pass the entries that were reconciled"
    )


def _copy(
    cursor: psycopg.Cursor[Any], table: str, types: Mapping[str, str], rows: Iterable[Sequence[Any]]
) -> None:
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, types))
    )
    with cursor.copy(statement) as copy:
        copy.set_types(list(types.values()))
        for row in rows:
            copy.write_row(row)


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
    asked = pc.multiply(kept["pushes"], entries["push_interval_ms"])
    kept = kept.append_column("push_interval_ms_sum", asked)
    for number, slot in enumerate(WATCHED):
        kept = kept.append_column(slot.column, pc.list_element(entries["watched"], number))
    return kept
