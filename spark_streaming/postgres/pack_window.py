"""Packs one kind of totals of one window, in the transaction of the caller.

A window is packed as a whole, or in steps:

- *As a whole*: pack all rows that count, then truncate the partition. No deletion of a row is
  written to the write-ahead log, and no dead row is left. Nothing stops batches meanwhile. So at
  the end, the transaction locks the partition and the row of ``horizon``, and checks that all rows
  of the partition are packed: no batch has noted the window, and no row is of a pending load.
- *In steps*: delete the rows of some keys and pack what was deleted. Late rows, small windows and
  those that can't be packed as a whole are packed in this way.

``TRUNCATE`` waits for readers, and readers wait for it. It waits for the partition and for the row
of ``horizon``, each for ``_LOCK_TIMEOUT``. Then it lets readers pass and tries again. A transaction
with an older snapshot would miss the rows, so the partition is truncated only while no other
connection has a snapshot. If that does not happen, the rows are deleted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any, Final

import psycopg
from psycopg import sql

from spark_streaming.postgres.database import APPLICATION
from spark_streaming.postgres.packed import PACKED_LOAD, as_rows, counting, to_pack
from spark_streaming.postgres.partitions import Partitions
from spark_streaming.postgres.spans import end
from spark_streaming.postgres.tables import MINUTES, Grain, Totals

#: About how many rows a step packs.
_STEP_ROWS: Final = 500_000
#: Bytes of a partition that is packed as a whole. Fewer are deleted quickly. More would keep
#: maintenance waiting for more than two minutes.
_MIN_WHOLE_BYTES: Final = 4 << 20
_MAX_WHOLE_BYTES: Final = 4 << 30
_LOCK_TIMEOUT: Final = "100ms"
_LOCK_TRIES: Final = 20
_LOCK_PAUSE_S: Final = 0.15
_ALL: Final = sql.SQL("true")


class WindowChangedError(Exception):
    """A batch has added rows while the window was packed.

    The transaction must be rolled back.
    """


class _PartitionInUseError(Exception):
    """Some rows are of a pending load, or a reader may miss them.

    Not ``psycopg.Rollback``, which psycopg does not catch where the connection breaks meanwhile.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One kind of totals of one window: the unit of packing."""

    totals: Totals
    grain: Grain
    """Of the rows."""
    start: datetime

    def __str__(self) -> str:
        return f"{self.totals.table(self.grain)} {self.start:%Y-%m-%dT%H:%MZ}"


class WindowPacking:
    """Packs a window.

    Args:
        cursor: In a transaction that holds the locks of packing and of the window.
        window: In ``repack``. Its buckets are in the table of slots, and the partition of its
            packed rows exists.
    """

    def __init__(self, cursor: psycopg.Cursor[Any], partitions: Partitions, window: Window) -> None:
        self._cursor = cursor
        self._partitions = partitions
        self._window = window
        self._totals, self._grain, self._start = window.totals, window.grain, window.start
        self._table = window.totals.table(window.grain)

    def pack(self, deadline: float, *, as_whole: bool = True) -> bool:
        """Pack the rows that count; return whether none is left and none came meanwhile.

        Args:
            deadline: No step begins after this time (``time.monotonic()``).

        Raises:
            WindowChangedError: Roll back and try again, with ``as_whole=False``.
        """
        noted = self._noted()
        if noted is None:
            # Another job has packed it.
            return True
        # A sort serves both groupings, and plans are too short for compilation.
        self._cursor.execute("SET LOCAL enable_hashagg = off; SET LOCAL jit = off")
        partition = self._whole_partition() if as_whole else None
        if partition is not None:
            self._pack_whole(partition, noted)
            is_done = True
        else:
            is_done = self._pack_steps(deadline)
        self._lock_horizon()
        is_changed = self._noted() != noted
        if is_changed and partition is not None:
            raise WindowChangedError
        if is_done and not is_changed:
            self._cursor.execute(
                "DELETE FROM repack WHERE (grain, start, kind) = (%s, %s, %s)", self._identity()
            )
        return is_done and not is_changed

    def _identity(self) -> tuple[str, datetime, str]:
        return (self._grain.name, self._start, self._totals.name)

    def _noted(self) -> int | None:
        """How many times batches have noted the window; None if nothing is to be packed."""
        row = self._cursor.execute(
            "SELECT noted FROM repack WHERE (grain, start, kind) = (%s, %s, %s)", self._identity()
        ).fetchone()
        return None if row is None else int(row[0])

    def _lock_horizon(self) -> None:
        """Let no batch commit rows of closed windows until the end of the transaction."""
        self._cursor.execute("SELECT FROM horizon FOR UPDATE")

    # As a whole

    def _whole_partition(self) -> str | None:
        """Return the partition that has this window only, if it can be packed as a whole."""
        name = self._partitions.exactly(self._table, self._start)
        if name is None or is_packed(self._cursor, self._window):
            return None
        ((size,),) = self._cursor.execute(
            sql.SQL("SELECT pg_relation_size({}::regclass)").format(sql.Literal(f'"{name}"'))
        )
        if not _MIN_WHOLE_BYTES <= size <= _MAX_WHOLE_BYTES or self._has_pending_rows(name):
            return None
        return name

    def _pack_whole(self, partition: str, noted: int) -> None:
        key = names([*self._totals.key, "bucket"])
        # Reading in the order of an index would touch each page for each of its rows.
        self._cursor.execute("SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off")
        self._cursor.execute(
            to_pack(
                self._totals,
                self._grain,
                self._start,
                sql.SQL("SELECT {key}, {values} FROM {partition} WHERE {counting} GROUP BY {key}").format(
                    key=key,
                    values=self._totals.combined(),
                    partition=self._source(partition),
                    counting=counting(self._grain),
                ),
            )
        )
        self._cursor.execute("SET LOCAL enable_indexscan = on; SET LOCAL enable_bitmapscan = on")
        for _ in range(_LOCK_TRIES):
            if self._try_truncate(partition, noted):
                return
            time.sleep(_LOCK_PAUSE_S)
        if self._grain is not MINUTES:
            self._lock_against_batches(partition)
        # If a batch lets other rows count before, the transaction is rolled back.
        self._cursor.execute(
            sql.SQL("DELETE FROM {} WHERE {}").format(sql.Identifier(partition), counting(self._grain))
        )

    def _source(self, partition: str) -> sql.Composable:
        """The rows to pack, with a load id."""
        if self._grain is MINUTES:
            return sql.Identifier(partition)
        return sql.SQL("(SELECT *, 0 AS load_id FROM {}) AS found").format(sql.Identifier(partition))

    def _try_truncate(self, partition: str, noted: int) -> bool:
        """Truncate a partition whose rows are all packed, unless somebody holds it.

        Raises:
            WindowChangedError: There may be rows that are not packed.
        """
        try:
            with self._cursor.connection.transaction():
                self._cursor.execute(
                    sql.SQL("SET LOCAL lock_timeout = {}; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(
                        sql.Literal(_LOCK_TIMEOUT), sql.Identifier(partition)
                    )
                )
                self._lock_horizon()
                if self._noted() != noted:
                    raise WindowChangedError
                if self._has_pending_rows(partition) or self._has_other_snapshots():
                    raise _PartitionInUseError
                self._cursor.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(partition)))
        except (psycopg.errors.LockNotAvailable, _PartitionInUseError):
            return False
        return True

    def _has_pending_rows(self, partition: str) -> bool:
        if self._grain is not MINUTES:
            return False
        pending = [load_id for (load_id,) in self._cursor.execute("SELECT load_id FROM pending_load")]
        if not pending:
            return False
        # With the index of loads, because readers may be waiting.
        self._cursor.execute("SET LOCAL enable_seqscan = off")
        query = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE load_id = ANY(%s))")
        ((found,),) = self._cursor.execute(query.format(sql.Identifier(partition)), [pending])
        self._cursor.execute("SET LOCAL enable_seqscan = on")
        return bool(found)

    def _has_other_snapshots(self) -> bool:
        """Whether another's connection may read with an older snapshot."""
        self._cursor.execute("SELECT pg_stat_clear_snapshot()")
        ((found,),) = self._cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND usesysid IS NOT NULL AND backend_xmin IS NOT NULL "
            "AND application_name NOT LIKE %s)",
            [f"{APPLICATION}%"],
        )
        return bool(found)

    # In steps

    def _pack_steps(self, deadline: float) -> bool:
        if not self._partitions.has(self._table, self._start):
            return True
        if self._grain is not MINUTES:
            # Batches update these rows, in another order.
            self._lock_against_batches(self._partitions.holding(self._table, self._start))
        least: int | None = None
        while has_rows(self._cursor, self._window, _counting(self._totals, self._grain, least, None)):
            if monotonic() > deadline:
                return False
            most = self._end_of_step(least)
            pack_rows(self._cursor, self._window, _between(self._totals, least, most))
            if most is None:
                break
            least = most + 1
        return True

    def _lock_against_batches(self, partition: str) -> None:
        """Let batches wait before they lock rows.

        Row by row there would be deadlocks.
        """
        self._cursor.execute(
            sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(sql.Identifier(partition))
        )

    def _end_of_step(self, least: int | None) -> int | None:
        """Return the greatest key of the next step; None if it has all keys that are left."""
        query = sql.SQL(
            "SELECT {key} FROM {table} WHERE {window} AND {keys} ORDER BY {key} OFFSET {rows} LIMIT 1"
        ).format(
            key=sql.Identifier(self._totals.key[0]),
            table=sql.Identifier(self._table),
            window=_within(self._grain, self._start),
            keys=_counting(self._totals, self._grain, least, None),
            rows=sql.Literal(_STEP_ROWS),
        )
        row = self._cursor.execute(query).fetchone()
        return None if row is None else int(row[0])


