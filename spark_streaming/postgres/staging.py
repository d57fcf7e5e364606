"""Copies Arrow tables into PostgreSQL tables by text or binary COPY.

Client text is made storable: bounded, valid UTF-8, without NUL.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from psycopg import sql

_TYPES: Final[dict[pa.DataType, tuple[str, str]]] = {
    pa.int64(): ("bigint", ">i8"),
    pa.int32(): ("integer", ">i4"),
    pa.int16(): ("smallint", ">i2"),
    pa.float64(): ("double precision", ">f8"),
    pa.bool_(): ("boolean", "i1"),
    pa.timestamp("us", "UTC"): ("timestamp with time zone", ">i8"),
    pa.string(): ("text", ""),
}
#: First and last bytes of a binary COPY.
COPY_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_TRAILER: Final = b"\xff\xff"
#: Length of a null.
_NULL: Final = -1
#: PostgreSQL's epoch, 2000-01-01, in microseconds since 1970.
EPOCH_US: Final = 946_684_800_000_000
#: Three texts fit into one index entry of at most 2704 bytes.
_MAX_TEXT_BYTES: Final = 800


def stage(cursor: psycopg.Cursor[Any], name: str, table: pa.Table) -> None:
    """Copy a table into a temporary table, which lives until the transaction ends.

    Args:
        cursor: In a transaction.
        name: Name of the temporary table. An existing one is replaced.
        table: Columns of the types in ``_TYPES``.
    """
    columns = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(_TYPES[field.type][0]))
        for field in table.schema
    )
    target = sql.Identifier("pg_temp", name)
    cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(target))
    cursor.execute(
        sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP").format(sql.Identifier(name), columns)
    )
    append(cursor, target, table)


def append(cursor: psycopg.Cursor[Any], target: sql.Identifier, table: pa.Table) -> None:
    """Copy rows into an existing table."""
    textual = pa.string() in table.schema.types
    query = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT {})").format(
        target,
        sql.SQL(", ").join(map(sql.Identifier, table.column_names)),
        sql.SQL("csv" if textual else "binary"),
    )
    with cursor.copy(query) as copy:
        copy.write(_csv(table) if textual else _binary(table))


def storable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return text that PostgreSQL can store and index.

    Replaces NUL and invalid UTF-8 by U+FFFD, and cuts text to 800 bytes with an ellipsis.
    """
    encoded = column.combine_chunks().dictionary_encode()
    texts = [_storable(value) for value in encoded.dictionary.cast(pa.binary()).to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string()).take(encoded.indices)])


def _storable(value: bytes) -> str:
    text = value.decode("utf-8", "replace").replace("\0", "\ufffd")
    encoded = text.encode()
    if len(encoded) <= _MAX_TEXT_BYTES:
        return text
    return encoded[: _MAX_TEXT_BYTES - 3].decode("utf-8", "ignore") + "…"


def _csv(table: pa.Table) -> bytes:
    for index, field in enumerate(table.schema):
        if field.type == pa.string():
            table = table.set_column(index, field.name, storable(table[field.name]))
    # All text is quoted, so that PostgreSQL distinguishes empty text from null.
    sink = io.BytesIO()
    pyarrow.csv.write_csv(table, sink, pyarrow.csv.WriteOptions(include_header=False))
    return sink.getvalue()


def _binary(table: pa.Table) -> bytes:
    return b"".join((COPY_HEADER, *_rows(table), COPY_TRAILER))


def _rows(table: pa.Table) -> Iterator[bytes]:
    """Encode rows.

    Those with nulls in the same columns go together, because their length is fixed.
    """
    columns = [_encodable(table[field.name], field.type) for field in table.schema]
    kinds = np.zeros(table.num_rows, np.int64)
    for index, (_, is_null) in enumerate(columns):
        if is_null is not None:
            kinds |= is_null.astype(np.int64) << index
    for kind in np.unique(kinds).tolist():
        chosen = kinds == kind
        whole = bool(chosen.all())
        layout: list[tuple[str, str]] = [("columns", ">i2")]
        for index, field in enumerate(table.schema):
            layout.append((f"length{index}", ">i4"))
            if not kind >> index & 1:
                layout.append((f"value{index}", _TYPES[field.type][1]))
        rows = np.empty(int(chosen.sum()), np.dtype(layout))
        rows["columns"] = table.num_columns
        for index, (values, _) in enumerate(columns):
            if kind >> index & 1:
                rows[f"length{index}"] = _NULL
            else:
                rows[f"length{index}"] = rows.dtype[f"value{index}"].itemsize
                rows[f"value{index}"] = values if whole else values[chosen]
        yield rows.tobytes()


def _encodable(
    column: pa.ChunkedArray, kind: pa.DataType
) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.bool_] | None]:
    """Return the values, any in the place of nulls, and a mask of the nulls."""
    is_null = column.is_null().to_numpy() if column.null_count else None
    if pa.types.is_timestamp(kind):
        column = pc.subtract(column.cast(pa.int64()), EPOCH_US)
    if is_null is not None:
        column = column.fill_null(pa.scalar(0, column.type))
    return column.to_numpy(), is_null
