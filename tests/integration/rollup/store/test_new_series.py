"""Bounds of new series in PostgreSQL: what is added, what is counted, and how long that is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from spark_streaming import tasks as executor
from spark_streaming.contributions import LAST
from spark_streaming.postgres import Newcomers, Store, TaskStore
from spark_streaming.postgres.overflow import OVERFLOW
from spark_streaming.postgres.reasons import MAX_REASONS
from spark_streaming.postgres.series import Added
from spark_streaming.rows import CLIENT_DIMENSIONS, ENTRY_ROWS, SERIES_ROWS
from spark_streaming.settings import NewSeriesSettings, RetentionSettings
from spark_streaming.watched import WATCHED
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


def test_a_client_with_a_series_of_its_own_has_an_overflow_series(tasks: TaskStore, database: str) -> None:
    def own(number: int, metric: str, client_id: str | None) -> pa.Table:
        return series((number, metric, False), client_id=client_id, cluster_id="c", rule=2)

    for number, client_id in enumerate(("a", None), start=1):
        tasks.add_series(own(number, "kafka.client.telemetry.pushes", client_id))
    # It is that of the receiver.
    tasks.add_series(own(3, OVERFLOW, "b"))
    asked = pa.concat_tables(own(0, "m", client_id) for client_id in ("a", None, "b", "new")).select(
        CLIENT_DIMENSIONS
    )
    found = tasks.overflow_series(asked)
    assert found.known.tolist() == [True, True, True, False]
    shown = "SELECT series_id, fleet_id, client_id FROM telemetry.series WHERE metric = %s ORDER BY client_id"
    stored = read(database, shown.replace("%s", f"'{OVERFLOW}'"))
    assert [client_id for *_, client_id in stored] == ["a", "b", None]
    ids = dict(
        zip(["a", None, "b"], zip(found.series.tolist(), found.fleet.tolist(), strict=True), strict=False)
    )
    assert stored == [(*ids[client_id], client_id) for client_id in ("a", "b", None)]
    # It stays the same in another process, and if the receiver sends it later.
    with closing(TaskStore(database, retention=RetentionSettings())) as another:
        another.begin()
        another.add_series(own(4, OVERFLOW, "a"))
        again = another.overflow_series(asked)
        by_hash = another.find_series(np.array([4]), np.array([4]))
    assert again.series[:3].tolist() == found.series[:3].tolist()
    assert by_hash.series.tolist() == [ids["a"][0]]
    assert len(metrics(database)) == 5


def points(*hashes: int, rule: int) -> bytes:
    """Encode points with the values of their hashes, as the decoder does."""
    values = np.array(hashes, np.float64).view(np.int64)
    return np.array([hashes, hashes, values], np.int64).tobytes() + bytes([rule]) * len(hashes)


def pushed(described: pa.Table, **values: object) -> pa.RecordBatch:
    """Return a push with one entry, in the columns of :mod:`spark_streaming.entries`."""
    schema = pa.schema(
        [
            *(pa.field(column.name, column.type) for column in ENTRY_ROWS if column.name != "client_key"),
            *((name, pa.string()) for name in ("position", "reason")),
            *((name, pa.bool_()) for name in ("disconnected", "is_first")),
            *((name, pa.int64()) for name in ("bytes", "slot")),
            ("payload", pa.binary()),
            ("series", pa.list_(pa.struct(list(SERIES_ROWS)))),
            ("histograms", pa.list_(pa.struct([("minute", pa.int64())]))),
        ]
    )
    row = {
        "push_id": "11111111-1111-1111-1111-111111111111",
        "received_at_ns": NOW_NS,
        "terminating": False,
        "push_interval_ms": 60_000,
        "time_ns": NOW_NS,
        "minute": MINUTE,
        "client_instance_id": "i",
        "pushes": 1,
        "watched": [None] * len(WATCHED),
        "position": "0",
        "disconnected": False,
        "is_first": True,
        "slot": 0,
        "series": described.to_pylist(),
        **values,
    }
    return pa.RecordBatch.from_pylist([row], schema)


def test_a_task_counts_what_it_leaves_out(
    tasks: TaskStore, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_stores", {database: tasks})
    monkeypatch.setattr(executor, "_freeze_imports", lambda: None)
    described = pa.concat_tables(
        [
            series((1, "kafka.client.telemetry.pushes", False), client_id="a"),
            series(*((number, f"m{number}", False) for number in (2, 3, 4)), client_id="a", rule=LAST),
        ]
    )
    push = pushed(
        described, client_id="a", points=3, gauges=points(2, 3, 4, rule=LAST), added=points(1, rule=0)
    )
    settings = executor.TaskSettings(
        url=database,
        retention=RetentionSettings(),
        new_series=NewSeriesSettings(client_per_hour=2),
        source="spool_files",
        query_id="11111111-1111-1111-1111-111111111111",
        batch_id=0,
        closed=MINUTE,
        min_minute=None,
        first_minute=None,
        with_rows=True,
    )
    result, *others = [row for batch in executor.run([push], settings) for row in batch.to_pylist()]
    assert (result["error"], result["overflowed"], result["refused_client"]) == (None, 2, 2)
    names = dict(read(database, "SELECT series_id, metric FROM telemetry.series"))
    found = {names[row["row"]["series_id"]]: (row["row"]["sum"], row["row"]["points"]) for row in others}
    assert found == {"kafka.client.telemetry.pushes": (1.0, 1), "m2": (2.0, 1), OVERFLOW: (2.0, 1)}


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
