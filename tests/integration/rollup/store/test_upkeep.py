"""Maintenance: hours and days, retention, and forgetting for a rebuild."""

from __future__ import annotations

import itertools
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from spark_streaming.contributions import ClientState, Contribution, reconcile
from spark_streaming.contributions.carry_forward import carry_limit
from spark_streaming.contributions.codec import NO_COUNTS
from spark_streaming.postgres import Store, TaskStore, maintenance
from spark_streaming.postgres.tables import GRAINS, TOTALS
from spark_streaming.settings import RetentionSettings
from tests.integration.rollup.store import rows as store_rows
from tests.integration.rollup.store.rows import MINUTE, NOW_NS, buckets, entries, put_series, read, rows

TODAY = NOW_NS // 60_000_000_000 // 1440 * 1440
YESTERDAY = TODAY - 1440


def point(minute: int, value: float, one: int = 1, spread: int | None = None) -> tuple[object, ...]:
    return (minute, one, one, False, spread, 1, value, value, value, 0 if spread is None else 1)


def take_in(
    store: Store,
    number: int,
    *points: tuple[object, ...],
    rule: int = 0,
    retention: RetentionSettings | None = None,
) -> None:
    table = rows(*points)
    put_series(
        store.url,
        *((item, item, f"m{item}", False) for item in table["series_id"].unique().to_pylist()),
        rule=rule,
    )
    assert store_rows.take_in(store, "q", number, totals=table, retention=retention)


def maintain(store: Store, now_ns: int = NOW_NS) -> int:
    with store.maintenance(now_ns) as maintenance:
        done = maintenance.compute_hours_and_days(all_of_them=True)
        maintenance.expire()
    return done


def test_the_newest_dead_letters_are_kept(database: str) -> None:
    with Store(database, retention=RetentionSettings(dead_letters=3)) as store:
        store.migrate()
        with psycopg.connect(database) as connection:
            connection.execute(
                "INSERT INTO telemetry.dead_letter "
                "(seen_at, query_id, batch_id, source, position, reason, bytes, payload) "
                "SELECT now() - number * interval '1 min', 'q', 1, 'kafka', number, 'no OTLP', 0, '' "
                "FROM generate_series(1, 5) AS number"
            )
        maintain(store)
    kept = "SELECT position FROM telemetry.dead_letter ORDER BY position"
    assert read(database, kept) == [("1",), ("2",), ("3",)]


def test_hours_and_days_are_the_sums_of_their_minutes(store: Store, database: str) -> None:
    take_in(store, 0, *(point(YESTERDAY + minute, minute, spread=minute % 3) for minute in range(0, 1440, 7)))
    assert maintain(store) == 25
    assert maintain(store) == 0
    # A late point changes one hour and its day.
    take_in(store, 1, point(YESTERDAY + 61, 1000.0, spread=2), point(YESTERDAY + 61, -5.0, one=2))
    minutes = entries((5, YESTERDAY, "c"), (5, YESTERDAY + 1, "c"), watched=[2.0] * 13, broker_id="1")
    histograms = buckets((YESTERDAY, 1, 0.0, 1.0, 2), (YESTERDAY + 1, 1, 0.0, 1.0, 3))
    assert store_rows.take_in(store, "q", 2, histograms=histograms, minutes=minutes, entries=minutes)
    assert maintain(store) == 3
    for grain, minutes in (("1h", 60), ("1d", 1440)):
        for view, key, values in (
            ("metric", "metric", "sum(points), sum(sum), min(min), max(max)"),
            ("fleet", "metric", "sum(points), sum(sum), min(min), max(max)"),
            ("spread", "metric, value", "sum(observations)"),
            ("histogram", "metric, lower, upper", "sum(count)"),
        ):
            bucket = f"date_bin('{minutes} min', bucket, 'epoch') AS b"
            of = f"SELECT {bucket}, {key}, {values} FROM telemetry.{view}_"
            group = f" GROUP BY b, {key} ORDER BY b, {key}"
            assert read(database, f"{of}{grain}{group}") == read(database, f"{of}1m{group}")
    found = "SELECT pushes, connections_created, throttle_ms_max, broker_id FROM telemetry.client_1h"
    assert read(database, found) == [(2, 4.0, 2.0, "1")]


