"""Packed rows: the views show the same as without packing, whatever the rows are."""

from __future__ import annotations

import itertools
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from deploy.dashboards.sql import MEAN
from spark_streaming.postgres import (
    Store,
    StoreError,
    StoreUnavailableError,
    TaskStore,
    pack_window,
    plan_statistics,
)
from spark_streaming.postgres.pack_window import WindowPacking
from spark_streaming.postgres.packing import Packing
from spark_streaming.postgres.partitions import Partitions
from spark_streaming.postgres.tables import GRAINS, TOTALS, Grain, Totals
from spark_streaming.rows import MAX_TOTAL
from spark_streaming.settings import RetentionSettings
from tests.integration.rollup.store import rows as store_rows
from tests.integration.rollup.store.points import load_of, point, put_series_of, shown, stored, take_in
from tests.integration.rollup.store.rows import NOW_NS, put_series, read, rows
from tests.testbed.postgres import Postgres

NOW = datetime.fromtimestamp(NOW_NS / 1e9, UTC)
TODAY = NOW.replace(hour=0, minute=0)
#: In windows that are closed: an hour, a day and a month.
CLOSED = {
    "1m": TODAY - timedelta(days=2),
    "1h": TODAY - timedelta(days=9),
    "1d": (TODAY - timedelta(days=70)).replace(day=1),
}
#: Its hours have expired, too.
OLDEST = (TODAY - timedelta(days=125)).replace(day=1)
KEYS = 12

Step = Callable[[Store], dict[str, int]]


def everything(store: Store) -> dict[str, int]:
    return store.pack(NOW_NS, all_of_them=True)


def for_some_time(store: Store) -> dict[str, int]:
    return store.pack(NOW_NS)


def nothing(_: Store) -> dict[str, int]:
    """Leave all rows open."""
    return {}


def maintain(store: Store, pack: Step = everything) -> dict[str, int]:
    """Run maintenance, pack, and drop what is empty then. Return what is left to do."""
    with store.maintenance(NOW_NS) as maintenance:
        maintenance.compute_hours_and_days(all_of_them=True)
        backlog = maintenance.backlog()
    backlog |= pack(store)
    with store.maintenance(NOW_NS) as maintenance:
        maintenance.expire()
    return backlog


# Random rows


def values_of(chance: random.Random, sql_type: str) -> Iterator[Any]:
    """Endless values of one kind: all the same, whole, or anything."""
    if sql_type == "boolean":
        some: list[Any] = [chance.random() < 0.5] if chance.random() < 0.5 else [True, False]
    elif sql_type == "text":
        some = chance.choice([["1"], ["1", "2", "", "\N{SNOWMAN}"]])
    elif sql_type == "bigint":
        some = chance.choice(
            [[1], [0, 1, 2], [7], [1, 32_767, -32_768], [32_768, 1], [1 << 31, 1], [MAX_TOTAL, 0, 1]]
        )
    else:
        some = chance.choice(
            [
                [0.0],
                [2.5],
                [0.0, 1.0, 2.0],
                [-32_768.0, 32_767.0],
                [32_768.0, -32_769.0],
                [2.0**31, -(2.0**31), 2.0**31 - 1],
                [0.1, 1e-9, -1e290, 3.0],
                [chance.uniform(-10, 10) for _ in range(9)],
            ]
        )
    while True:
        yield chance.choice(some)


def random_rows(
    chance: random.Random, totals: Totals, grain: Grain, nullable: set[str]
) -> Iterator[tuple[Any, ...]]:
    """Rows of some windows and keys. Each key lacks some buckets and some values."""
    for key in range(1, KEYS + 1):
        others = {"spread": chance.randint(-9, 9), "lower": 0.0, "upper": chance.choice([1.0, float("inf")])}
        share = chance.choice([1.0, 1.0, 0.9, 0.2, 0.02])
        like = {name: values_of(chance, totals.type_of(name)) for name in totals.values}
        lacks = {name: chance.choice([0.0, 0.0, 0.5, 1.0]) for name in nullable}
        is_usual = {name for name in totals.usual if chance.random() < 0.5}
        for number in range(2 * 60 if grain.minutes == 1 else 40):
            if chance.random() >= share:
                continue
            row: dict[str, Any] = {}
            for name in totals.values:
                usual = totals.usual.get(name)
                if name in is_usual:
                    row[name] = row[usual] if isinstance(usual, str) else usual
                else:
                    row[name] = None if chance.random() < lacks.get(name, 0.0) else next(like[name])
            ids = [key, *(others[name] for name in totals.key[1:])]
            yield (CLOSED[grain.name] + number * grain.length, *ids, *row.values())


