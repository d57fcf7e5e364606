"""Rows of contributions: what clients added to minutes."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from typing import Any, Final

import psycopg

from spark_streaming.contributions import MAX_RANGE_MINUTES, Contribution
from spark_streaming.postgres.staging import COPY_HEADER, COPY_TRAILER

__all__ = ["append", "read"]

#: The column has 32 bits.
_MAX_ENTRIES: Final = (1 << 31) - 1


def read(
    cursor: psycopg.Cursor[Any], pairs: Collection[tuple[int, int]]
) -> dict[tuple[int, int], Contribution]:
    """Return the stored contributions by client key and minute.

    Args:
        cursor: A binary cursor.
        pairs: Client keys and minutes.
    """
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
        load_id: The load.
    """
    # Packed here, because psycopg takes as long for each row as PostgreSQL does.
    layout = struct.Struct(">hiqiqiqiiiqi")
    until, no_until = struct.Struct(">iq"), struct.pack(">i", -1)
    rows = [
        b"".join(
            (
                layout.pack(
                    7,
                    8,
                    one.client_key,
                    8,
                    one.minute,
                    8,
                    load_id,
                    4,
                    min(one.entries, _MAX_ENTRIES),
                    8,
                    one.last_ns,
                    len(one.packed),
                ),
                one.packed,
                until.pack(8, one.until) if one.until > one.minute else no_until,
            )
        )
        for one in contributions
    ]
    with cursor.copy(
        "COPY contribution (client_key, minute, load_id, entries, last_ns, packed, until) "
        "FROM STDIN (FORMAT binary)"
    ) as copy:
        copy.write(b"".join((COPY_HEADER, *rows, COPY_TRAILER)))