def test_rates_and_counts_of_an_hour_are_means_over_its_minutes(store: Store, database: str) -> None:
    points = [point(YESTERDAY + minute, 6.0) for minute in range(30)]
    take_in(store, 0, *points, rule=2)
    # The running day: divided by the minutes that have passed.
    take_in(store, 1, point(TODAY, 6.0))
    maintain(store)
    assert read(database, "SELECT sum, avg, rate FROM telemetry.metric_1h ORDER BY bucket")[0] == (
        3.0,
        6.0,
        None,
    )
    ((mean,),) = read(database, "SELECT sum FROM telemetry.metric_1d ORDER BY bucket DESC LIMIT 1")
    assert mean == pytest.approx(6 / max(1, MINUTE - TODAY))


def test_a_running_hour_is_computed_again_only_when_due(store: Store, database: str) -> None:
    take_in(store, 0, point(TODAY, 1.0))
    maintain(store)
    take_in(store, 1, point(TODAY, 1.0))
    with store.maintenance(NOW_NS) as maintenance:
        assert maintenance.compute_hours_and_days() == 0
    assert store.status().stale_hours == 1
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE telemetry.coarse SET due_at = now()")
    with store.maintenance(NOW_NS) as maintenance:
        assert maintenance.compute_hours_and_days() == 2
    assert read(database, "SELECT sum FROM telemetry.metric_1d") == [(2.0,)]


def whole_until(database: str, minute: int) -> None:
    """Let the minutes before be whole."""
    with psycopg.connect(database) as connection:
        connection.execute(
            "UPDATE telemetry.ledger SET newest_received_at = to_timestamp(%s)", [float(minute * 60)]
        )


def compute_what_is_due(store: Store) -> int:
    with store.maintenance(NOW_NS) as maintenance:
        return maintenance.compute_hours_and_days()


def test_means_cover_the_minutes_until_they_were_computed(store: Store, database: str) -> None:
    hours = "SELECT sum FROM telemetry.metric_1h ORDER BY bucket"
    until = "SELECT hours_until, days_until, whole_until FROM telemetry.progress"
    take_in(store, 0, *(point(YESTERDAY + minute, 6.0) for minute in range(30)), rule=2)
    whole_until(database, YESTERDAY + 30)
    assert len(set(read(database, until)[0])) == 1
    assert compute_what_is_due(store) == 2
    assert read(database, hours) == [(6.0,)]
    take_in(store, 1, *(point(YESTERDAY + minute, 6.0) for minute in range(30, 50)), rule=2)
    whole_until(database, YESTERDAY + 50)
    # Not due.
    assert compute_what_is_due(store) == 0
    assert read(database, hours) == [(6.0,)]
    assert read(database, "SELECT sum FROM telemetry.metric_1d") == [(6.0,)]
    ((of_hours, of_days, whole),) = read(database, until)
    assert of_hours == of_days == whole - timedelta(minutes=20)
    # The next hour is due, and the mean of this one ends then.
    take_in(store, 2, *(point(YESTERDAY + minute, 6.0) for minute in range(50, 90)), rule=2)
    whole_until(database, YESTERDAY + 90)
    assert compute_what_is_due(store) == 2
    assert read(database, hours) == [(6.0,), (6.0,)]
    ((of_hours, of_days, whole),) = read(database, until)
    assert (of_hours, of_days) == (whole, whole - timedelta(minutes=60))
    assert read(database, "SELECT sum FROM telemetry.metric_1d") == [(6.0,)]
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE telemetry.coarse SET due_at = now()")
    # No minute has become whole since, and the last one was long ago, so it waits for no other.
    assert compute_what_is_due(store) == 2
    whole_until(database, YESTERDAY + 120)
    assert compute_what_is_due(store) == 0
    assert len(set(read(database, until)[0])) == 1
    assert read(database, hours) == [(6.0,), (3.0,)]


