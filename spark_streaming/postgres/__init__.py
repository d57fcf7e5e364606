"""Stores the roll-up in PostgreSQL: schema, transactions, retention.

Callers pass finished rows. No other part of the project writes these tables.
"""

from spark_streaming.postgres.batch import Batch
from spark_streaming.postgres.dead_letters import DEAD_LETTER_ROWS, MAX_PAYLOADS, MAX_ROWS
from spark_streaming.postgres.findings import FindingReader
from spark_streaming.postgres.horizons import Horizons
from spark_streaming.postgres.loads import Load
from spark_streaming.postgres.maintenance import Maintenance
from spark_streaming.postgres.new_series import Newcomers, Refused
from spark_streaming.postgres.store import Store
from spark_streaming.postgres.sums import Sums
from spark_streaming.postgres.task_store import TaskStore
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
    "MAX_PAYLOADS",
    "MAX_ROWS",
    "Batch",
    "BatchStatistics",
    "FindingReader",
    "Horizons",
    "IdKey",
    "LastBatch",
    "Load",
    "Maintenance",
    "Newcomers",
    "Refused",
    "Status",
    "Store",
    "StoreDataError",
    "StoreError",
    "StoreUnavailableError",
    "Sums",
    "TaskStore",
    "read_again_since",
]
