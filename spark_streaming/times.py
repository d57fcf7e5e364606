"""Reads times that people and programs write."""

from __future__ import annotations

from datetime import UTC, datetime


def time_from_text(text: str) -> datetime:
    """Read a time in ISO 8601, in UTC unless it says another offset; return it in UTC.

    Raises:
        ValueError: It is in another format, there is no such time, or in UTC it is outside the
            years 1 to 9999.
    """
    time = datetime.fromisoformat(text)
    try:
        return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise ValueError("it is outside the years 1 to 9999 in UTC") from None
