"""Owns what the roll-up keeps in PostgreSQL: its schema, one transaction a batch, hours and days, retention.

It decides nothing about what is added up: that comes as rows. Nothing else of the project writes there.
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
