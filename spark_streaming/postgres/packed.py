"""SQL of packed rows: a closed hour, day or month in one row of arrays.

A packed row has a key and the beginning of its window. It has the values of the buckets that exist,
in their order; ``present`` says which ones do. A value has several columns, all of which are null
but one at most:

- ``_all``: the value of all buckets.
- ``_2``, ``_4``, ``_8``: an array of the smallest type that holds all values, by bytes. It is empty
  if the value is null in all buckets.
- None of them: the value is the usual one (:attr:`Totals.usual`) in all buckets.

The tables ``slot_1m``, ``slot_1h`` and ``slot_1d`` have a row for each bucket of packed windows.
Views join them, so that conditions on ``bucket`` reach an index. Values don't change by packing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from psycopg import sql

from spark_streaming.postgres.spans import beginning
from spark_streaming.postgres.tables import MINUTES, Grain, Totals, ValueType


@dataclass(frozen=True, slots=True, kw_only=True)
class _Array:
    """An array of a value: the column's suffix, type, and bound of integers."""

    suffix: str
    element: str
    limit: int | None


_INTEGERS: Final = (
    _Array(suffix="_2", element="smallint", limit=1 << 15),
    _Array(suffix="_4", element="integer", limit=1 << 31),
)
#: Load id of packed rows, which are older than open ones.
PACKED_LOAD: Final = -1
#: Number of the value in the arrays, from 1.
_AT: Final = sql.SQL(
    "CASE WHEN p.present IS NULL THEN m.at ELSE bit_count((p.present & m.below)::bit(64))::int + 1 END"
)


def packed_columns(totals: Totals) -> list[tuple[str, str]]:
    """Return names and types of the columns of values, fixed lengths first."""
    return [
        *((f"{name}_all", totals.type_of(name)) for name in totals.values),
        *(
            (name + array.suffix, f"{array.element}[]")
            for name in totals.values
            for array in _arrays(totals.type_of(name))
        ),
    ]


def as_rows(totals: Totals, grain: Grain, *, start: datetime | None = None) -> sql.Composed:
    """Return the query that unpacks rows to ``bucket``, ``since``, key and values.

    Args:
        start: The beginning of the only window to read. None: all windows.
    """
    only = sql.SQL(" AND p.start = {start} AND m.start = {start}").format(start=sql.Literal(start))
    values = sql.SQL(", ").join(
        sql.SQL("{} AS {}").format(_value(totals, name), sql.Identifier(name)) for name in totals.values
    )
    return sql.SQL(
        "SELECT m.bucket, p.start AS since, {key}, {values} FROM {slots} m JOIN {packed} p USING (start) "
        "WHERE (p.present IS NULL OR p.present & m.bit <> 0){only}"
    ).format(
        key=sql.SQL(", ").join(sql.Identifier("p", name) for name in totals.key),
        values=values,
        slots=sql.Identifier(grain.slots),
        packed=sql.Identifier(totals.packed_table(grain)),
        only=sql.SQL("") if start is None else only,
    )


def counting(grain: Grain) -> sql.SQL:
    """Return the condition that an open row counts."""
    return sql.SQL("load_id NOT IN (SELECT load_id FROM pending_load)" if grain is MINUTES else "true")


def open_rows(totals: Totals, grain: Grain) -> sql.Composed:
    """Return the query of the open rows of subject ``s``, one for each key and bucket.

    It has the same columns as :func:`as_rows`. It depends on the subject, so that it adds up only
    the rows of a panel's series.
    """
    return sql.SQL(
        "SELECT bucket, bucket AS since, {key}, {values} FROM {table} WHERE {subject} = s.{subject}{rest}"
    ).format(
        key=_list(map(sql.Identifier, totals.key)),
        values=totals.combined() if grain is MINUTES else _list(map(sql.Identifier, totals.values)),
        table=sql.Identifier(totals.table(grain)),
        subject=sql.Identifier(totals.key[0]),
        rest=sql.SQL(" AND {} GROUP BY bucket, {}").format(
            counting(grain), _list(map(sql.Identifier, totals.key))
        )
        if grain is MINUTES
        else sql.SQL(""),
    )


def stored_rows(totals: Totals, grain: Grain, since: datetime, until: datetime) -> sql.Composed:
    """Return the query of a window's rows that count, with their ``load_id``.

    A key and bucket may have several open rows and a packed one, which add up. The one with the
    greatest load id is the newest.

    Args:
        until: The end of the last bucket, which is in the same window.
    """
    return sql.SQL(
        "SELECT {columns}, {load_id} AS load_id FROM {open} WHERE {within} AND {counting} "
        "UNION ALL SELECT {columns}, {packed_load} FROM ({packed}) AS packed_rows WHERE {within}"
    ).format(
        columns=_list(map(sql.Identifier, ["bucket", *totals.key, *totals.values])),
        load_id=sql.SQL("load_id" if grain is MINUTES else "0"),
        open=sql.Identifier(totals.table(grain)),
        counting=counting(grain),
        packed=as_rows(totals, grain, start=beginning(grain.window, since)),
        packed_load=sql.Literal(PACKED_LOAD),
        within=sql.SQL("bucket >= {} AND bucket < {}").format(sql.Literal(since), sql.Literal(until)),
    )