def test_a_growing_hour_gets_its_new_minutes_only(store: Store, database: str) -> None:
    points = "SELECT points, sum, min, max FROM telemetry.metric_1h"
    due = "UPDATE telemetry.coarse SET due_at = now()"
    forge = "UPDATE telemetry.rollup_1m SET max = 9 WHERE bucket = to_timestamp(%s)"
    take_in(store, 0, *(point(YESTERDAY + minute, 1.0) for minute in range(12)))
    whole_until(database, YESTERDAY + 10)
    assert compute_what_is_due(store) == 2
    assert read(database, points) == [(10, 10.0, 1.0, 1.0)]
    take_in(store, 1, *(point(YESTERDAY + minute, 2.0) for minute in range(12, 22)))
    whole_until(database, YESTERDAY + 20)
    with psycopg.connect(database) as connection:
        connection.execute(due)
        # Not read again.
        connection.execute(forge, [YESTERDAY * 60.0])
    compute_what_is_due(store)
    assert read(database, points) == [(20, 28.0, 1.0, 2.0)]
    # A late point: all of them are.
    take_in(store, 2, point(YESTERDAY + 5, 4.0), point(YESTERDAY + 25, 4.0))
    whole_until(database, YESTERDAY + 25)
    with psycopg.connect(database) as connection:
        connection.execute(due)
    compute_what_is_due(store)
    assert read(database, points) == [(23, 36.0, 1.0, 9.0)]
    assert maintain(store) == 2
    assert read(database, points) == [(24, 40.0, 1.0, 9.0)]


def test_an_hour_that_takes_longer_is_computed_less_often() -> None:
    hour, day = GRAINS[1:]
    assert [maintenance._pause_s(hour, spent_s) for spent_s in (0.1, 1.0, 4.0, 20.0)] == [55, 200, 300, 400]
    assert [maintenance._pause_s(day, spent_s) for spent_s in (0.1, 1.0, 40.0, 60.0)] == [55, 200, 900, 1200]


def test_expired_minutes_stay_in_hours_and_days(database: str) -> None:
    with Store(database, retention=RetentionSettings()) as store:
        store.migrate()
        old = TODAY - 5 * 1440
        take_in(store, 0, point(old, 1.0), point(old + 1, 2.0), point(TODAY, 4.0))
    # Kept shorter from now on: what was not computed yet must not get lost with its minutes.
    shorter = RetentionSettings(minute_days=2, hour_days=4)
    with Store(database, retention=shorter) as store:
        maintain(store)
        assert read(database, "SELECT sum FROM telemetry.metric_1m") == [(4.0,)]
        assert read(database, "SELECT sum FROM telemetry.metric_1h") == [(4.0,)]
        assert read(database, "SELECT sum FROM telemetry.metric_1d ORDER BY bucket") == [(3.0,), (4.0,)]
        take_in(store, 1, point(old, 8.0), point(TODAY - 3 * 1440, 16.0), point(TODAY - 3 * 1440, 1.0))
        maintain(store)
        assert read(database, "SELECT sum FROM telemetry.metric_1h ORDER BY bucket") == [(17.0,), (4.0,)]
        assert read(database, "SELECT sum FROM telemetry.metric_1d ORDER BY bucket") == [
            (11.0,),
            (17.0,),
            (4.0,),
        ]
        # A clock that leaps ahead expires nothing.
        maintain(store, NOW_NS + 10**18)
        assert read(database, "SELECT count(*) FROM telemetry.metric_1d") == [(3,)]