def fill(database: str, seed: int) -> None:
    """Put random rows of all kinds into open tables."""
    chance = random.Random(seed)
    with psycopg.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("SET search_path = telemetry; SET timezone = 'UTC'")
        for key in range(1, KEYS + 1):
            cursor.execute("INSERT INTO fleet_series (fleet_id, metric, rule) VALUES (%s, %s, 0)", [key, key])
            cursor.execute(
                "INSERT INTO series (series_id, fleet_id, metric, breakdown, rule) "
                "VALUES (%s, %s, %s, false, %s)",
                [key, key, key, key % 3],
            )
            cursor.execute(
                "INSERT INTO client_state (client_key, client_instance_id, first_seen, last_seen, "
                "push_interval_ms, terminated) VALUES (%s, %s, now(), now(), 60000, true)",
                [key, key],
            )
        partitions = Partitions(cursor)
        for totals, grain in itertools.product(TOTALS, GRAINS):
            if grain.name not in totals.grains:
                continue
            columns = ["bucket", *totals.key, *totals.values]
            nullable = {
                name
                for (name,) in cursor.execute(
                    "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND NOT attnotnull",
                    [totals.table(grain)],
                )
            }
            made = list(random_rows(chance, totals, grain, nullable & set(totals.values)))
            partitions.ensure(totals.table(grain), [row[0] for row in made])
            statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
                sql.Identifier(totals.table(grain)), sql.SQL(", ").join(map(sql.Identifier, columns))
            )
            with cursor.copy(statement) as copy:
                for row in made:
                    copy.write_row(row)


