"""Loads count when the driver enters them, and never otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from spark_streaming.contributions import ClientState, Contribution
from spark_streaming.postgres import DEAD_LETTER_ROWS, Store, StoreUnavailableError, TaskStore
from spark_streaming.settings import RetentionSettings
from tests.integration.rollup.store.rows import (
    MINUTE,
    NOW_NS,
    buckets,
    entries,
    put_series,
    read,
    rows,
    statistics,
    take_in,
    write_load,
)

VIEWS = ("metric_1m", "fleet_1m", "spread_1m", "histogram_1m", "client_1m", "dead_letter", "client")
TABLES = (
    *("rollup_1m", "fleet_rollup_1m", "fleet_spread_1m", "rollup_histogram_1m", "client_rollup_1m"),
    *("rollup_1h_load", "push", "contribution", "client_load", "dead_letter_load", "pending_load"),
)
WEEK_AGO = MINUTE - 8 * 1440


@pytest.fixture
def tasks(store: Store, database: str) -> Iterator[TaskStore]:
    put_series(database, (1, 7, "m", False))
    with closing(TaskStore(store.url, retention=RetentionSettings())) as tasks:
        yield tasks


def load(tasks: TaskStore, number: int = 0, *, key: int = 5, query: str = "q") -> int:
    """Write rows into every table."""
    taken = entries((key, MINUTE, "c"))
    state = ClientState(
        client_key=key, minute=MINUTE, last_ns=NOW_NS, push_interval_ms=60_000, terminated=False,
        covered_until=MINUTE, carried_from=MINUTE + 1, counts=b"c", cumulative=b"",
    )  # fmt: skip
    load_id, _ = write_load(
        tasks,
        (query, number),
        totals=rows(
            (MINUTE, 1, 7, False, 3, 1, 1.0, 1.0, 1.0, 1), (WEEK_AGO, 1, 7, False, None, 1, 1.0, 1.0, 1.0, 0)
        ),
        histograms=buckets((MINUTE, 1, 0.0, 1.0, 1)),
        minutes=taken,
        entries=taken,
        states=[state],
        contributions=[
            Contribution(client_key=key, minute=MINUTE, entries=number + 1, last_ns=number, packed=b"p")
        ],
        pushes={f"push {key}": NOW_NS},
        letters=pa.table([["s"], [f"p{key}"], ["why"], [1], [b"x"]], schema=DEAD_LETTER_ROWS),
    )
    return load_id


def rows_of(database: str, names: tuple[str, ...]) -> dict[str, int]:
    return {name: read(database, f"SELECT count(*) FROM telemetry.{name}")[0][0] for name in names}


def known(tasks: TaskStore, key: int) -> tuple[Any, ...]:
    horizons = tasks.begin()
    pushes = tasks.days_of({f"push {key}": NOW_NS}, horizons)
    return tasks.known_pushes(pushes), tasks.clients([key]), tasks.contributions([(key, MINUTE)])


def commit(store: Store, number: int, *load_ids: int, query: str = "q") -> None:
    with store.batch(query, number) as batch:
        assert batch is not None
        batch.enter(load_ids, [MINUTE])
        batch.record(statistics(pushes=1))


def test_a_load_counts_once_it_is_entered(store: Store, tasks: TaskStore, database: str) -> None:
    lost, won = load(tasks), load(tasks)
    assert set(rows_of(database, VIEWS).values()) == {0}
    assert known(tasks, 5) == (set(), {}, {})
    commit(store, 0, won)
    assert set(rows_of(database, VIEWS).values()) == {1}
    pushes, states, contributions = known(tasks, 5)
    assert (pushes, states.keys(), contributions.keys()) == ({"push 5"}, {5}, {(5, MINUTE)})
    assert read(database, "SELECT points FROM telemetry.metric_1h") == [(1,)]
    with store.maintenance(NOW_NS) as maintenance:
        maintenance.compute_hours_and_days(all_of_them=True)
    assert read(database, "SELECT points FROM telemetry.metric_1h ORDER BY bucket") == [(1,), (1,)]
    # The other attempt's rows are deleted, and nothing that counts.
    seen = {name: read(database, f"SELECT * FROM telemetry.{name}") for name in VIEWS}
    with store.maintenance(NOW_NS) as maintenance:
        assert maintenance.sweep() == 1
        assert maintenance.sweep() == 0
    assert seen == {name: read(database, f"SELECT * FROM telemetry.{name}") for name in VIEWS}
    assert rows_of(database, TABLES) == {
        **dict.fromkeys(TABLES, 1),
        **dict.fromkeys(("rollup_1h_load", "client_load", "dead_letter_load", "pending_load"), 0),
    }
    assert lost != won


def test_loads_of_a_batch_that_is_not_committed_are_kept_for_a_day(
    store: Store, tasks: TaskStore, database: str
) -> None:
    commit(store, 0, load(tasks, 0))
    waiting = load(tasks, 1, key=6)
    with store.maintenance(NOW_NS) as maintenance:
        assert maintenance.sweep() == 0
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE telemetry.pending_load SET written_at = now() - interval '25 hours'")
    with store.maintenance(NOW_NS) as maintenance:
        assert maintenance.sweep() == 1
    # The driver returns. Nothing is half in.
    with pytest.raises(StoreUnavailableError, match=r"1 of 1 loads .* the batch is repeated"):
        commit(store, 1, waiting)
    assert set(rows_of(database, VIEWS).values()) == {1}
    commit(store, 1, load(tasks, 1, key=6))
    assert rows_of(database, ("client_1m", "dead_letter")) == {"client_1m": 2, "dead_letter": 2}


@pytest.mark.parametrize("table", ["client_load", "dead_letter_load", "rollup_1h_load"])
def test_waiting_rows_that_postgresql_lost_are_noticed(
    store: Store, tasks: TaskStore, database: str, table: str
) -> None:
    """After a crash PostgreSQL empties tables without a write-ahead log."""
    load_id = load(tasks)
    with psycopg.connect(database) as connection:
        connection.execute(f"TRUNCATE telemetry.{table}".encode())
    with pytest.raises(StoreUnavailableError, match=r"1 of \d waiting rows are gone"):
        commit(store, 0, load_id)
    assert set(rows_of(database, VIEWS).values()) == {0}


def test_a_driver_that_returns_after_another_one_has_committed_changes_nothing(
    store: Store, tasks: TaskStore, database: str
) -> None:
    load(tasks)
    with Store(database, retention=RetentionSettings()) as another:
        commit(another, 0, load(tasks))
    with store.batch("q", 0) as batch:
        assert batch is None
    assert set(rows_of(database, VIEWS).values()) == {1}
    # Its tasks may write even later.
    load(tasks)
    assert set(rows_of(database, VIEWS).values()) == {1}
    with store.maintenance(NOW_NS) as maintenance:
        assert maintenance.sweep() == 2


def test_a_client_in_two_loads_is_found(store: Store, tasks: TaskStore) -> None:
    first, second = load(tasks, key=5), load(tasks, key=6)
    with store.batch("q", 0) as batch:
        assert batch is not None
        assert batch.split_clients([first, second]) == []
        assert batch.split_clients([first, load(tasks, key=5)]) == ["instance-5"]
        batch.record(statistics())


def test_jobs_on_one_database_take_turns(store: Store, tasks: TaskStore, database: str) -> None:
    """Tasks of another job would not see this batch's pushes and states."""
    with psycopg.connect(database, autocommit=True) as other:
        with store.batch("q", 0) as batch:
            assert batch is not None
            ((free,),) = other.execute("SELECT pg_try_advisory_lock(%s)", [0x726F6C6C7570]).fetchall()
            assert not free
            batch.enter([load(tasks)], [])
            batch.record(statistics())
        ((free,),) = other.execute("SELECT pg_try_advisory_lock(%s)", [0x726F6C6C7570]).fetchall()
        assert free


def test_loads_of_a_minute_are_added_up(store: Store, tasks: TaskStore, database: str) -> None:
    commit(store, 0, load(tasks, key=5), load(tasks, key=6))
    assert take_in(store, "other", 0, totals=rows((MINUTE, 1, 7, False, None, 2, 5.0, 0.5, 4.5, 0)))
    shown = "points, sum, min, max"
    assert read(database, f"SELECT {shown} FROM telemetry.metric_1m") == [(4, 7.0, 0.5, 4.5)]
    assert read(database, f"SELECT {shown} FROM telemetry.fleet_1m") == [(4, 7.0, 0.5, 4.5)]
    assert read(database, "SELECT observations FROM telemetry.spread_1m") == [(2,)]
    assert read(database, "SELECT count FROM telemetry.histogram_1m") == [(2,)]
    assert read(database, f"SELECT {shown} FROM telemetry.metric_1h") == [(2, 2.0, 1.0, 1.0)]
