"""Spans of time that partitions and packed rows have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

Span = Literal["hour", "day", "week", "month"]


def beginning(span: Span, time: datetime) -> datetime:
    """Return the beginning of a time's hour, day, week (Monday) or month (UTC)."""
    time = time.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if span == "hour":
        return time
    time = time.replace(hour=0)
    if span == "week":
        return time - timedelta(days=time.weekday())
    return time if span == "day" else time.replace(day=1)


def end(span: Span, start: datetime) -> datetime:
    """Return the end of the hour, day, week or month that begins at a time."""
    if span == "month":
        return (start + timedelta(days=32)).replace(day=1)
    return start + {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}[span]
