"""Rows of payloads that could not be read."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import sql

from spark_streaming.postgres.staging import storable

#: Payloads that could not be read: source, reason, length, and the part that is kept.
DEAD_LETTER_ROWS: Final = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("position", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
#: Dead letters of pushes that a batch keeps, the first ones by position. The ledger counts all.
MAX_ROWS: Final = 1_000
#: Of these, those that keep their payload. All keep their reason.
MAX_PAYLOADS: Final = 100
_COLUMNS: Final = "query_id, batch_id, source, position, reason, bytes"
_TYPES: Final = ("text", "int8", "text", "text", "text", "int8", "bytea")


def put(cursor: psycopg.Cursor[Any], letters: pa.Table, batch: tuple[str, int]) -> None:
    """Insert ``DEAD_LETTER_ROWS`` of a batch, given by query id and number."""
    _copy(cursor, "dead_letter", letters, batch)


def append(cursor: psycopg.Cursor[Any], letters: pa.Table, batch: tuple[str, int], load_id: int) -> None:
    """Append ``DEAD_LETTER_ROWS`` of a batch, which wait until :func:`enter`."""
    _copy(cursor, "dead_letter_load", letters, batch, load_id)


def enter(cursor: psycopg.Cursor[Any], load_ids: Collection[int]) -> None:
    """Insert the first letters of loads, and the first of these with their payloads."""
    cursor.execute(
        sql.SQL(
            "INSERT INTO dead_letter (seen_at, {columns}, payload) SELECT seen_at, {columns}, "
            "CASE WHEN row_number() OVER (ORDER BY position COLLATE {bytes}) <= {most} "
            "THEN payload ELSE '' END "
            "FROM dead_letter_load WHERE load_id = ANY(%s) ORDER BY position COLLATE {bytes} LIMIT {rows}"
        ).format(
            columns=sql.SQL(_COLUMNS),
            most=sql.Literal(MAX_PAYLOADS),
            rows=sql.Literal(MAX_ROWS),
            bytes=sql.Identifier("C"),
        ),
        [list(load_ids)],
    )


def expire(cursor: psycopg.Cursor[Any], before: datetime, most: int) -> None:
    """Delete the letters seen before a time, and all but the newest ones."""
    cursor.execute(
        "DELETE FROM dead_letter WHERE seen_at < greatest(%s, "
        "(SELECT seen_at FROM dead_letter ORDER BY seen_at DESC OFFSET %s LIMIT 1))",
        [before, most - 1],
    )


def without(cursor: psycopg.Cursor[Any], positions: Iterable[str]) -> set[str]:
    """Return the positions in a source that no dead letter has."""
    asked = set(positions)
    if asked:
        found = cursor.execute("SELECT position FROM dead_letter WHERE position = ANY(%s)", [sorted(asked)])
        asked.difference_update(position for (position,) in found)
    return asked


def _copy(
    cursor: psycopg.Cursor[Any],
    table: str,
    letters: pa.Table,
    batch: tuple[str, int],
    *load_id: int,
) -> None:
    texts = [storable(letters[name]).to_pylist() for name in ("source", "position", "reason")]
    others = [letters[name].to_pylist() for name in ("bytes", "payload")]
    more = ", payload, load_id" if load_id else ", payload"
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        sql.Identifier(table), sql.SQL(_COLUMNS + more)
    )
    with cursor.copy(statement) as copy:
        copy.set_types([*_TYPES, *("int8" for _ in load_id)])
        for letter in zip(*texts, *others, strict=True):
            copy.write_row((*batch, *letter, *load_id))
