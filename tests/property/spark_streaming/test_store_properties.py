"""The store counts each batch once, whatever batches come, fail and are repeated."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_streaming.postgres import Store, StoreUnavailableError
from spark_streaming.postgres.packed import as_rows
from spark_streaming.postgres.tables import GRAINS, SERIES, Grain
from spark_streaming.settings import RetentionSettings
from tests.exploration import examples
from tests.integration.rollup.store import rows as store_rows
from tests.integration.rollup.store.rows import NOW_NS, put_series, rows
from tests.testbed.postgres import Postgres

_NOW_MINUTE = NOW_NS // 60_000_000_000
_RETENTION = RetentionSettings(minute_days=2, hour_days=4)
_examples = itertools.count(1)

#: Some minutes are older than minutes are kept, some older than hours.
_ages = st.sampled_from([0, 1, 2, 61, 1500, 3000, 3100, 6000])
_points = st.tuples(
    st.integers(0, 2), _ages, st.integers(-5, 5), st.sampled_from([None, 0, 3]), st.booleans()
)
_fates = st.sampled_from(["commit", "raise", "kill", "repeat"])
_batches = st.lists(st.tuples(st.lists(_points, max_size=6), _fates, st.booleans()), min_size=1, max_size=6)

#: Minutes of two hours of yesterday, and how many of them are whole afterwards.
_minutes = st.integers(0, 119)
_growths = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 2), _minutes, st.integers(-5, 5)), max_size=6), _minutes),
    min_size=1,
    max_size=8,
)

Point = tuple[int, int, int, int | None, bool]


class DriverDiedError(Exception):
    pass


@pytest.fixture(scope="module")
def url(postgres: Postgres) -> Iterator[str]:
    with postgres.database() as url:
        yield url


@pytest.fixture(scope="module")
def store(url: str) -> Iterator[Store]:
    with Store(url, retention=_RETENTION) as store:
        store.migrate()
        yield store


def end_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def take_in(store: Store, url: str, query_id: str, number: int, table: pa.Table, fate: str) -> None:
    def suffer() -> None:
        if fate == "raise":
            raise DriverDiedError
        if fate == "kill":
            end_connections(url)

    done = store_rows.take_in(
        store,
        query_id,
        number,
        totals=table,
        then=suffer,
        retention=RetentionSettings(minute_days=2, hour_days=4),
    )
    assert done == (fate != "repeat")


@settings(max_examples=examples(10), deadline=None)
@given(batches=_batches)
def test_each_batch_counts_once(store: Store, url: str, batches: list[tuple[list[Point], str, bool]]) -> None:
    example = next(_examples)
    metric, base = f"metric {example}", example * 10
    truth: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, (points, fate, ticks) in enumerate(batches):
        table = rows(
            *(
                (_NOW_MINUTE - age, base + point, base + point, breakdown, spread, 1, value, value, value, 1)
                for point, age, value, spread, breakdown in points
            )
        )
        ids = table["series_id"].unique().to_pylist()
        put_series(url, *((item, item, f"{metric} {item}", False) for item in ids))
        if fate != "commit" and fate != "repeat":
            with pytest.raises((DriverDiedError, StoreUnavailableError)):
                take_in(store, url, metric, number, table, fate)
        take_in(store, url, metric, number, table, "commit")
        if fate == "repeat":
            take_in(store, url, metric, number, table, fate)
        for point, age, value, *_ in points:
            truth[base + point, _NOW_MINUTE - age].append(value)
        if ticks:
            with store.maintenance(NOW_NS) as maintenance:
                maintenance.compute_hours_and_days()
                maintenance.expire()
                maintenance.sweep()
            store.pack(NOW_NS)
    with store.maintenance(NOW_NS) as maintenance:
        maintenance.compute_hours_and_days(all_of_them=True)
    named: dict[str, Grain] = {grain.name: grain for grain in GRAINS}
    with psycopg.connect(url, options="-c search_path=telemetry") as connection:
        # The server's day when the store was made, because midnight may pass meanwhile.
        ((minutes_from, hours_from),) = connection.execute(
            "SELECT (extract(epoch FROM minutes_from) / 60)::bigint, "
            "(extract(epoch FROM hours_from) / 60)::bigint FROM horizon"
        )
        today = minutes_from + 2 * 1440
        assert today - _NOW_MINUTE // 1440 * 1440 in (0, 1440)
        assert hours_from == today - 4 * 1440
        for grain, length, since in (("1m", 1, minutes_from), ("1h", 60, hours_from), ("1d", 1440, 0)):
            expected: dict[tuple[int, int], list[int]] = defaultdict(list)
            for (item, minute), values in truth.items():
                if minute >= since:
                    expected[item, minute // length * length] += values
            # Also of breakdowns, which the views lack.
            counts = "WHERE load_id NOT IN (SELECT load_id FROM pending_load)" if length == 1 else ""
            columns = "bucket, series_id, points, sum, min, max"
            packed = as_rows(SERIES, named[grain]).as_string(connection)
            query = (
                "SELECT series_id, extract(epoch FROM bucket)::bigint / 60, sum(points)::bigint, sum(sum), "
                f"min(min), max(max) FROM (SELECT {columns} FROM rollup_{grain} {counts} "
                f"UNION ALL SELECT {columns} FROM ({packed}) AS packed) AS stored "
                f"WHERE series_id BETWEEN {base} AND {base + 9} GROUP BY 1, 2"
            )
            found = {(item, minute): rest for item, minute, *rest in connection.execute(query.encode())}
            assert found == {
                key: [len(values), sum(values), min(values), max(values)] for key, values in expected.items()
            }


@settings(max_examples=examples(15), deadline=None)
@given(growths=_growths)
def test_a_growing_hour_has_each_minute_once(
    store: Store, url: str, growths: list[tuple[list[tuple[int, int, int]], int]]
) -> None:
    example = next(_examples)
    metric, base = f"metric {example}", example * 10
    first = (_NOW_MINUTE // 1440 - 1) * 1440
    truth: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    with psycopg.connect(url, options="-c search_path=telemetry", autocommit=True) as connection:
        connection.execute("DELETE FROM coarse; UPDATE horizon SET hours_computed_until = NULL")
        put_series(url, *((base + item, base + item, f"{metric} {item}", False) for item in range(3)))
        for number, (points, whole) in enumerate(growths):
            table = rows(
                *(
                    (first + at, base + point, base + point, False, None, 1, value, value, value, 0)
                    for point, at, value in points
                )
            )
            assert store_rows.take_in(store, metric, number, totals=table, retention=_RETENTION)
            for point, at, value in points:
                truth[base + point][at].append(value)
            connection.execute("UPDATE coarse SET due_at = '-infinity'")
            connection.execute(
                "UPDATE ledger SET newest_received_at = to_timestamp(%s)", [(first + whole + 0.5) * 60]
            )
            with store.maintenance(NOW_NS) as maintenance:
                maintenance.compute_hours_and_days()
            for begin, changed, until in hours_of(connection, first):
                assert until is None or begin <= until <= begin + 60
                if until is None or changed is not None:
                    # To be computed.
                    continue
                assert until >= min(whole, begin + 60)
                expected = {}
                for item, minutes in truth.items():
                    values = [value for at in range(begin, until) for value in minutes.get(at, ())]
                    if values:
                        expected[item] = [len(values), sum(values), min(values), max(values)]
                found = connection.execute(
                    "SELECT series_id, points, sum, min, max FROM rollup_1h "
                    "WHERE bucket = to_timestamp(%s) AND series_id BETWEEN %s AND %s",
                    [(first + begin) * 60.0, base, base + 9],
                )
                assert {item: values for item, *values in found} == expected


def hours_of(
    connection: psycopg.Connection[tuple[Any, ...]], first: int
) -> list[tuple[int, int | None, int | None]]:
    """The beginning, the first changed minute, and the end of what is computed, of two hours."""
    return connection.execute(
        "SELECT (extract(epoch FROM bucket) / 60)::int - %(first)s, "
        "(extract(epoch FROM changed_from) / 60)::int - %(first)s, "
        "(extract(epoch FROM computed_until) / 60)::int - %(first)s "
        "FROM coarse WHERE grain = '1h' AND bucket >= to_timestamp(%(first)s * 60) "
        "AND bucket < to_timestamp((%(first)s + 120) * 60)",
        {"first": first},
    ).fetchall()
