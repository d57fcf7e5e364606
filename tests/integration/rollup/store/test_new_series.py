"""Bounds of new series in PostgreSQL: what is added, what is counted, and how long that is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from spark_streaming.postgres import Newcomers, Store, TaskStore
from spark_streaming.postgres.reasons import MAX_REASONS
from spark_streaming.postgres.series import Added
from spark_streaming.settings import NewSeriesSettings, RetentionSettings
from tests.integration.rollup.store.rows import MINUTE, NOW_NS, read, series

HOUR = MINUTE // 60 * 60
SHOWN = "SELECT bound, series FROM telemetry.new_series ORDER BY 1, 2"


@pytest.fixture
def tasks(store: Store) -> Iterator[TaskStore]:
    with closing(TaskStore(store.url, retention=RetentionSettings())) as opened:
        opened.begin()
        yield opened


def named(*numbers: int, client_id: str = "a", principal: str | None = "User:alice") -> pa.Table:
    return series(
        *((number, f"m{number}", False) for number in numbers), client_id=client_id, principal=principal
    )


def add(
    tasks: TaskStore,
    table: pa.Table,
    *,
    minute: int = HOUR,
    client: int | None = None,
    principal: int | None = None,
    per_minute: int | None = None,
) -> Added:
    settings = NewSeriesSettings(client_per_hour=client, principal_per_hour=principal, per_minute=per_minute)
    return tasks.add_series(table, Newcomers(minutes=[minute] * table.num_rows, settings=settings))


def metrics(database: str) -> list[str]:
    return [name for (name,) in read(database, "SELECT metric FROM telemetry.series ORDER BY series_high")]


def test_a_client_adds_no_more_than_its_bound_in_an_hour(tasks: TaskStore, database: str) -> None:
    assert add(tasks, named(1, 2), client=3).refused is None
    refused = add(tasks, named(2, 3, 4, 5), client=3).refused
    assert refused is not None
    assert (refused.bounds, refused.client_id, refused.principal) == ({"client": 2}, "a", "User:alice")
    assert sorted(refused.high.tolist()) == [4, 5]
    assert metrics(database) == ["m1", "m2", "m3"]
    assert read(database, "SELECT metric FROM telemetry.fleet_series ORDER BY 1") == [
        ("m1",),
        ("m2",),
        ("m3",),
    ]
    found = tasks.find_series(np.array([1, 4]), np.array([1, 4]))
    assert found.known.tolist() == [True, False]
    # They are remembered in this minute, and come in later.
    assert tasks.were_refused(np.array([3, 4, 5])).tolist() == [False, True, True]
    assert add(tasks, named(4, 5), client=3, minute=HOUR + 60).refused is None
    assert len(metrics(database)) == 5
    # Another client has a bound of its own.
    assert add(tasks, named(7, 8, 9, client_id="b"), client=3).refused is None


def test_a_series_that_is_there_is_not_new(tasks: TaskStore, database: str) -> None:
    add(tasks, named(1, 2), client=2)
    with closing(TaskStore(database, retention=RetentionSettings())) as another:
        assert add(another, named(1, 2), client=2).refused is None
    # So are those without a hash, after a change of the key.
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE telemetry.series SET series_high = NULL, series_low = NULL")
    rehashed = pa.Table.from_pylist(
        [{**row, "series_high": row["series_high"] + 100} for row in named(1, 2).to_pylist()],
        named(1).schema,
    )
    assert add(tasks, rehashed, client=2).refused is None
    assert read(database, SHOWN) == [("client", 2), ("minute", 2), ("principal", 2)]
    assert metrics(database) == ["m1", "m2"]


def test_the_clients_of_a_principal_share_its_bound(tasks: TaskStore, database: str) -> None:
    add(tasks, named(1, 2, client_id="a"), principal=3)
    refused = add(tasks, named(3, 4, client_id="b"), principal=3).refused
    assert refused is not None
    assert refused.bounds == {"principal": 1}
    # A shared principal has none.
    anonymous = named(11, 12, 13, 14, principal="User:ANONYMOUS")
    assert add(tasks, anonymous, principal=3).refused is None
    assert len(metrics(database)) == 3 + 4


def test_a_minute_has_a_bound_for_all(tasks: TaskStore, database: str) -> None:
    many, few = named(*range(1, 9)), named(21, 22, client_id="b", principal="User:bob")
    refused = add(tasks, pa.concat_tables([many, few]), per_minute=5).refused
    assert refused is not None
    assert (refused.bounds, refused.client_id) == ({"minute": 5}, "a")
    # Clients take turns.
    assert {"m21", "m22"} < set(metrics(database))
    assert add(tasks, named(31), minute=HOUR + 1, per_minute=5).refused is None


def test_folded_reasons_are_not_new(tasks: TaskStore, database: str) -> None:
    def reasons(first: int, last: int) -> pa.Table:
        return pa.concat_tables(
            series((number, "m", False), reason=f"reason {number}") for number in range(first, last)
        )

    assert add(tasks, reasons(0, MAX_REASONS), client=MAX_REASONS).refused is None
    added = add(tasks, reasons(MAX_REASONS, MAX_REASONS + 5), client=MAX_REASONS)
    assert (added.folded, added.refused) == (5, None)
    assert read(database, SHOWN) == [("client", MAX_REASONS), ("minute", MAX_REASONS)]


def test_counters_are_kept_for_hours(tasks: TaskStore, store: Store, database: str) -> None:
    add(tasks, named(1), client=1)
    with store.maintenance(NOW_NS) as maintenance:
        maintenance.expire()
    assert len(read(database, SHOWN)) == 3
    with psycopg.connect(database) as connection:
        connection.execute(
            "UPDATE telemetry.new_series SET counted_at = counted_at - %s", [timedelta(hours=3)]
        )
    with store.maintenance(NOW_NS) as maintenance:
        maintenance.expire()
    assert read(database, SHOWN) == []
