"""Notes which hours and days must be computed again."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import psycopg

from spark_streaming.postgres.tables import Grain


def mark(cursor: psycopg.Cursor[Any], grain: Grain, changed: Iterable[datetime]) -> None:
    """Note that finer rows changed.

    Args:
        cursor: In the transaction that changes them.
        grain: Hours or days.
        changed: Beginnings of the finer buckets; at least the first one of each hour or day.
    """
    first = {grain.beginning(at): at for at in sorted(changed, reverse=True)}
    cursor.execute(
        "INSERT INTO coarse (grain, bucket, changed_from) "
        "SELECT %s, * FROM unnest(%s::timestamptz[], %s::timestamptz[]) "
        "ON CONFLICT (grain, bucket) DO UPDATE "
        "SET dirty = true, changed_from = least(coarse.changed_from, excluded.changed_from) "
        "WHERE NOT coarse.dirty OR coarse.changed_from IS NULL "
        "OR coarse.changed_from > excluded.changed_from",
        (grain.name, list(first), list(first.values())),
    )