def test_expired_rows_are_dropped_and_needed_ones_kept(store: Store, database: str) -> None:
    day_ns = 86_400_000_000_000
    pushes = {"a": NOW_NS, "b": NOW_NS - 7 * day_ns, "c": NOW_NS - 10 * day_ns}
    for number, packed in enumerate((b"x", b"y")):
        one = Contribution(client_key=1, minute=2, entries=1, last_ns=3, packed=packed)
        added = pushes if number == 0 else {}
        assert store_rows.take_in(store, "q", number, pushes=added, contributions=[one])
    with store.maintenance(NOW_NS) as maintenance:
        assert maintenance.contributions([(1, 2)])[1, 2].packed == b"y"
    with psycopg.connect(database) as connection:
        connection.execute("SET search_path = telemetry")
        connection.execute(
            "INSERT INTO ledger SELECT 'old', n, now() - interval '40 days' FROM generate_series(1, 3) n"
        )
    maintain(store)
    assert read(database, "SELECT batch_id FROM telemetry.ledger WHERE query_id = 'old'") == [(3,)]
    assert read(database, "SELECT count(*) FROM telemetry.push") == [(2,)]
    assert read(database, "SELECT count(*) FROM telemetry.contribution") == [(1 + 1,)]


def test_forgotten_pushes_are_counted_again(store: Store, database: str) -> None:
    points = [point(YESTERDAY + minute, 1.0) for minute in (0, 59, 60, 90, 1439)]

    pushes = {"before": (YESTERDAY - 2880) * 60 * 10**9, "push": YESTERDAY * 60 * 10**9}

    def push(number: int, since: int) -> set[str]:
        with closing(TaskStore(database, retention=RetentionSettings())) as tasks:
            known = tasks.known_pushes(tasks.days_of(pushes, tasks.begin()))
        load: dict[str, Any] = {"pushes": {push: at for push, at in pushes.items() if push not in known}}
        if "push" not in known:
            put_series(database, (1, 1, "m", False))
            state = ClientState(
                client_key=5, minute=YESTERDAY + 90, last_ns=0, push_interval_ms=1, terminated=False,
                covered_until=YESTERDAY + 90, carried_from=YESTERDAY + 91, counts=b"", cumulative=b"",
            )  # fmt: skip
            load["totals"] = rows(*(item for item in points if item[0] >= since))  # type: ignore[operator]
            load |= {"states": [state], "entries": entries((5, YESTERDAY, "c"))}
        assert store_rows.take_in(store, f"q{number}", 0, **load)
        return known

    assert push(0, 0) == set()
    maintain(store)
    before = read(database, "SELECT bucket, sum FROM telemetry.metric_1h ORDER BY bucket")
    assert store.forget_since(YESTERDAY + 70) == YESTERDAY + 70
    maintain(store)
    assert read(database, "SELECT sum FROM telemetry.metric_1h ORDER BY bucket") == [(2.0,), (1.0,)]
    assert read(database, "SELECT sum FROM telemetry.metric_1d") == [(3.0,)]
    with closing(TaskStore(database, retention=RetentionSettings())) as tasks:
        assert tasks.clients([5]) == {}
    assert push(1, YESTERDAY + 70) == {"before"}
    maintain(store)
    assert read(database, "SELECT bucket, sum FROM telemetry.metric_1h ORDER BY bucket") == before
    # Where there are only hours, or days, whole ones are forgotten.
    assert store.forget_since(TODAY - 20 * 1440 + 5) == TODAY - 20 * 1440 + 60
    assert store.forget_since(TODAY - 200 * 1440 + 5) == TODAY - 199 * 1440
    assert read(database, "SELECT count(*) FROM telemetry.metric_1d") == [(0,)]


