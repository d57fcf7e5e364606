"""Merged minutes: the views show the same as without merging, from a row for each key."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from spark_streaming.postgres import Store, StoreUnavailableError, TaskStore, merging
from spark_streaming.postgres.merging import NEIGHBOURS
from spark_streaming.postgres.tables import EPOCH, MINUTES, TOTALS, Totals
from spark_streaming.settings import RetentionSettings
from tests.integration.rollup.store import rows as store_rows
from tests.integration.rollup.store.points import load_of, point, put_series_of, shown, stored, take_in
from tests.integration.rollup.store.rows import NOW_NS, read
from tests.testbed.postgres import Postgres

#: The last closed minute.
LAST = datetime.fromtimestamp(NOW_NS / 1e9, UTC) - timedelta(minutes=1)
#: Older ones are left to packing.
OLDER = LAST - timedelta(minutes=90)
SERIES = (1, 2, 3)
LOADS = 6


@pytest.fixture
def control(postgres: Postgres) -> Iterator[tuple[Store, str]]:
    """A store that never merges."""
    with postgres.database() as url, Store(url, retention=RetentionSettings()) as store:
        store.migrate()
        yield store, url


def some_points(seed: int, *minutes: datetime) -> list[tuple[Any, ...]]:
    chance = random.Random(seed)
    return [
        point(minute, chance.choice([1.0, 2.0, 0.25]), entry, chance.randint(0, 2))
        for minute in minutes
        for entry in SERIES
    ]


def ago(*minutes: int) -> list[datetime]:
    return [LAST - timedelta(minutes=number) for number in minutes]


def merge(store: Store) -> None:
    store.pack(NOW_NS)


def keys() -> dict[str, int]:
    """The rows of a minute, by kind, if each key has one."""
    return {
        totals.name: len(SERIES) if totals.key[0] in {"series_id", "fleet_id"} else 1 for totals in TOTALS
    } | {"rollup_histogram": 1}


@pytest.mark.full
def test_a_minute_with_rows_of_several_loads_gets_one_for_each_key(
    store: Store, database: str, control: tuple[Store, str]
) -> None:
    of_control, other = control
    minutes = ago(0, 1, 5)
    for number in range(LOADS):
        for each in (store, of_control):
            take_in(each, number, *some_points(number, *minutes, OLDER))
    before = stored(database, MINUTES, packed=False)
    assert before == {name: LOADS * 4 * count for name, count in keys().items()}
    merge(store)

    assert shown(database) == shown(other)
    left = stored(database, MINUTES, packed=False)
    # The older one is not merged.
    assert left == {name: (LOADS + 3) * count for name, count in keys().items()}
    merge(store)
    assert stored(database, MINUTES, packed=False) == left


def test_late_rows_are_added_to_merged_ones(store: Store, database: str, control: tuple[Store, str]) -> None:
    of_control, other = control
    for number in range(3):
        for each in (store, of_control):
            take_in(each, number, *some_points(number, *ago(1)))
        merge(store)
    assert shown(database) == shown(other)
    # The newest broker of an instance is that of the late rows.
    assert read(database, "SELECT broker_id FROM telemetry.client_1m") == [("2",)]


def test_a_running_minute_is_not_merged(store: Store, database: str) -> None:
    for number in range(2):
        take_in(store, number, *some_points(number, LAST + timedelta(minutes=1)))
    merge(store)
    assert stored(database, MINUTES, packed=False)["rollup"] == 2 * len(SERIES)


def test_rows_of_one_load_stay_as_they_are(store: Store, database: str) -> None:
    query = "SELECT ctid::text, load_id FROM telemetry.client_rollup_1m ORDER BY 1"
    take_in(store, 0, *some_points(0, *ago(1)))
    rows = read(database, query)
    merge(store)
    assert read(database, query) == rows


def test_whether_a_kind_is_worth_merging_is_counted_once_in_ten_minutes(
    store: Store, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "_ENOUGH_KEYS", 1)
    counted: list[tuple[str, datetime]] = []
    count = merging.Merging._count

    def noted(self: merging.Merging, totals: Totals, minute: datetime, **options: int) -> tuple[int, int]:
        found = count(self, totals, minute, **options)
        if found != (0, 0):
            counted.append((totals.name, minute))
        return found

    monkeypatch.setattr(merging.Merging, "_count", noted)
    monkeypatch.setattr(merging, "_ONE_OF", 1)
    minutes = ago(*range(25))
    for number in range(LOADS):
        take_in(store, number, *some_points(number, *minutes))
    merge(store)

    # At the first minute with rows, and at each tenth one.
    tens = [minute for minute in minutes if not (minute - EPOCH) % NEIGHBOURS]
    assert sorted(counted) == sorted((totals.name, at) for totals in TOTALS for at in {min(minutes), *tens})
    left = stored(database, MINUTES, packed=False)
    assert left == {name: len(minutes) * count for name, count in keys().items()}


@pytest.mark.parametrize("every", [1, 2])
def test_the_rows_of_a_series_are_neighbours(
    store: Store, database: str, control: tuple[Store, str], every: int
) -> None:
    """Two loads have all minutes, or every second one, which leaves nothing to merge."""
    of_control, other = control
    for number in range(2):
        for each in (store, of_control):
            take_in(each, number, *some_points(number, *ago(*range(number % every, 40, every))))
    merge(store)
    assert shown(database) == shown(other)
    windows: dict[datetime, list[tuple[int, datetime]]] = {}
    for series, bucket in read(database, "SELECT series_id, bucket FROM telemetry.rollup_1m ORDER BY ctid"):
        windows.setdefault(EPOCH + (bucket - EPOCH) // NEIGHBOURS * NEIGHBOURS, []).append((series, bucket))
    whole = [rows for start, rows in windows.items() if len(rows) == 10 * len(SERIES)]
    assert len(whole) >= 3
    assert all(rows == sorted(rows) for rows in whole)


@pytest.mark.full
def test_a_load_is_pending_while_its_minute_is_merged(
    store: Store, database: str, control: tuple[Store, str]
) -> None:
    of_control, other = control
    for number in range(2):
        for each in (store, of_control):
            take_in(each, number, *some_points(number, *ago(1)))
    late = some_points(7, *ago(1))
    put_series_of(store, *late)
    with store.batch("q", 2) as batch, closing(TaskStore(store.url, retention=RetentionSettings())) as tasks:
        assert batch is not None
        load_id, sums = store_rows.write_load(tasks, ("q", 2), **load_of(2, *late))
        # Beside the batch, whose rows don't count yet.
        merge(store)
        assert shown(database)["metric_1m"] == shown(other)["metric_1m"]
        loads = read(database, "SELECT DISTINCT load_id FROM telemetry.rollup_1m ORDER BY 1")
        assert loads == [(0,), (load_id,)]
        batch.enter([load_id], sums.first_minutes())
        batch.record(store_rows.statistics())
    take_in(of_control, 2, *late)
    assert shown(database) == shown(other)


def test_hours_are_computed_and_packed_from_merged_rows(
    store: Store, database: str, control: tuple[Store, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the clock goes on: merged, computed, packed."""
    monkeypatch.setattr(merging, "_MAX_AGE", timedelta(hours=6))
    of_control, other = control
    for number in range(LOADS):
        for each in (store, of_control):
            take_in(each, number, *some_points(number, *ago(*range(200))))
    with Store(database, retention=RetentionSettings(pack_after_hours=24)) as merges:
        merge(merges)
    assert stored(database, MINUTES, packed=False)["rollup"] == len(SERIES) * 200
    for each in (store, of_control):
        with each.maintenance(NOW_NS) as maintenance:
            maintenance.compute_hours_and_days(all_of_them=True)
    assert shown(database) == shown(other)
    with Store(database, retention=RetentionSettings(pack_after_hours=1)) as packs:
        assert packs.pack(NOW_NS, all_of_them=True)["hours_to_pack"] == 0
    assert stored(database, MINUTES, packed=True)["rollup"] > 0
    assert shown(database) == shown(other)


