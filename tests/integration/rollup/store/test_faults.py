"""Faults: lost connections, wrong clocks, unstorable labels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from urllib.parse import urlsplit, urlunsplit

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from spark_streaming.postgres import (
    DEAD_LETTER_ROWS,
    Store,
    StoreError,
    StoreUnavailableError,
    TaskStore,
)
from spark_streaming.rows import MAX_TOTAL
from spark_streaming.settings import RetentionSettings
from tests.integration.rollup.store.rows import (
    MINUTE,
    NOW_NS,
    buckets,
    entries,
    put_series,
    read,
    rows,
    series,
    take_in,
)

DAY_MINUTES = 24 * 60


class DriverDiedError(Exception):
    pass


def batch_of(
    store: Store, number: int, *points: tuple[int, float], then: Callable[[], object] = lambda: None
) -> None:
    if number == 0:
        put_series(store.url, (1, 7, "m", False))
    totals = rows(*((minute, 1, 7, False, None, 1, value, value, value, 0) for minute, value in points))
    assert take_in(store, "q", number, totals=totals, then=then)


def end_connections(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_an_exception_rolls_the_batch_back(store: Store, database: str) -> None:
    def die() -> None:
        raise DriverDiedError

    with pytest.raises(DriverDiedError):
        batch_of(store, 0, (MINUTE, 1.0), then=die)
    assert store.status().queries == ()
    batch_of(store, 0, (MINUTE, 1.0))
    assert read(database, "SELECT sum FROM telemetry.metric_1m") == [(1.0,)]


def test_a_lost_connection_rolls_back_and_the_batch_is_repeated(store: Store, database: str) -> None:
    batch_of(store, 0, (MINUTE, 1.0))
    with pytest.raises(StoreUnavailableError):
        batch_of(store, 1, (MINUTE, 2.0), then=lambda: end_connections(database))
    batch_of(store, 1, (MINUTE, 6.0))
    assert read(database, "SELECT sum FROM telemetry.metric_1m") == [(7.0,)]


def test_a_standby_is_unavailable_and_its_connection_closed(store: Store, database: str) -> None:
    def set_read_only(value: str) -> None:
        with psycopg.connect(
            database, autocommit=True, options="-c default_transaction_read_only=off"
        ) as one:
            one.execute(
                f"ALTER DATABASE {one.info.dbname} SET default_transaction_read_only = {value}".encode()
            )

    batch_of(store, 0, (MINUTE, 1.0))
    set_read_only("on")
    end_connections(database)
    with pytest.raises(StoreUnavailableError):
        store.status()
    with pytest.raises(StoreUnavailableError, match=r"a standby\?"):
        batch_of(store, 1, (MINUTE, 2.0))
    set_read_only("off")
    batch_of(store, 1, (MINUTE, 2.0))
    assert read(database, "SELECT sum FROM telemetry.metric_1m") == [(3.0,)]


def test_a_committed_batch_is_skipped_by_all_processes(store: Store, database: str) -> None:
    batch_of(store, 0, (MINUTE, 1.0))
    with Store(database, retention=RetentionSettings()) as another, another.batch("q", 0) as batch:
        assert batch is None
    with Store(database, retention=RetentionSettings()) as another:
        batch_of(another, 1, (MINUTE, 1.0))
        assert take_in(another, "another query", 0)
    assert read(database, "SELECT sum FROM telemetry.metric_1m") == [(2.0,)]


def test_totals_without_their_series_are_refused(store: Store, database: str) -> None:
    stray = rows((MINUTE, 3, 7, False, None, 1, 1.0, 1.0, 1.0, 0))
    with pytest.raises(StoreError, match="1 series that are not in the database, one of them 3"):
        take_in(store, "q", 0, totals=stray)
    assert read(database, "SELECT count(*) FROM telemetry.rollup_1m") == [(0,)]


def test_late_points_go_to_hours_and_days_and_impossible_ones_are_left_out(
    store: Store, database: str
) -> None:
    week, year = MINUTE - 8 * DAY_MINUTES, MINUTE - 365 * DAY_MINUTES
    points = [(MINUTE, 1.0), (week, 2.0), (week, 3.0), (year, 4.0), (0, 5.0), (MINUTE + 5 * DAY_MINUTES, 6.0)]
    batch_of(store, 0, *points)
    with store.maintenance(NOW_NS) as maintenance:
        maintenance.compute_hours_and_days(all_of_them=True)
        maintenance.expire()
    assert read(database, "SELECT sum FROM telemetry.metric_1m") == [(1.0,)]
    assert read(database, "SELECT sum FROM telemetry.metric_1h ORDER BY bucket") == [(5.0,), (1.0,)]
    assert read(database, "SELECT sum FROM telemetry.metric_1d ORDER BY bucket") == [(4.0,), (5.0,), (1.0,)]
    assert store.status().left_out == 2


def test_sums_of_counts_saturate(store: Store, database: str) -> None:
    day = (MINUTE - 2 * DAY_MINUTES) // DAY_MINUTES * DAY_MINUTES
    put_series(database, (1, 7, "huge", False), (2, 7, "small", False))
    # Twice in one minute of a batch, in some minutes of an hour, in each batch.
    huge = [(day + minute, 1, 7, False, None, MAX_TOTAL, 1e19, None, None, 0) for minute in (0, 0, 1, 70)]
    for number in range(3):
        take_in(
            store,
            "q",
            number,
            totals=rows(*huge, (day, 2, 7, False, None, 3, 3.0, 1.0, 1.0, 0)),
            histograms=buckets(*((day + minute, 1, 0.0, 1.0, MAX_TOTAL) for minute in (0, 0, 1))),
        )
    with store.maintenance(NOW_NS) as maintenance:
        maintenance.compute_hours_and_days(all_of_them=True)
    for grain in ("1m", "1h", "1d"):
        assert read(
            database, f"SELECT DISTINCT points FROM telemetry.metric_{grain} WHERE metric = 'huge'"
        ) == [(MAX_TOTAL,)]
        assert read(database, f"SELECT points, sum FROM telemetry.metric_{grain} WHERE metric = 'small'") == [
            (9, 9.0)
        ]
        assert read(database, f"SELECT DISTINCT count FROM telemetry.histogram_{grain}") == [(MAX_TOTAL,)]


def test_pushes_with_wrong_clocks_count_once_in_few_partitions(store: Store, database: str) -> None:
    days = (*range(0, 20_000, 100), *range(40_000, 60_000, 100))
    pushes = {f"{number:032x}": day * 86_400_000_000_000 for number, day in enumerate(days)}
    assert take_in(store, "q", 0, pushes=pushes)
    with closing(TaskStore(database, retention=RetentionSettings())) as tasks:
        assert tasks.known_pushes(tasks.days_of(pushes, tasks.begin())) == set(pushes)
    found = read(database, "SELECT count(*) FROM pg_class WHERE relname LIKE 'push_p%' AND relkind = 'r'")
    assert found == [(2,)]


def test_labels_with_any_bytes_are_stored(store: Store, database: str) -> None:
    label = "\0" + "ü" * 5000
    with closing(TaskStore(database, retention=RetentionSettings())) as tasks:
        tasks.begin()
        tasks.add_series(series((5, "m" * 9000, False), client_id=label, principal="", group_id=label))
        found = tasks.find_series(np.array([5]), np.array([5]))
    one, fleet = int(found.series[0]), int(found.fleet[0])
    taken = entries((1, MINUTE, label))
    letters = [["s"], [label], [label], [100_000], [b"\0" * 65_536]]
    assert take_in(
        store,
        "q",
        0,
        totals=rows((MINUTE, one, fleet, False, None, 1, 1.0, 1.0, 1.0, 0)),
        minutes=taken,
        entries=taken,
        letters=pa.table(letters, schema=DEAD_LETTER_ROWS),
    )
    ((client_id, principal, topic),) = read(
        database, "SELECT client_id, principal, topic FROM telemetry.metric_1m"
    )
    assert client_id == "\ufffd" + "ü" * 397 + "…"
    assert principal == ""
    assert topic is None
    assert read(database, "SELECT bytes, length(payload) FROM telemetry.dead_letter") == [(100_000, 65_536)]


def test_no_error_has_the_password() -> None:
    for url in (
        "postgresql://user:s3cret%zz@127.0.0.1/db",
        "postgresql//user:s3cret@127.0.0.1/db",
        "postgresql://user:s3cret@127.0.0.1:1/db",
        "postgresql://user:s3cret@127.0.0.1:s3cret/db",
    ):
        with pytest.raises(StoreError) as raised, Store(url, retention=RetentionSettings()) as store:
            store.migrate()
        assert "s3cret" not in str(raised.value)
        assert raised.value.__suppress_context__


def test_a_missing_database_is_unavailable(database: str) -> None:
    nowhere = urlunsplit(urlsplit(database)._replace(path="/nowhere"))
    with (
        pytest.raises(StoreUnavailableError, match="nowhere"),
        Store(nowhere, retention=RetentionSettings()) as store,
    ):
        store.migrate()
    with (
        pytest.raises(StoreError, match="rollup migrate"),
        Store(database, retention=RetentionSettings()) as store,
    ):
        store.status()