def test_every_client_is_carried_forward_to_its_limit(store: Store, database: str) -> None:
    """Including intervals that end with a minute, and clients without counts."""
    times_ns, intervals_ms = (0, 1, 1_000_000, 60 * 10**9 - 1), (100, 20_000, 20_001, 3_600_000)
    ends = dict(enumerate(itertools.product(times_ns, intervals_ms)))
    first = MINUTE - 1000
    states = [
        ClientState(
            client_key=key, minute=first, last_ns=first * 60 * 10**9 + ns, push_interval_ms=ms,
            terminated=False, covered_until=first, carried_from=first + 1, counts=NO_COUNTS, cumulative=b"",
        )
        for key, (ns, ms) in ends.items()
    ]  # fmt: skip
    taken = entries(*((key, first, "c") for key in ends))
    assert store_rows.take_in(store, "q", 0, states=states, entries=taken)
    limits = {state.client_key: carry_limit(first, state.last_ns, state.push_interval_ms) for state in states}
    keys, until = list(limits), list(limits.values())
    with psycopg.connect(database) as connection:
        for before, expected in ((1, True), (0, False)):
            # The limit is that of PostgreSQL.
            found = connection.execute(
                "UPDATE telemetry.client_state SET covered_until = until - %s "
                "FROM unnest(%s::bigint[], %s::bigint[]) AS limits (key, until) WHERE client_key = key "
                "RETURNING to_carry",
                [before, keys, until],
            )
            assert found.fetchall() == [(expected,)] * len(limits)
        connection.rollback()
    nothing = entries()
    with store.maintenance(NOW_NS) as maintenance:
        to_carry = maintenance.clients_to_carry(MINUTE)
        assert to_carry.keys() == {key for key, limit in limits.items() if limit > first}
        reconciled = reconcile(nothing, {}, to_carry, closed=MINUTE)
        maintenance.carry(reconciled)
        assert maintenance.clients_to_carry(MINUTE) == {}


def live(key: int, minute: int) -> ClientState:
    return ClientState(
        client_key=key, minute=minute, last_ns=minute * 60 * 10**9, push_interval_ms=60_000,
        terminated=False, covered_until=minute, carried_from=minute + 1, counts=NO_COUNTS, cumulative=b"",
    )  # fmt: skip


def test_minutes_are_whole_until_the_client_that_is_furthest_behind(store: Store, database: str) -> None:
    def push(number: int, *pushed: tuple[int, int]) -> None:
        states = [live(key, minute) for key, minute in pushed]
        taken = entries(*((key, minute, "c") for key, minute in pushed))
        assert store_rows.take_in(store, "q", number, states=states, entries=taken)

    def whole_until() -> int:
        ((at,),) = read(database, "SELECT whole_until FROM telemetry.progress")
        return int(at.timestamp()) // 60

    first = MINUTE - 100
    push(0, (1, first), (2, first + 7))
    assert whole_until() == first + 1
    with store.maintenance(NOW_NS) as maintenance:
        behind = maintenance.clients_to_carry(first + 2)
        assert behind.keys() == {1}
        maintenance.carry(reconcile(entries(), {}, behind, closed=first + 2))
    assert whole_until() == first + 3
    push(1, (1, first + 5))
    with store.maintenance(NOW_NS) as maintenance:
        maintenance.carry(reconcile(entries(), {}, {}, closed=first + 2))
    assert whole_until() == first + 6
    store.forget_since(first + 6)
    assert whole_until() == first + 6


def test_a_push_changes_no_index_of_clients(store: Store, database: str) -> None:
    """Of six indexes. Otherwise an update takes twice as long."""
    minute = MINUTE - 100
    assert store_rows.take_in(store, "q", 0, states=[live(1, minute)], entries=entries((1, minute, "c")))
    with psycopg.connect(database) as connection:
        connection.execute(
            "UPDATE telemetry.client_state SET minute = minute + 1, last_ns = last_ns + 60000000000, "
            "covered_until = covered_until + 1, carried_from = carried_from + 1, counts = 'x', "
            "last_seen = now(), broker_id = '7', push_interval_ms = 60000"
        )
        hot = connection.execute(
            "SELECT pg_stat_get_xact_tuples_hot_updated('telemetry.client_state'::regclass)"
        )
        assert hot.fetchall() == [(1,)]


