"""Values and errors of the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

_DAY_MINUTES: Final = 24 * 60


def read_again_since(minute: int) -> datetime:
    """Return the time of receipt from which a rebuild reads pushes again.

    It is the beginning of the day before (UTC). Push ids are deleted by whole days. Every deleted
    id must be read again, because a repeated push would count twice otherwise.

    Args:
        minute: Whole minutes since the epoch.
    """
    return datetime.fromtimestamp(0, UTC) + timedelta(days=minute // _DAY_MINUTES - 1)


class StoreError(Exception):
    """Permanent error of the store. The message says how to fix it."""


class StoreDataError(StoreError):
    """PostgreSQL rejected a value of a push and rolled the transaction back."""


class StoreUnavailableError(StoreError):
    """PostgreSQL is unreachable or busy. The transaction was rolled back: repeat it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdKey:
    """Secret key of a database's series hashes.

    Anyone who knows the secret can construct two series with the same hash.
    """

    key_id: str
    """Public id of the key."""
    secret: bytes = field(repr=False)
    """16 random bytes, hidden from the repr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatistics:
    """Statistics of a batch. The ledger has all but the entries."""

    pushes: int
    """New pushes."""
    repeats: int
    """Pushes ignored because they were counted before."""
    points: int
    """Data points in the new pushes."""
    entries: int
    """Points of one push, instance and time."""
    rows: int
    """Rows merged into minutes."""
    dead_letters: int
    """Payloads that could not be read."""
    left_out: int
    """Rows outside the retention times, and points that count nothing."""
    overflowed: int
    """Data points of series over a bound of new ones."""
    newest_received_at_ns: int | None
    """Time of receipt of the newest push. None without pushes."""
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBatch:
    """Newest ledger row of one query."""

    query_id: str
    batch_id: int
    committed_at: datetime
    newest_received_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Status of the store."""

    schema: str | None
    """The newest applied migration; None if there is none."""
    queries: tuple[LastBatch, ...]
    """The last batch of each query, the newest first."""
    pushes: int
    """Pushes in the batches of the ledger."""
    repeats: int
    """Repeated pushes in these batches."""
    left_out: int
    """Rows outside the retention times, and points that count nothing."""
    clients: dict[str, int]
    """Number of ``live``, ``silent``, ``disconnected`` and ``left`` clients."""
    series: int
    dead_letters: int
    open_findings: int
    stale_hours: int
    """Hours and days that will be computed again."""
    minutes_from: datetime
    """The oldest minute that is kept."""
    read_until: datetime | None
    """Pushes received until this time were read; None before the first batch."""
    newest_bucket: datetime | None
    """The newest minute with rows."""
    bytes: int
    """Size of the schema on disk, with indexes."""
