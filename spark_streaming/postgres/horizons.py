"""Since when rows are kept, and how far pushes were read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg

from spark_streaming.postgres.tables import EPOCH, GRAINS

#: Rows further ahead than this are left out, because the clock is wrong.
DAYS_AHEAD: Final = 2
DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizons:
    """Since when rows are kept."""

    now: datetime
    """The server's time."""
    since: dict[str, datetime]
    """First time of each grain's rows, by the name of the grain."""

    @classmethod
    def read(cls, cursor: psycopg.Cursor[Any]) -> Horizons:
        """Read them in the cursor's transaction."""
        ((now, *since),) = cursor.execute("SELECT now(), minutes_from, hours_from, days_from FROM horizon")
        return cls(now=now, since=dict(zip((grain.name for grain in GRAINS), since, strict=True)))

    @property
    def today(self) -> datetime:
        """The beginning of the server's day (UTC)."""
        return self.now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def read_until(cursor: psycopg.Cursor[Any], time_ns: int | None) -> datetime | None:
    """Record that pushes received until this time were read; return the latest time.

    It never decreases, and is None before the first push.
    """
    if time_ns is not None:
        cursor.execute(
            "UPDATE horizon SET read_until = greatest(read_until, %s)",
            [EPOCH + timedelta(microseconds=time_ns // 1000)],
        )
    ((until,),) = cursor.execute("SELECT read_until FROM horizon")
    return None if until is None else until.astimezone(UTC)