def test_states_of_clients(store: Store, database: str) -> None:
    def state(key: int, *, terminated: bool) -> ClientState:
        return ClientState(
            client_key=key, minute=TODAY, last_ns=NOW_NS, push_interval_ms=60_000, terminated=terminated,
            covered_until=TODAY, carried_from=TODAY + 1, counts=b"", cumulative=b"",
        )  # fmt: skip

    # The view compares with the server's clock, and NOW_NS is from this process's start.
    now_ns = time.time_ns()
    heard = entries((1, 0, "live"), (2, 0, "left"), received_at_ns=now_ns, cluster_id="k")
    # Its cluster's pushes are read, but not those of this client.
    silent = entries((3, 0, "silent"), received_at_ns=now_ns - 181 * 10**9, cluster_id="k")
    # A push without points has no labels.
    empty = entries((1, 0, "x"), received_at_ns=now_ns + 1000, client_id=None)
    assert store_rows.take_in(store, "q", 0, entries=heard)
    assert store_rows.take_in(store, "q", 1, entries=empty, states=[state(1, terminated=False)])
    both = pa.concat_tables([silent, heard.slice(1)])
    states = [state(2, terminated=True), state(3, terminated=False)]
    assert store_rows.take_in(store, "q", 2, entries=both, states=states)
    found = (
        "SELECT client_id, cluster_id, state, terminated_at IS NULL FROM telemetry.client ORDER BY client_key"
    )
    assert read(database, found) == [
        ("live", "k", "live", True),
        ("left", "k", "left", False),
        ("silent", "k", "silent", True),
    ]
    assert store.status().clients == {"live": 1, "silent": 1, "disconnected": 0, "left": 1}


def test_a_series_that_no_client_pushes_leaves_with_its_totals(store: Store, database: str) -> None:
    old = TODAY - 200 * 1440
    for number, spread in enumerate((2, None)):
        points = (point(old + number, 1.0, item, spread) for item in (1, 2, 3))
        take_in(store, number, *points)
    histograms = buckets(*((old, item, 0.0, 1.0, 2) for item in (1, 2, 3)))
    assert store_rows.take_in(store, "q", 2, histograms=histograms)
    maintain(store)
    store.pack(NOW_NS, all_of_them=True)
    # A late row of a packed month.
    take_in(store, 3, *(point(old, 1.0, item) for item in (1, 2, 3)))
    assert read(database, "SELECT DISTINCT series_id FROM telemetry.rollup_1d_packed ORDER BY 1") == [
        (1,), (2,), (3,)
    ]  # fmt: skip

    def last_used(series: int, days: int) -> None:
        # Before the maintenance's day. The server's may be the next one by now.
        day = datetime.fromtimestamp(NOW_NS / 1e9, UTC).date() - timedelta(days=days)
        with psycopg.connect(database) as connection:
            for table, key in (("series", "series_id"), ("fleet_series", "fleet_id")):
                connection.execute(
                    f"UPDATE telemetry.{table} SET last_day = %s WHERE {key} = %s", (day, series)
                )
            connection.execute("UPDATE telemetry.horizon SET expired_on = NULL")

    def left() -> set[int]:
        found = {
            key
            for table in ("series", "fleet_series")
            for (key,) in read(database, f"SELECT {table.removesuffix('_series')}_id FROM telemetry.{table}")
        }
        for totals in (total for total in TOTALS if total.key[0] != "client_key"):
            for table in (totals.table(GRAINS[2]), totals.packed_table(GRAINS[2])):
                keys = read(database, f"SELECT DISTINCT {totals.key[0]} FROM telemetry.{table}")
                assert {key for (key,) in keys} <= found
        assert set(read(database, "SELECT DISTINCT metric FROM telemetry.metric_1d")) == {
            (f"m{key}",) for key in found
        }
        return found

    last_used(1, 181)
    last_used(2, 180)
    maintain(store)
    assert left() == {2, 3}
    # Not before its hours expire.
    for hour_days, expected in ((181, {2, 3}), (179, {3})):
        last_used(2, 180)
        kept = RetentionSettings(series_days=1, hour_days=hour_days)
        with Store(database, retention=kept) as another:
            maintain(another)
        assert left() == expected
    # It may come back.
    take_in(store, 4, point(YESTERDAY, 5.0))
    assert read(database, "SELECT sum FROM telemetry.metric_1m WHERE metric = 'm1'") == [(5.0,)]
