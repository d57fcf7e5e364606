"""Loads: rows that one transaction appends under one id.

A load of a task is pending. It counts once the driver's transaction for the batch has entered it.
Readers skip the rows of pending loads. Loads of failed attempts and of dead drivers stay pending
until they are swept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import sql

from spark_streaming.contributions import ClientState, Contribution
from spark_streaming.postgres import clients, contributions, dead_letters, pushes
from spark_streaming.postgres.partitions import Partitions
from spark_streaming.postgres.sums import Sums
from spark_streaming.postgres.tables import GRAINS, MINUTES, TOTALS
from spark_streaming.postgres.values import StoreUnavailableError

#: Tables without a write-ahead log, whose rows wait for the driver.
_WAITING: Final = ("client_load", "dead_letter_load")
#: Kinds and grains whose rows may be too late for minutes.
_LATE: Final = tuple(
    (totals, grain)
    for totals in TOTALS
    for grain in GRAINS
    if grain is not MINUTES and grain.name in totals.grains
)
#: Loads that one maintenance sweeps.
_MAX_SWEPT: Final = 1000
#: A driver that returns later finds its loads gone, and repeats the batch.
_FORGOTTEN_AFTER: Final = "1 day"


def next_id(cursor: psycopg.Cursor[Any]) -> int:
    """Return a new load id."""
    ((load_id,),) = cursor.execute("SELECT nextval('load_id')")
    return int(load_id)


class Load:
    """Appends the rows of one load, in its transaction."""

    def __init__(self, connection: psycopg.Connection[Any], load_id: int) -> None:
        self.load_id = load_id
        self._cursor = connection.cursor()
        self._waiting = 0

    def totals(self, sums: Sums) -> None:
        """Append totals."""
        for totals, grain, table in sums.tables:
            totals.append(self._cursor, grain, table, self.load_id)
            if grain is not MINUTES:
                self._waiting += table.num_rows

    def pushes(self, days: Mapping[str, datetime]) -> None:
        """Append the ids of pushes, with their days."""
        pushes.append(self._cursor, days, self.load_id)

    def contributions(self, changed: Sequence[Contribution]) -> None:
        """Append contributions. Each replaces those of its client and minutes."""
        contributions.append(self._cursor, changed, self.load_id)

    def clients(self, changed: Sequence[ClientState], entries: pa.Table) -> None:
        """Append the states of clients, and the labels in ``ENTRY_ROWS``.

        Raises:
            StoreError: A state belongs to a client without an entry.
        """
        self._waiting += clients.append(self._cursor, changed, entries, self.load_id)

    def dead_letters(self, letters: pa.Table, batch: tuple[str, int]) -> None:
        """Append ``DEAD_LETTER_ROWS`` of a batch, given by query id and number."""
        dead_letters.append(self._cursor, letters, batch, self.load_id)
        self._waiting += letters.num_rows

    def leave_pending(self, batch: tuple[str, int]) -> None:
        """Leave it to the driver to enter the load. Must be last."""
        self._cursor.execute(
            "INSERT INTO pending_load (load_id, query_id, batch_id, staged) VALUES (%s, %s, %s, %s)",
            (self.load_id, *batch, self._waiting),
        )


def enter(
    cursor: psycopg.Cursor[Any], load_ids: Sequence[int], partitions: Partitions
) -> dict[str, list[datetime]]:
    """Let pending loads count; return hours and days with late rows, by grain.

    Args:
        cursor: In the driver's transaction for the batch.
        load_ids: The loads of the attempts that won.

    Raises:
        StoreUnavailableError: A load is gone. Repeat the batch.
    """
    ids = list(load_ids)
    found = cursor.execute(
        "DELETE FROM pending_load WHERE load_id = ANY(%s) RETURNING staged", [ids]
    ).fetchall()
    waiting = sum(staged for (staged,) in found)
    late_tables = [totals.waiting(grain) for totals, grain in _LATE]
    there, late_rows = _count(cursor, _WAITING, ids), _count(cursor, late_tables, ids)
    gone = waiting - there - late_rows
    if len(found) != len(ids) or gone:
        raise StoreUnavailableError(
            f"{len(ids) - len(found)} of {len(ids)} loads and {gone} of {waiting} waiting rows "
            "are gone, because the driver was away for long or PostgreSQL failed; the batch is repeated"
        )
    clients.enter(cursor, ids)
    dead_letters.enter(cursor, ids)
    _delete(cursor, _WAITING, ids)
    # Most batches have none.
    return add_late(cursor, ids, partitions) if late_rows else {grain.name: [] for grain in GRAINS}


def add_late(
    cursor: psycopg.Cursor[Any], load_ids: Sequence[int], partitions: Partitions
) -> dict[str, list[datetime]]:
    """Add rows that were too late for minutes; return the changed hours and days.

    Args:
        cursor: In the transaction that enters the loads.
    """
    changed: dict[str, list[datetime]] = {grain.name: [] for grain in GRAINS}
    for totals, grain in _LATE:
        changed[grain.name] += totals.add_waiting(cursor, grain, load_ids, partitions.ensure)
    _delete(cursor, [totals.waiting(grain) for totals, grain in _LATE], load_ids)
    return changed


def sweep(cursor: psycopg.Cursor[Any]) -> int:
    """Delete the rows of loads that will never count; return how many loads.

    They belong to a batch that was committed with other loads, or to a driver that did not return
    for a day.

    Args:
        cursor: In the maintenance transaction.
    """
    dead = [
        load_id
        for (load_id,) in cursor.execute(
            "SELECT load_id FROM pending_load p WHERE written_at < now() - %s::interval OR EXISTS "
            "(SELECT FROM ledger l WHERE l.query_id = p.query_id AND l.batch_id >= p.batch_id) "
            "ORDER BY load_id LIMIT %s",
            (_FORGOTTEN_AFTER, _MAX_SWEPT),
        )
    ]
    if dead:
        minutes = [totals.table(MINUTES) for totals in TOTALS]
        _delete(cursor, [*_waiting_tables(), "push", "contribution", *minutes, "pending_load"], dead)
    return len(dead)


def _count(cursor: psycopg.Cursor[Any], tables: Iterable[str], load_ids: Sequence[int]) -> int:
    counts = sql.SQL(" + ").join(
        sql.SQL("(SELECT count(*) FROM {} WHERE load_id = ANY(%(ids)s))").format(sql.Identifier(table))
        for table in tables
    )
    ((found,),) = cursor.execute(sql.SQL("SELECT {}").format(counts), {"ids": list(load_ids)}).fetchall()
    return int(found)


def _waiting_tables() -> list[str]:
    return [*_WAITING, *(totals.waiting(grain) for totals, grain in _LATE)]


def _delete(cursor: psycopg.Cursor[Any], tables: Iterable[str], load_ids: Sequence[int]) -> None:
    for table in tables:
        cursor.execute(
            sql.SQL("DELETE FROM {} WHERE load_id = ANY(%s)").format(sql.Identifier(table)), [list(load_ids)]
        )
