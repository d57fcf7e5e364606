"""Rows of contributions: what clients added to minutes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np
import psycopg

from spark_streaming.contributions import MAX_RANGE_MINUTES, Contribution
from spark_streaming.postgres.staging import COPY_HEADER, COPY_TRAILER

#: A row of a binary COPY before the packed bytes, and after them. Encoded by numpy, because psycopg
#: takes as long for each row as PostgreSQL does.
_HEAD: Final = np.dtype(
    [
        ("columns", ">i2"),
        ("key_length", ">i4"),
        ("key", ">i8"),
        ("minute_length", ">i4"),
        ("minute", ">i8"),
        ("load_length", ">i4"),
        ("load", ">i8"),
        ("entries_length", ">i4"),
        ("entries", ">i4"),
        ("last_length", ">i4"),
        ("last", ">i8"),
        ("packed_length", ">i4"),
    ]
)
_TAIL: Final = np.dtype([("length", ">i4"), ("until", ">i8")])
_NULL: Final = b"\xff" * 4
#: The column has 32 bits.
_MAX_ENTRIES: Final = (1 << 31) - 1


def read(
    cursor: psycopg.Cursor[Any], pairs: Collection[tuple[int, int]]
) -> dict[tuple[int, int], Contribution]:
    """Return the contributions by client key and minute; ``cursor`` is binary."""
    keys, minutes = map(list, zip(*pairs, strict=True)) if pairs else ([], [])
    cursor.execute(
        "WITH wanted AS ("
        "SELECT * FROM unnest(%(keys)s::bigint[], %(minutes)s::bigint[]) AS w (key, at)"
        "), found AS ("
        "SELECT key, at, entries, last_ns, packed, version, load_id FROM wanted "
        "JOIN contribution ON client_key = key AND minute = at "
        "UNION ALL "
        "SELECT key, at, entries, last_ns, packed, version, load_id FROM wanted "
        "JOIN contribution ON client_key = key AND minute < at AND minute > at - %(longest)s::bigint "
        "AND until IS NOT NULL AND until >= at"
        ") SELECT DISTINCT ON (key, at) key, at, entries, last_ns, packed FROM found "
        "WHERE load_id NOT IN (SELECT load_id FROM pending_load) "
        "ORDER BY key, at, version DESC",
        {"keys": keys, "minutes": minutes, "longest": MAX_RANGE_MINUTES},
    )
    return {
        (key, minute): Contribution(
            client_key=key, minute=minute, entries=entries, last_ns=last_ns, packed=packed
        )
        for key, minute, entries, last_ns, packed in cursor
    }


def append(cursor: psycopg.Cursor[Any], contributions: Sequence[Contribution], load_id: int) -> None:
    """Append contributions. Each replaces those of its client and minutes.

    Args:
        cursor: In the transaction of the load. The partition of the present hour exists.
        contributions: At most one of a client and minute.
    """
    if not contributions:
        return
    keys, minutes, entries, times, packed, until = zip(*contributions, strict=True)
    heads = np.empty(len(contributions), _HEAD)
    for name, length in (("columns", 7), ("key_length", 8), ("minute_length", 8), ("load_length", 8)):
        heads[name] = length
    heads["entries_length"], heads["last_length"] = 4, 8
    heads["key"], heads["minute"], heads["load"] = keys, minutes, load_id
    heads["entries"], heads["last"] = np.minimum(entries, _MAX_ENTRIES), times
    heads["packed_length"] = [len(part) for part in packed]
    tails = np.empty(len(contributions), _TAIL)
    tails["length"], tails["until"] = 8, until
    head, tail = heads.tobytes(), tails.tobytes()
    rows: list[bytes] = [COPY_HEADER]
    for number, body in enumerate(packed):
        at = number * _TAIL.itemsize
        rows += (
            head[number * _HEAD.itemsize : (number + 1) * _HEAD.itemsize],
            body,
            tail[at : at + _TAIL.itemsize] if until[number] > minutes[number] else _NULL,
        )
    with cursor.copy(
        "COPY contribution (client_key, minute, load_id, entries, last_ns, packed, until) "
        "FROM STDIN (FORMAT binary)"
    ) as copy:
        copy.write(b"".join((*rows, COPY_TRAILER)))
