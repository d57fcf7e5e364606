"""Owns the values of the store: what is told of a batch and of the whole, errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = [
    "BatchStatistics",
    "IdKey",
    "LastBatch",
    "Status",
    "StoreDataError",
    "StoreError",
    "StoreUnavailableError",
    "read_again_since",
]

_DAY_MINUTES: Final = 24 * 60


def read_again_since(minute: int) -> datetime:
    """From when on pushes are read again where what clients said since a minute is forgotten.

    Their ids are forgotten by whole days, and one that is forgotten must be learned again, or the push would
    count once more when it comes another time.

    Args:
        minute: Whole minutes since the epoch.

    Returns:
        The beginning of the day before (UTC), by the time of receipt.
    """
    return datetime.fromtimestamp(0, UTC) + timedelta(days=minute // _DAY_MINUTES - 1)


class StoreError(Exception):
    """PostgreSQL can't be used like this; the message says what helps. Trying again does not."""


class StoreDataError(StoreError):
    """PostgreSQL refuses a value that a push brought. Nothing of the transaction counts."""


class StoreUnavailableError(StoreError):
    """PostgreSQL is away, busy or ended the connection. Nothing of the transaction counts: repeat it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdKey:
    """The key of a database's hashes of series. Who knows it can make two series that have one hash.

    Attributes:
        key_id: Its public name.
        secret: 16 random bytes; not in the repr.
    """

    key_id: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatistics:
    """What a batch was made of, for the ledger.

    Attributes:
        pushes: Pushes that counted.
        repeats: Pushes left out as they were known.
        points: Data points as they were pushed.
        rows: Rows merged into minutes.
        dead_letters: Payloads that could not be read.
        newest_received_at_ns: When the newest push was received; None in a batch without pushes.
        duration_s: How long the batch took.
    """

    pushes: int
    repeats: int
    points: int
    rows: int
    dead_letters: int
    newest_received_at_ns: int | None
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBatch:
    """The newest row of the ledger for one query."""

    query_id: str
    batch_id: int
    committed_at: datetime
    newest_received_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How the store stands.

    Attributes:
        schema: The newest migration that was done; None for none.
        queries: The last batch of each query, the newest first.
        pushes: Pushes in the batches that the ledger remembers.
        repeats: Repeated ones among them.
        left_out: Rows that were outside of what is kept.
        clients: How many are ``live``, ``silent`` and ``left``.
        series: How many there are.
        dead_letters: How many are kept.
        open_findings: How many hold now.
        stale_hours: Hours and days that are to be computed again.
        minutes_from: The oldest minute that is kept.
        newest_bucket: The newest minute with rows.
        bytes: What the schema takes on disk, indexes included.
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
    newest_bucket: datetime | None
    bytes: int
