"""Failover to a standby that lacks batches, and databases from a backup."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import psycopg
import pytest

from spark_streaming.postgres import Store, StoreError, StoreUnavailableError, TaskStore
from spark_streaming.settings import RetentionSettings
from tests.integration.rollup.store.rows import MINUTE, read, series
from tests.integration.rollup.store.test_faults import batch_of, end_connections


def execute(database: str, *statements: str) -> None:
    with psycopg.connect(database, options="-c search_path=telemetry") as connection:
        for statement in statements:
            connection.execute(statement.encode())


def test_a_batch_that_does_not_continue_the_ledger_is_refused(store: Store, database: str) -> None:
    for number in range(3):
        batch_of(store, number, (MINUTE, 1.0))
    execute(database, "DELETE FROM ledger WHERE batch_id = 2")
    with pytest.raises(
        StoreError, match=r"continues with batch 3, but the database has batches up to 1 .*empty"
    ):
        batch_of(store, 3, (MINUTE, 1.0))
    # An older checkpoint.
    with pytest.raises(
        StoreError, match=r"continues with batch 0, but the database has batches up to 1 .*empty"
    ):
        batch_of(store, 0, (MINUTE, 1.0))
    assert read(database, "SELECT sum FROM telemetry.metric_1m") == [(3.0,)]
    # Spark did not learn of the last commit, and old ledger rows have expired.
    with store.batch("q", 1) as batch:
        assert batch is None
    execute(database, "DELETE FROM ledger WHERE batch_id < 1")
    batch_of(store, 2, (MINUTE, 1.0))
    execute(database, "DELETE FROM ledger")
    with pytest.raises(StoreError, match=r"continues with batch 3, but the database has no batches of"):
        batch_of(store, 3, (MINUTE, 1.0))
    assert read(database, "SELECT sum FROM telemetry.metric_1m") == [(4.0,)]


def test_lost_series_are_added_again_on_a_new_connection(store: Store, database: str) -> None:
    described = series((5, "m", False))
    half = np.array([5])
    with closing(TaskStore(store.url, retention=RetentionSettings())) as tasks:
        tasks.begin()
        tasks.add_series(described)
        execute(database, "DELETE FROM series", "DELETE FROM fleet_series")
        assert tasks.find_series(half, half).known.all()
        end_connections(database)
        with pytest.raises(StoreUnavailableError):
            tasks.begin()
        tasks.begin()
        assert not tasks.find_series(half, half).known.any()
        tasks.add_series(described)
        assert tasks.find_series(half, half).known.all()
    assert read(database, "SELECT metric FROM telemetry.fleet_series") == [("m",)]
