"""A standby takes over that had not got all, or the database comes back from a backup."""

from __future__ import annotations

import psycopg
import pytest

from spark_streaming.postgres import Store, StoreError
from tests.integration.rollup.store.rows import MINUTE, read
from tests.integration.rollup.store.test_faults import batch_of, end_connections


def without(database: str, *statements: str) -> None:
    with psycopg.connect(database, options="-c search_path=telemetry") as connection:
        for statement in statements:
            connection.execute(statement.encode())


def test_a_ledger_that_does_not_go_on_with_the_batch_is_refused(store: Store, database: str) -> None:
    for number in range(3):
        batch_of(store, number, (MINUTE, 1.0))
    without(database, "DELETE FROM ledger WHERE batch_id = 2")
    with pytest.raises(
        StoreError, match=r"goes on with batch 3, and the database has those up to 1: .*empty"
    ):
        batch_of(store, 3, (MINUTE, 1.0))
    # An older checkpoint cuts batches anew.
    with pytest.raises(
        StoreError, match=r"goes on with batch 0, and the database has those up to 1: .*empty"
    ):
        batch_of(store, 0, (MINUTE, 1.0))
    assert read(database, "SELECT sum FROM telemetry.metric_1m") == [(3.0,)]
    # Spark did not come to know of the last one; old rows have expired.
    with store.batch("q", 1) as batch:
        assert batch is None
    without(database, "DELETE FROM ledger WHERE batch_id < 1")
    batch_of(store, 2, (MINUTE, 1.0))
    without(database, "DELETE FROM ledger")
    with pytest.raises(StoreError, match=r"goes on with batch 3, and the database has none of it: "):
        batch_of(store, 3, (MINUTE, 1.0))
    assert read(database, "SELECT sum FROM telemetry.metric_1m") == [(4.0,)]


def test_series_of_another_job_that_got_lost_are_added_again(store: Store, database: str) -> None:
    batch_of(store, 0, (MINUTE, 1.0))
    without(database, "DELETE FROM series", "DELETE FROM fleet_series")
    end_connections(database)
    with pytest.raises(StoreError):
        store.status()
    batch_of(store, 1, (MINUTE, 2.0))
    assert read(database, "SELECT sum FROM telemetry.metric_1m") == [(3.0,)]
    assert read(database, "SELECT sum FROM telemetry.fleet_1m") == [(3.0,)]
