"""Marks hours and days that must be computed again."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import psycopg

from spark_streaming.postgres.tables import Grain

__all__ = ["mark"]


def mark(cursor: psycopg.Cursor[Any], grain: Grain, buckets: Iterable[datetime]) -> None:
    """Note that rows of these hours or days changed.

    Args:
        cursor: In the transaction that changes them.
        grain: Hours or days.
        buckets: Their beginnings.
    """
    cursor.execute(
        "INSERT INTO coarse (grain, bucket) SELECT %s, unnest(%s::timestamptz[]) "
        "ON CONFLICT (grain, bucket) DO UPDATE SET dirty = true WHERE NOT coarse.dirty",
        (grain.name, sorted(buckets)),
    )