def has_rows(cursor: psycopg.Cursor[Any], window: Window, condition: sql.Composable) -> bool:
    """Return whether a window has open rows with a condition.

    Its partition must exist.
    """
    query = sql.SQL("SELECT EXISTS (SELECT FROM {table} WHERE {window} AND {condition})").format(
        table=sql.Identifier(window.totals.table(window.grain)),
        window=_within(window.grain, window.start),
        condition=condition,
    )
    ((found,),) = cursor.execute(query)
    return bool(found)


def is_packed(cursor: psycopg.Cursor[Any], window: Window, keys: sql.Composable = _ALL) -> bool:
    """Return whether a window has packed rows with a condition on their keys."""
    query = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE start = {} AND {})").format(
        sql.Identifier(window.totals.packed_table(window.grain)), sql.Literal(window.start), keys
    )
    ((found,),) = cursor.execute(query)
    return bool(found)


def pack_rows(cursor: psycopg.Cursor[Any], window: Window, keys: sql.Composable) -> None:
    """Delete the open rows that count, and add them to the packed rows.

    Args:
        cursor: In the transaction.
        keys: A condition on their keys.
    """
    totals, grain, start = window.totals, window.grain, window.start
    columns = names(["bucket", *totals.key, *totals.values])
    found: sql.Composable = sql.SQL("SELECT * FROM moved")
    if is_packed(cursor, window, keys):
        found = sql.SQL(
            "SELECT * FROM moved "
            "UNION ALL SELECT {columns}, {packed_load} FROM ({packed}) AS packed_rows "
            "WHERE ({key}) IN (SELECT {key} FROM moved)"
        ).format(
            key=names(totals.key),
            columns=columns,
            packed_load=sql.Literal(PACKED_LOAD),
            packed=as_rows(totals, grain, start=start),
        )
    rows = sql.SQL("SELECT {key}, bucket, {values} FROM ({found}) AS found GROUP BY {key}, bucket").format(
        key=names(totals.key), values=totals.combined(), found=found
    )
    cursor.execute(
        sql.SQL(
            "WITH moved AS (DELETE FROM {table} WHERE {window} AND {keys} AND {counting} "
            "RETURNING {columns}, {load_id} AS load_id) {pack}"
        ).format(
            table=sql.Identifier(totals.table(grain)),
            window=_within(grain, start),
            keys=keys,
            counting=counting(grain),
            columns=columns,
            load_id=sql.SQL("load_id" if grain is MINUTES else "0"),
            pack=to_pack(totals, grain, start, rows),
        )
    )


def names(columns: Iterable[str]) -> sql.Composed:
    """Return a list of columns."""
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _within(grain: Grain, start: datetime) -> sql.Composed:
    """The condition that a row is in a window."""
    return sql.SQL("bucket >= {} AND bucket < {}").format(
        sql.Literal(start), sql.Literal(end(grain.window, start))
    )


def _counting(totals: Totals, grain: Grain, least: int | None, most: int | None) -> sql.Composed:
    """The condition that an open row counts, and that its first key is in a range."""
    return sql.SQL("{} AND {}").format(_between(totals, least, most), counting(grain))


def _between(totals: Totals, least: int | None, most: int | None) -> sql.Composed:
    """The condition that the first key is in a range; None has no bound."""
    bounds = [("{} >= {}", least), ("{} <= {}", most)]
    return sql.SQL(" AND ").join(
        [
            sql.SQL("true"),
            *(
                sql.SQL(text).format(sql.Identifier(totals.key[0]), sql.Literal(bound))
                for text, bound in bounds
                if bound is not None
            ),
        ]
    )
