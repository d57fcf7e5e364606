"""Ids of pushes that were counted."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg import sql

from spark_streaming.postgres.horizons import DAY, DAYS_AHEAD
from spark_streaming.postgres.staging import COPY_HEADER, COPY_TRAILER, EPOCH_US
from spark_streaming.postgres.tables import EPOCH

_DAY_NS: Final = 86_400_000_000_000


def days_of(received_at_ns: Mapping[str, int], *, today: datetime, kept_days: int) -> dict[str, datetime]:
    """Return the day of each push, under which its id is stored.

    Clamped, so that wrong clocks create no partitions. Their pushes still count once.

    Args:
        received_at_ns: Times of receipt by push id, nanoseconds since the epoch.
        kept_days: Days before today that a push may have.
    """
    last = (today - EPOCH).days
    first, last = last - kept_days, last + DAYS_AHEAD
    days = {day: EPOCH + timedelta(days=day) for day in range(first, last + 1)}
    return {
        push_id: days[min(max(time_ns // _DAY_NS, first), last)]
        for push_id, time_ns in received_at_ns.items()
    }


def known(cursor: psycopg.Cursor[Any], days: Mapping[str, datetime]) -> set[str]:
    """Return the pushes that were counted.

    A push is compared with those received from the day before it to the day after it.

    Args:
        cursor: In a transaction.
    """
    found: set[str] = set()
    for day in sorted(set(days.values())):
        ids = {_digest(push_id): push_id for push_id, its_day in days.items() if its_day == day}
        # Constants instead of parameters, so that the planner prunes to three partitions.
        cursor.execute(
            sql.SQL(
                "SELECT uuid_send(push_id) FROM push WHERE push_id = ANY(%s::uuid[]) "
                "AND received_at >= {since} AND received_at < {end} "
                "AND load_id NOT IN (SELECT load_id FROM pending_load)"
            ).format(since=sql.Literal(day - DAY), end=sql.Literal(day + 2 * DAY)),
            # An array as one text, because psycopg takes as long for its elements as PostgreSQL.
            [f"{{{','.join(digest.hex() for digest in ids)}}}"],
        )
        found.update(ids[bytes(digest)] for (digest,) in cursor)
    return found


def append(cursor: psycopg.Cursor[Any], days: Mapping[str, datetime], load_id: int) -> None:
    """Append the ids of pushes, to partitions of days that exist."""
    layout = struct.Struct(">hi16siqiq")
    times = {day: (day - EPOCH) // timedelta(microseconds=1) - EPOCH_US for day in set(days.values())}
    rows = [layout.pack(3, 16, _digest(push_id), 8, times[day], 8, load_id) for push_id, day in days.items()]
    with cursor.copy("COPY push (push_id, received_at, load_id) FROM STDIN (FORMAT binary)") as copy:
        copy.write(b"".join((COPY_HEADER, *rows, COPY_TRAILER)))


def _digest(push_id: str) -> bytes:
    return hashlib.sha256(push_id.encode()).digest()[:16]
