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

    Attributes:
        key_id: Public id of the key.
        secret: 16 random bytes, hidden from the repr.
    """

    key_id: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatistics:
    """Statistics of a batch. The ledger has all but the entries.

    Attributes:
        pushes: New pushes.
        repeats: Pushes ignored because they were counted before.
        points: Data points in the new pushes.
        entries: Points of one push, instance and time.
        rows: Rows merged into minutes.
        dead_letters: Payloads that could not be read.
        left_out: Rows outside the retention times.
        overflowed: Data points of series over a bound of new ones.
        newest_received_at_ns: Time of receipt of the newest push. None without pushes.
    """

    pushes: int
    repeats: int
    points: int
    entries: int
    rows: int
    dead_letters: int
    left_out: int
    overflowed: int
    newest_received_at_ns: int | None
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
    """Status of the store.

    Attributes:
        schema: The newest applied migration; None if there is none.
        queries: The last batch of each query, the newest first.
        pushes: Pushes in the batches of the ledger.
        repeats: Repeated pushes in these batches.
        left_out: Rows outside the retention times.
        clients: Number of ``live``, ``silent`` and ``left`` clients.
        stale_hours: Hours and days that will be computed again.
        minutes_from: The oldest minute that is kept.
        read_until: Pushes received until this time were read; None before the first batch.
        newest_bucket: The newest minute with rows.
        bytes: Size of the schema on disk, with indexes.
    """

    schema: str | None
    queries: tuple[LastBatch, ...]
    pushes: int
    repeats: int
    left_out: int
    clients: dict[str, int]
    series: int
    dead_letters: int
    open_findings: int
    stale_hours: int
    minutes_from: datetime
    read_until: datetime | None
    newest_bucket: datetime | None
    bytes: int