@pytest.fixture
def as_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack small windows as a whole, too."""
    monkeypatch.setattr(pack_window, "_MIN_WHOLE_BYTES", 0)


def open_bytes(database: str, grain: Grain = GRAINS[0]) -> int:
    """The size of the partitions of open rows, which only a truncated or dropped one has lost."""
    tables = ", ".join(f"'{totals.table(grain)}'" for totals in TOTALS if grain.name in totals.grains)
    query = (
        "SELECT coalesce(sum(pg_relation_size(inhrelid)), 0)::bigint FROM pg_inherits "
        f"JOIN pg_class ON oid = inhparent WHERE relname IN ({tables})"
    )
    ((size,),) = read(database, query)
    assert isinstance(size, int)
    return size


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 6))])
def test_packing_changes_nothing_that_is_shown(
    store: Store, database: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_window, "_STEP_ROWS", [3, 100, 10_000][seed % 3])
    if seed > 2:
        monkeypatch.setattr(pack_window, "_MIN_WHOLE_BYTES", 0)
    fill(database, seed)
    before = shown(database)
    rows_before = {grain.name: stored(database, grain, packed=False) for grain in GRAINS}
    assert min(min(of.values()) for of in rows_before.values()) > 100

    maintain(store, nothing)
    assert shown(database) == before
    left = maintain(store)
    assert {kind: count for kind, count in left.items() if count} == {}
    assert shown(database) == before
    for grain in GRAINS:
        packed = stored(database, grain, packed=True)
        assert min(packed.values()) > 0
        assert all(0 < count <= KEYS * 3 for count in packed.values())
    # Nothing is left of the open rows but those of hours and days that are not closed.
    assert {sum(stored(database, grain, packed=False).values()) for grain in GRAINS} == {0}

    with store.maintenance(NOW_NS) as maintenance:
        cursor = maintenance.connection.cursor()
        packed_again = Packing(cursor, Partitions(cursor))
        for grain in GRAINS:
            for start in CLOSED[grain.name], CLOSED[grain.name] + timedelta(hours=1):
                packed_again.open_window(grain, start)
    assert read(database, "SELECT count(*) FROM telemetry.repack WHERE grain = '1m'") == [(2 * len(TOTALS),)]
    assert shown(database) == before
    assert stored(database, GRAINS[0], packed=True) == dict.fromkeys(rows_before["1m"], 0)
    assert stored(database, GRAINS[0], packed=False) == rows_before["1m"]
    maintain(store)
    assert shown(database) == before
    assert sum(stored(database, GRAINS[0], packed=False).values()) == 0


# Against a store that never packs


@pytest.fixture
def control(postgres: Postgres) -> Iterator[tuple[Store, str]]:
    with postgres.database() as url, Store(url, retention=RetentionSettings()) as store:
        store.migrate()
        yield store, url


#: Days of closed minutes; the hours of the older one are packed, too.
OLD, RECENT = TODAY - timedelta(days=5), TODAY - timedelta(days=1)


def some_points(seed: int, step: int = 1) -> list[tuple[Any, ...]]:
    chance = random.Random(seed)
    return [
        point(day + timedelta(minutes=number), chance.choice([1.0, 2.0, 0.25]), item, chance.randint(0, 2))
        for day in (OLD, RECENT)
        for number in range(0, 200, step)
        for item in (1, 2)
    ]


@pytest.mark.full
def test_late_points_are_added_to_packed_rows(
    store: Store, database: str, control: tuple[Store, str]
) -> None:
    of_control, other = control
    rounds = [
        some_points(1, 2),
        # Buckets that exist, and others; a series that has no packed row.
        [*some_points(2, 3), point(OLD, 5.0, 3), point(RECENT + timedelta(minutes=199), 5.0, 3)],
        [point(OLD + timedelta(minutes=1), -1.0, 2, 0), point(OLD, float(MAX_TOTAL), 1, MAX_TOTAL)],
        [point(OLD, float(MAX_TOTAL), 1, MAX_TOTAL)],
    ]
    for number, points in enumerate(rounds):
        take_in(store, number, *points)
        take_in(of_control, number, *points)
        # Before the next maintenance they are rows of their own, which add up.
        added = (
            f"SELECT bucket, metric, least(sum(points), {MAX_TOTAL}), sum(sum), min(min), max(max) "
            "FROM telemetry.metric_1m GROUP BY 1, 2 ORDER BY 1, 2"
        )
        assert read(database, added) == read(other, added)
        left = maintain(store)
        assert {kind: count for kind, count in left.items() if count} == {}
        maintain(of_control, nothing)
        assert shown(database) == shown(other)
    assert sum(stored(database, GRAINS[0], packed=False).values()) == 0
    assert min(stored(database, GRAINS[1], packed=True).values()) > 0
    assert sum(sum(stored(other, grain, packed=True).values()) for grain in GRAINS) == 0


@pytest.mark.parametrize(
    "since",
    [
        OLD + timedelta(minutes=90),
        pytest.param(OLD + timedelta(minutes=60), marks=pytest.mark.full),
        RECENT + timedelta(minutes=1),
    ],
)
@pytest.mark.full
def test_a_rebuild_begins_within_a_packed_hour(
    store: Store, database: str, control: tuple[Store, str], since: datetime
) -> None:
    of_control, other = control
    points = some_points(3)
    again = [item for item in points if int(since.timestamp()) // 60 <= item[0]]
    for each, pack in ((store, everything), (of_control, nothing)):
        take_in(each, 0, *points)
        maintain(each, pack)
        assert each.forget_since(int(since.timestamp()) // 60) == int(since.timestamp()) // 60
        maintain(each, nothing)
    assert shown(database) == shown(other)
    for each, pack in ((store, everything), (of_control, nothing)):
        take_in(each, 1, *again)
        maintain(each, pack)
    assert shown(database) == shown(other)
    assert sum(stored(database, GRAINS[0], packed=False).values()) == 0


@pytest.mark.full
def test_a_window_is_packed_in_steps_of_several_transactions(
    store: Store, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_window, "_STEP_ROWS", 50)
    take_in(store, 0, *some_points(4))
    maintain(store, nothing)
    before = shown(database)
    # The time is used up after a step.
    ticks = itertools.count()
    monkeypatch.setattr(pack_window, "monotonic", lambda: math.inf if next(ticks) % 2 else 0.0)
    seen = set()
    for _ in range(200):
        left = maintain(store, for_some_time)
        assert shown(database) == before
        seen.add(left["hours_to_pack"])
        if not any(left.values()):
            break
    assert not any(left.values())
    assert len(seen) > 2
    assert sum(stored(database, GRAINS[0], packed=False).values()) == 0
    assert store.status().newest_bucket == RECENT + timedelta(minutes=199)


@pytest.mark.usefixtures("as_whole")
def test_a_partition_whose_rows_are_all_packed_is_truncated(store: Store, database: str) -> None:
    take_in(store, 0, *some_points(4))
    maintain(store, nothing)
    before = shown(database)
    assert open_bytes(database) > 0
    assert not any(everything(store).values())
    assert open_bytes(database) == 0
    assert shown(database) == before


def test_plans_expect_as_many_packed_rows_as_there_are(store: Store, database: str) -> None:
    fill(database, 7)
    everything(store)
    joined = "FROM telemetry.rollup_1m_packed AS p JOIN telemetry.slot_1m AS m ON m.start = p.start"
    with psycopg.connect(database, autocommit=True) as connection:
        # As autovacuum does it.
        connection.execute(f"ANALYZE telemetry.rollup_1m_packed_p{CLOSED['1m']:%Y%m%d}")
        ((found,),) = connection.execute(f"SELECT count(*) {joined}")
        everything(store)
        (((plan,),),) = connection.execute(f"EXPLAIN (FORMAT JSON) SELECT {joined}")
        assert plan["Plan"]["Plan Rows"] == pytest.approx(found, rel=0.5)
        # They last a day.
        assert "rollup_1m_packed" not in plan_statistics.lacking(connection.cursor())


@pytest.mark.usefixtures("as_whole")
@pytest.mark.parametrize("is_reading", [pytest.param(False, marks=pytest.mark.full), True])
@pytest.mark.full
def test_rows_are_deleted_if_a_reader_may_miss_them(
    store: Store, database: str, monkeypatch: pytest.MonkeyPatch, is_reading: bool
) -> None:
    """A transaction with an older snapshot would find the truncated partition empty."""
    monkeypatch.setattr(pack_window, "_LOCK_TRIES", 3)
    take_in(store, 0, *some_points(4))
    maintain(store, nothing)
    before = shown(database)
    query = "SELECT sum(points), count(*), min(bucket) FROM telemetry.metric_1m"
    with psycopg.connect(database) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        # The first query takes the snapshot, and locks the partitions it reads.
        reader.execute(query if is_reading else "SELECT count(*) FROM telemetry.ledger")
        assert not any(everything(store).values())
        ((*first,),) = reader.execute(query)
        assert [tuple(first)] == read(database, query)
    assert open_bytes(database) > 0
    assert sum(stored(database, GRAINS[0], packed=False).values()) == 0
    assert shown(database) == before


@pytest.mark.usefixtures("as_whole")
@pytest.mark.full
def test_packing_dies_while_it_waits_for_readers(
    store: Store, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in(store, 0, *some_points(4))
    maintain(store, nothing)
    before = shown(database)
    deaths = 0

    def die(_: WindowPacking) -> bool:
        nonlocal deaths
        with psycopg.connect(database, autocommit=True) as connection:
            deaths += terminate_packing(connection)
        return True

    with monkeypatch.context() as patched:
        patched.setattr(WindowPacking, "_has_other_snapshots", die)
        with pytest.raises(StoreUnavailableError):
            everything(store)
    assert deaths > 0
    assert shown(database) == before
    assert not any(everything(store).values())
    assert shown(database) == before


@pytest.mark.parametrize("as_whole_too", [pytest.param(False, marks=pytest.mark.full), True])
def test_a_window_that_fails_does_not_undo_others(
    store: Store, database: str, as_whole_too: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if as_whole_too:
        monkeypatch.setattr(pack_window, "_MIN_WHOLE_BYTES", 0)
    take_in(store, 0, *some_points(5))
    maintain(store, nothing)
    before = shown(database)
    with psycopg.connect(database, autocommit=True) as connection:
        # At the end of the transaction: only it deletes notes.
        connection.execute(
            "CREATE FUNCTION telemetry.refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE 'refused'; END $$; CREATE TRIGGER refuse BEFORE DELETE ON telemetry.repack "
            "FOR EACH ROW WHEN (old.kind = 'rollup') EXECUTE FUNCTION telemetry.refuse()"
        )
        with pytest.raises(StoreError, match="refused"):
            everything(store)
        connection.execute("DROP TRIGGER refuse ON telemetry.repack")
    assert shown(database) == before
    packed = stored(database, GRAINS[0], packed=True)
    assert {name for name, count in packed.items() if not count} == {"rollup"}
    assert not any(maintain(store).values())
    assert shown(database) == before
    assert stored(database, GRAINS[0], packed=True)["rollup"] > 0


def terminate_packing(connection: psycopg.Connection[Any], share: float = 1.0) -> int:
    """Terminate some of the server's processes that pack. Return how many."""
    ((count,),) = connection.execute(
        "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity "
        "WHERE application_name = 'kafka-client-telemetry rollup packing' "
        "AND datname = current_database() AND random() < %s",
        [share],
    )
    return int(count)


