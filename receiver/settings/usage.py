"""Settings of what clients have used, day by day."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from receiver.settings.base import Settings


class UsageSettings(Settings):
    """What each principal and client id has used in a day, and API versions."""

    path: Path | None = None
    """The SQLite file of the usage. Null (default): a temporary file, which survives a restart of
    the core but not of the whole receiver."""
    days: int = Field(default=400, ge=1, le=4_000)
    """Days that usage is kept."""
    max_rows_per_day: int = Field(default=10_000, ge=100, le=1_000_000)
    """Most pairs of principal and client id of a day. What others use counts for the client id
    `(other)` of their principal, and beyond twice as many pairs for the principal `(other)`."""
