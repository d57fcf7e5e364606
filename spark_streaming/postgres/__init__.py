"""Stores the roll-up in PostgreSQL: schema, transactions, retention.

Callers pass finished rows. No other part of the project writes these tables.
"""

from spark_streaming.postgres.batch import DEAD_LETTER_ROWS, Batch
from spark_streaming.postgres.maintenance import Maintenance
from spark_streaming.postgres.store import Store
from spark_streaming.postgres.values import (
    BatchStatistics,
    IdKey,
    LastBatch,
    Status,
    StoreDataError,
    StoreError,
    StoreUnavailableError,
    read_again_since,
)

__all__ = [
    "DEAD_LETTER_ROWS",
    "Batch",
    "BatchStatistics",
    "IdKey",
    "LastBatch",
    "Maintenance",
    "Status",
    "Store",
    "StoreDataError",
    "StoreError",
    "StoreUnavailableError",
    "read_again_since",
]