def to_pack(totals: Totals, grain: Grain, start: datetime, rows: sql.Composable) -> sql.Composed:
    """Return the statement that packs rows of a window over packed ones.

    Args:
        rows: A query of ``bucket``, key and values, one row for each key and bucket. If it is
            grouped by key and bucket, in this order, one sort serves both groupings.
    """
    columns = ["present", *(name for name, _ in packed_columns(totals))]
    # Computed, because a join with the buckets would need another sort.
    bit = sql.SQL("1::bigint << ((date_part('epoch', bucket) - {start})::bigint / {length})::int").format(
        start=sql.Literal(round(start.timestamp())), length=sql.Literal(round(grain.length.total_seconds()))
    )
    return sql.SQL(
        "INSERT INTO {table} ({key}, start, {columns}) "
        "SELECT {key}, {start}, nullif(present, {full}), {packed} FROM ("
        "SELECT *, {forms} FROM ("
        "SELECT {key}, bit_or(bit) AS present, count(*) AS buckets, {measured} FROM ("
        "SELECT found.*, {bit} AS bit FROM ({rows}) AS found ORDER BY {key}, bucket"
        ") AS sorted GROUP BY {key}) AS measured) AS formed "
        "ON CONFLICT ({key}, start) DO UPDATE SET {changes}"
    ).format(
        table=sql.Identifier(totals.packed_table(grain)),
        key=_list(map(sql.Identifier, totals.key)),
        start=sql.Literal(start),
        columns=_list(map(sql.Identifier, columns)),
        full=sql.Literal((1 << grain.slots_in_window(start)) - 1),
        packed=_list(_in_columns(totals)),
        forms=_list(_form(totals, name) for name in totals.values),
        measured=_list(_measured(totals, name) for name in totals.values),
        rows=rows,
        bit=bit,
        changes=_list(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in columns),
    )


def _arrays(sql_type: ValueType) -> tuple[_Array, ...]:
    """The arrays that a type may have, the smallest first."""
    integers = _INTEGERS if sql_type in ("bigint", "double precision") else ()
    return (*integers, _Array(suffix="_8", element=sql_type, limit=None))


def _value(totals: Totals, name: str) -> sql.Composed:
    """The value of a packed row ``p`` in the bucket ``m``."""
    return sql.SQL("(CASE {arrays} ELSE coalesce({all}, {usual}) END)").format(
        arrays=sql.SQL(" ").join(
            sql.SQL("WHEN {0} IS NOT NULL THEN ({0})[{1}]").format(
                sql.Identifier("p", name + array.suffix), _AT
            )
            for array in _arrays(totals.type_of(name))
        ),
        all=sql.Identifier("p", f"{name}_all"),
        usual=_usual(totals, name, _value),
    )


def _usual(totals: Totals, name: str, value: Callable[[Totals, str], sql.Composable]) -> sql.Composable:
    usual = totals.usual.get(name)
    if usual is None:
        return sql.SQL("NULL::{}").format(sql.SQL(totals.type_of(name)))
    return value(totals, usual) if isinstance(usual, str) else sql.Literal(usual)


def _measured(totals: Totals, name: str) -> sql.Composed:
    """Aggregates of a value, from which :func:`_form` chooses.

    Each costs time for every row.
    """
    sql_type = totals.type_of(name)
    least, most = ("bool_and", "bool_or") if sql_type == "boolean" else ("min", "max")
    measured = ["array_agg({value}) AS {array}", "count({value}) AS {count}"]
    measured += [f"{least}({{value}}) AS {{min}}", f"{most}({{value}}) AS {{max}}"]
    usual = totals.usual.get(name)
    if isinstance(usual, str):
        measured.append("bool_and({value} IS NOT DISTINCT FROM {usual}) AS {same}")
    if sql_type == "double precision":
        measured.append("bool_and({value} = trunc({value})) AS {whole}")
    return sql.SQL(", ".join(measured)).format(
        value=sql.Identifier(name),
        usual=sql.Identifier(usual) if isinstance(usual, str) else sql.SQL(""),
        **_parts(name),
    )


def _form(totals: Totals, name: str) -> sql.Composed:
    """The suffix of the column that gets a value; empty for the usual value."""
    arrays, usual = _arrays(totals.type_of(name)), totals.usual.get(name)
    if usual is None:
        same = "{count} = 0"
    else:
        same = (
            "{same}"
            if isinstance(usual, str)
            else "{min} = {usual} AND {max} = {usual} AND {count} = buckets"
        )
    whole = "{whole} AND " if totals.type_of(name) == "double precision" else ""
    return sql.SQL(
        f"CASE WHEN {same} THEN '' WHEN {{min}} = {{max}} AND {{count}} = buckets THEN '_all' "
        "WHEN {count} = 0 THEN {smallest} {integers} ELSE {widest} END AS {form}"
    ).format(
        usual=sql.Literal(usual),
        smallest=sql.Literal(arrays[0].suffix),
        integers=sql.SQL(" ").join(
            sql.SQL(f"WHEN {whole}{{min}} >= {{low}} AND {{max}} < {{high}} THEN {{suffix}}").format(
                low=sql.Literal(-array.limit),
                high=sql.Literal(array.limit),
                suffix=sql.Literal(array.suffix),
                **_parts(name),
            )
            for array in arrays
            if array.limit is not None
        ),
        widest=sql.Literal(arrays[-1].suffix),
        **_parts(name),
    )


def _in_columns(totals: Totals) -> Iterator[sql.Composed]:
    """The columns of a packed row, in the order of :func:`packed_columns`."""
    for name in totals.values:
        yield sql.SQL("CASE WHEN {form} = '_all' THEN {min} END").format(**_parts(name))
    for name in totals.values:
        for array in _arrays(totals.type_of(name)):
            yield sql.SQL(
                "CASE WHEN {form} = {suffix} "
                "THEN CASE WHEN {count} = 0 THEN '{{}}' ELSE {array} END::{type}[] END"
            ).format(suffix=sql.Literal(array.suffix), type=sql.SQL(array.element), **_parts(name))


def _parts(name: str) -> dict[str, sql.Identifier]:
    parts = ("array", "count", "min", "max", "same", "whole", "form")
    return {part: sql.Identifier(f"{name}_{part}") for part in parts}


def _list(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)