@pytest.mark.full
def test_a_rebuild_merges_its_minutes_again(store: Store, database: str, control: tuple[Store, str]) -> None:
    of_control, other = control
    minutes = ago(*range(30))
    for number in range(2):
        for each in (store, of_control):
            take_in(each, number, *some_points(number, *minutes))
    merge(store)
    since = int(minutes[10].timestamp()) // 60
    for each in (store, of_control):
        assert each.forget_since(since) == since
        for number in range(2, 5):
            take_in(each, number, *some_points(number, *minutes[:11]))
    assert stored(database, MINUTES, packed=False)["rollup"] == len(SERIES) * (19 + 11 * 3)
    merge(store)
    assert shown(database) == shown(other)
    assert stored(database, MINUTES, packed=False)["rollup"] == len(SERIES) * 30


@pytest.mark.full
def test_mergers_are_killed_beside_batches_and_each_other(
    store: Store, database: str, control: tuple[Store, str]
) -> None:
    """Readers see each batch once and whole, at any time, and the totals are the control's."""
    of_control, other = control
    batches = [some_points(number, *ago(*range(0, 50, 3))) for number in range(16)]
    put_series_of(store, *batches[0])
    counted = [0]
    for batch in batches:
        counted.append(counted[-1] + sum(item[5] for item in batch))
    is_over = threading.Event()
    failures: list[StoreUnavailableError] = []
    reads: list[int] = []

    def again() -> None:
        with Store(database, retention=RetentionSettings()) as own:
            while not is_over.is_set():
                try:
                    own.pack(NOW_NS)
                    with psycopg.connect(database) as connection:
                        connection.execute("UPDATE telemetry.horizon SET minutes_merged_until = NULL")
                except StoreUnavailableError as error:
                    failures.append(error)

    def kill() -> None:
        chance = random.Random(1)
        with psycopg.connect(database, autocommit=True) as connection:
            while not is_over.is_set():
                time.sleep(chance.uniform(0.0, 0.15))
                connection.execute(
                    "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
                    "WHERE application_name = 'kafka-client-telemetry rollup packing' "
                    "AND datname = current_database()"
                )

    def look() -> None:
        with psycopg.connect(database, autocommit=True) as connection:
            while not is_over.is_set():
                ((points,),) = connection.execute("SELECT coalesce(sum(points), 0) FROM telemetry.metric_1m")
                assert int(points) in counted
                reads.append(points)

    with ThreadPoolExecutor(4) as pool:
        works = [pool.submit(work) for work in (again, again, kill, look)]
        try:
            for number, points in enumerate(batches):
                take_in(store, number, *points)
            until = time.monotonic() + 300
            while len(failures) < 10 and time.monotonic() < until:
                time.sleep(0.05)
        finally:
            is_over.set()
        for work in works:
            work.result(120)
    assert len(failures) >= 10
    assert len(reads) > 10
    for number, points in enumerate(batches):
        take_in(of_control, number, *points)
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE telemetry.horizon SET minutes_merged_until = NULL")
    merge(store)
    assert shown(database) == shown(other)
    assert stored(database, MINUTES, packed=False)["rollup"] == len(SERIES) * 17