@pytest.mark.full
def test_packing_dies_between_steps(store: Store, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_window, "_STEP_ROWS", 100)
    take_in(store, 0, *some_points(4))
    take_in(store, 1, *some_points(7))
    maintain(store, nothing)
    before = shown(database)
    for steps in (2, 4):
        left = itertools.count()

        def die(left: Iterator[int] = left, steps: int = steps) -> float:
            if next(left) == steps:
                with psycopg.connect(database, autocommit=True) as connection:
                    terminate_packing(connection)
            return 0.0

        with monkeypatch.context() as patched:
            patched.setattr(pack_window, "monotonic", die)
            with pytest.raises(StoreUnavailableError):
                everything(store)
        assert next(left) > steps
        assert shown(database) == before
    left_to_do = maintain(store)
    assert not any(left_to_do.values())
    assert shown(database) == before
    assert sum(stored(database, GRAINS[0], packed=False).values()) == 0


@pytest.mark.parametrize("as_whole_too", [pytest.param(False, marks=pytest.mark.full), True])
@pytest.mark.full
def test_a_load_is_pending_while_its_hour_is_packed(
    store: Store,
    database: str,
    control: tuple[Store, str],
    as_whole_too: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if as_whole_too:
        monkeypatch.setattr(pack_window, "_MIN_WHOLE_BYTES", 0)
    of_control, other = control
    first, second = some_points(8), some_points(9, 2)
    for each in (store, of_control):
        take_in(each, 0, *first)
    put_series_of(store, *second)
    with store.batch("q", 1) as batch, closing(TaskStore(store.url, retention=RetentionSettings())) as tasks:
        assert batch is not None
        load_id, sums = store_rows.write_load(tasks, ("q", 1), **load_of(1, *second))
        # Beside the batch.
        assert store.pack(NOW_NS, all_of_them=True)["hours_to_pack"] == 0
        assert stored(database, GRAINS[0], packed=True)["rollup"] > 0
        waiting = read(database, "SELECT DISTINCT load_id FROM telemetry.rollup_1m")
        assert waiting == [(load_id,)]
        maintain(of_control, nothing)
        assert shown(database)["metric_1m"] == shown(other)["metric_1m"]
        batch.enter([load_id], sums.first_minutes())
        batch.record(store_rows.statistics())
    assert read(database, "SELECT count(DISTINCT start) FROM telemetry.repack") == [(8,)]
    take_in(of_control, 1, *second)
    for each, pack in ((store, everything), (of_control, nothing)):
        left = maintain(each, pack)
        assert not any(left.values())
    assert shown(database) == shown(other)
    assert sum(stored(database, GRAINS[0], packed=False).values()) == 0


@pytest.mark.full
def test_a_batch_is_committed_while_its_hour_is_packed(
    store: Store, database: str, control: tuple[Store, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packing sees its rows too late, and keeps the note."""
    of_control, other = control
    first, second = some_points(10), some_points(11, 2)
    for each in (store, of_control):
        take_in(each, 0, *first)
    steps = itertools.count()

    def commit() -> float:
        if next(steps) == 4:
            with ThreadPoolExecutor(1) as one:
                one.submit(take_in, store, 1, *second).result(60)
        return 0.0

    with monkeypatch.context() as patched:
        patched.setattr(pack_window, "_STEP_ROWS", 100)
        patched.setattr(pack_window, "monotonic", commit)
        assert for_some_time(store)["hours_to_pack"] > 0
    assert next(steps) > 4
    take_in(of_control, 1, *second)
    for each, pack in ((store, everything), (of_control, nothing)):
        maintain(each, pack)
    assert shown(database) == shown(other)
    assert sum(stored(database, GRAINS[0], packed=False).values()) == 0


@pytest.mark.usefixtures("as_whole")
@pytest.mark.parametrize("is_entered", [True, False])
@pytest.mark.full
def test_a_load_comes_before_its_partition_is_truncated(
    store: Store,
    database: str,
    control: tuple[Store, str],
    is_entered: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_control, other = control
    first, second = some_points(12), some_points(13, 2)
    for each in (store, of_control):
        take_in(each, 0, *first)
    put_series_of(store, *second)
    comes = itertools.count()
    truncate = pack_window.WindowPacking._try_truncate

    def write() -> None:
        with closing(TaskStore(store.url, retention=RetentionSettings())) as tasks:
            store_rows.write_load(tasks, ("q", 1), **load_of(1, *second))

    def enter() -> None:
        take_in(store, 1, *second)

    def come(self: pack_window.WindowPacking, partition: str, noted: int) -> bool:
        if next(comes) == 0:
            with ThreadPoolExecutor(1) as one:
                one.submit(enter if is_entered else write).result(60)
        return truncate(self, partition, noted)

    with monkeypatch.context() as patched:
        patched.setattr(pack_window.WindowPacking, "_try_truncate", come)
        for_some_time(store)
    assert next(comes) > 1
    if not is_entered:
        # It never counts, and stays until it is swept.
        assert read(database, "SELECT count(*) FROM telemetry.rollup_1m") != [(0,)]
        take_in(store, 1, *second)
    take_in(of_control, 1, *second)
    for each, pack in ((store, everything), (of_control, nothing)):
        with each.maintenance(NOW_NS) as maintenance:
            maintenance.sweep()
        maintain(each, pack)
    assert shown(database) == shown(other)
    assert sum(stored(database, GRAINS[0], packed=False).values()) == 0


def late_points(seed: int) -> list[tuple[Any, ...]]:
    """Points of a few minutes of closed windows: of minutes, of hours and of days."""
    chance = random.Random(seed)
    days = [OLD, RECENT, CLOSED["1h"], CLOSED["1h"] + timedelta(days=1), CLOSED["1d"], OLDEST]
    return [
        point(
            day + timedelta(minutes=chance.randrange(300)),
            chance.choice([1.0, 2.0, 0.25]),
            chance.randint(1, 3),
            chance.randint(1, 3),
        )
        for day in days
        for _ in range(25)
    ]


@pytest.mark.full
@pytest.mark.parametrize("as_whole_too", [pytest.param(False, marks=pytest.mark.full), True])
def test_hours_and_days_are_packed_and_get_late_points(
    store: Store,
    database: str,
    control: tuple[Store, str],
    as_whole_too: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Minutes of these days have expired, so that batches add to hours and days."""
    if as_whole_too:
        monkeypatch.setattr(pack_window, "_MIN_WHOLE_BYTES", 0)
    of_control, other = control
    for number in range(4):
        points = late_points(number)
        take_in(store, number, *points)
        take_in(of_control, number, *points)
        if number == 2:
            # They are noted and wait.
            notes = read(database, "SELECT DISTINCT grain FROM telemetry.repack ORDER BY 1")
            assert notes == [("1d",), ("1h",), ("1m",)]
            assert everything(store) == dict.fromkeys(("hours_to_pack", "days_to_pack", "months_to_pack"), 0)
        left = maintain(store)
        assert not any(left.values())
        maintain(of_control, nothing)
        assert shown(database) == shown(other)
    for grain in GRAINS:
        assert sum(stored(database, grain, packed=True).values()) > 0
        assert sum(stored(other, grain, packed=True).values()) == 0
    day = f"bucket >= '{CLOSED['1h']}' AND bucket < '{CLOSED['1h'] + timedelta(days=2)}'"
    month = f"bucket >= '{OLDEST}' AND bucket < '{OLDEST + timedelta(days=28)}'"
    for table, condition in (("rollup_1h", day), ("rollup_1d", month)):
        assert read(database, f"SELECT count(*) FROM telemetry.{table} WHERE {condition}") == [(0,)]
        ((kept,),) = read(other, f"SELECT count(*) FROM telemetry.{table} WHERE {condition}")
        assert kept > 0


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.full
def test_packers_are_killed_beside_batches_and_each_other(
    store: Store,
    database: str,
    control: tuple[Store, str],
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Readers see each batch once and whole, at any time, and the totals are the control's."""
    chance = random.Random(seed)
    monkeypatch.setattr(pack_window, "_STEP_ROWS", 40)
    monkeypatch.setattr(pack_window, "_LOCK_TRIES", 3)
    # Some as a whole, others in steps.
    monkeypatch.setattr(pack_window, "_MIN_WHOLE_BYTES", [0, 1 << 14][seed])
    of_control, other = control
    batches = [some_points(20), *(late_points(100 * seed + number) for number in range(1, 16))]
    for item in batches:
        put_series_of(store, *item)
    take_in(store, 0, *batches[0])
    of_minutes = [
        sum(item[5] for item in batch if item[0] >= int(OLD.timestamp()) // 60) for batch in batches
    ]
    whole = set(itertools.accumulate(of_minutes))
    is_over = threading.Event()
    failures: list[StoreUnavailableError] = []
    kills: list[int] = []
    reads: list[int] = []

    def pack() -> None:
        with Store(database, retention=RetentionSettings(pack_connections=2)) as own:
            while not is_over.is_set():
                try:
                    own.pack(NOW_NS)
                except StoreUnavailableError as error:
                    failures.append(error)

    def kill() -> None:
        with psycopg.connect(database, autocommit=True, application_name="killer") as connection:
            while not is_over.is_set():
                time.sleep(chance.uniform(0.0, 0.15))
                kills.extend(range(terminate_packing(connection, 0.4)))

    def look() -> None:
        with psycopg.connect(database, autocommit=True) as connection:
            while not is_over.is_set():
                ((points,),) = connection.execute("SELECT sum(points) FROM telemetry.metric_1m")
                assert int(points) in whole
                reads.append(points)
                time.sleep(0.02)

    with ThreadPoolExecutor(4) as pool:
        with ExitStack() as stack:
            stack.callback(is_over.set)
            works = [pool.submit(work) for work in (pack, pack, kill, look)]
            for number, points in enumerate(batches[1:], 1):
                take_in(store, number, *points)
                if number % 5 == 0:
                    with store.maintenance(NOW_NS) as maintenance:
                        maintenance.compute_hours_and_days(all_of_them=True)
                        maintenance.sweep()
                        maintenance.expire()
                time.sleep(0.1)
            until = time.monotonic() + 300
            while len(kills) < 30 and time.monotonic() < until:
                time.sleep(0.05)
        for work in works:
            work.result(120)
    assert len(kills) >= 30
    assert len(failures) > 3
    assert len(reads) > 10
    for number, points in enumerate(batches):
        take_in(of_control, number, *points)
    maintain(of_control, nothing)
    assert not any(maintain(store).values())
    assert shown(database) == shown(other)
    for grain in GRAINS[:2]:
        assert sum(stored(database, grain, packed=True).values()) > 0
    assert sum(stored(database, GRAINS[0], packed=False).values()) == 0


@pytest.mark.full
def test_readers_and_the_drop_of_empty_partitions_do_not_block_each_other(
    store: Store, database: str
) -> None:
    take_in(store, 0, *some_points(4))
    maintain(store, nothing)
    everything(store)

    def expire() -> None:
        with store.maintenance(NOW_NS) as maintenance:
            maintenance.expire()

    with psycopg.connect(database) as reader, ThreadPoolExecutor(1) as one:
        # As a query does: first the table, then the partitions.
        reader.execute("LOCK TABLE ONLY telemetry.rollup_1m IN ACCESS SHARE MODE")
        expiring = one.submit(expire)
        time.sleep(1.5)
        assert not expiring.done()
        assert reader.execute("SELECT count(*) FROM telemetry.rollup_1m").fetchall() == [(0,)]
        expiring.result(60)


@pytest.mark.full
def test_packed_rows_expire(database: str) -> None:
    with Store(database, retention=RetentionSettings()) as store:
        store.migrate()
        take_in(store, 0, *some_points(6))
        maintain(store)
        of_days = shown(database)["metric_1d"]
    with Store(database, retention=RetentionSettings(minute_days=2, hour_days=4)) as store:
        maintain(store)
        found = shown(database)
        assert {row[0] >= RECENT for row in found["metric_1m"]} == {True}
        assert {row[0] >= RECENT for row in found["metric_1h"]} == {True}
        assert found["metric_1d"] == of_days
        # Points of expired minutes and hours go to the day.
        take_in(store, 1, point(OLD, 100.0))
        maintain(store)
        added = sum(row[12] for row in shown(database)["metric_1d"]) - sum(row[12] for row in of_days)
        assert round(added * 1440) == 100


def test_open_windows_are_not_packed(store: Store, database: str) -> None:
    ends = NOW - timedelta(hours=2)
    take_in(store, 0, point(ends, 1.0), point(ends - timedelta(hours=1), 1.0), point(NOW, 1.0))
    assert not any(maintain(store).values())
    assert stored(database, GRAINS[0], packed=False)["rollup"] == 2
    assert stored(database, GRAINS[0], packed=True)["rollup"] == 1
    assert stored(database, GRAINS[1], packed=True)["rollup"] == 0


@pytest.mark.parametrize("step", [nothing, everything])
def test_a_histogram_without_a_sum_leaves_no_sum_and_no_mean(store: Store, database: str, step: Step) -> None:
    """Part of a sum, divided by all points, would be a wrong mean."""
    put_series(database, (1, 1, "partial", False), (2, 2, "whole", False), rule=5)
    for number, at in enumerate((CLOSED["1m"], OLDEST)):
        minute = int(at.timestamp()) // 60
        lacking = (minute, 1, 1, False, None, 3, None, 1.0, 9.0, 0)
        for part in range(2):
            totals = rows(
                *((lacking,) if part else ()),
                (minute, 1, 1, False, None, 2, 4.0, 1.0, 3.0, 0),
                (minute, 2, 2, False, None, 2, 3.0, 1.0, 2.0, 0),
            )
            store_rows.take_in(store, "q", 2 * number + part, totals=totals)
    maintain(store, step)
    for view in ("metric", "fleet"):
        for grain in ("1m", "1h", "1d"):
            found = read(
                database,
                f"SELECT DISTINCT metric, points, sum, min, max, avg FROM telemetry.{view}_{grain} "
                "ORDER BY metric",
            )
            assert found == [("partial", 7, None, 1.0, 9.0, None), ("whole", 4, 6.0, 1.0, 2.0, 1.5)], grain
            assert read(database, f"SELECT {MEAN} FROM telemetry.{view}_{grain}") == [(1.5,)]
