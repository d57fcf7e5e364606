"""A batch writes every kind of row once, and skips a repeat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import conninfo_to_dict

from spark_streaming.contributions import ClientState, Contribution
from spark_streaming.postgres import DEAD_LETTER_ROWS, MAX_PAYLOADS, MAX_ROWS, Store, TaskStore
from spark_streaming.postgres.reasons import MAX_REASONS
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


@pytest.fixture
def tasks(store: Store) -> Iterator[TaskStore]:
    with closing(TaskStore(store.url, retention=RetentionSettings())) as tasks:
        yield tasks


def known(tasks: TaskStore, received_at_ns: dict[str, int]) -> set[str]:
    return tasks.known_pushes(tasks.days_of(received_at_ns, tasks.begin()))


def test_a_batch_writes_every_kind_of_row_once(store: Store, tasks: TaskStore, database: str) -> None:
    put_series(database, (1, 7, "m", False), (2, 8, "m'", True))
    pushes = {"aa" * 16: NOW_NS, "bb" * 16: NOW_NS}
    assert known(tasks, pushes) == set()
    state = ClientState(
        client_key=5,
        minute=MINUTE,
        last_ns=NOW_NS,
        push_interval_ms=60_000,
        terminated=False,
        covered_until=MINUTE,
        carried_from=MINUTE + 1,
        counts=b"c",
        cumulative=b"",
    )
    contribution = Contribution(client_key=5, minute=MINUTE, entries=1, last_ns=3, packed=b"\0x")
    taken = entries((5, MINUTE, "a\0b"))
    assert take_in(
        store,
        "q",
        0,
        totals=rows(
            (MINUTE, 1, 7, False, None, 2, 3.0, 1.0, 2.0, 0),
            (MINUTE, 2, 8, True, 5, 1, 4.0, 4.0, 4.0, 1),
            (MINUTE, 1, 7, False, 5, 0, -1.0, None, None, 1),
        ),
        histograms=buckets((MINUTE, 1, float("-inf"), 3.0, 4)),
        pushes=pushes,
        contributions=[contribution],
        minutes=taken,
        entries=taken,
        states=[state],
        letters=pa.table([["s"], ["p"], ["why"], [1], [b"\xff"]], schema=DEAD_LETTER_ROWS),
    )
    assert not take_in(store, "q", 0)
    assert read(database, "SELECT metric, points, sum, min, max, avg FROM telemetry.metric_1m") == [
        ("m", 2, 2.0, 1.0, 2.0, 1.0)
    ]
    assert read(database, "SELECT position, reason, payload FROM telemetry.dead_letter") == [
        ("p", "why", b"\xff")
    ]
    assert known(tasks, {"aa" * 16: NOW_NS + 86_400 * 10**9, "bb" * 16: NOW_NS, "c": NOW_NS}) == set(pushes)
    assert tasks.client_keys(["instance-5"]) == {"instance-5": 5}
    assert tasks.clients([5, 6]) == {5: state}
    assert tasks.contributions({(5, MINUTE), (5, 1)}) == {(5, MINUTE): contribution}
    with store.maintenance(NOW_NS) as maintenance:
        assert maintenance.clients_to_carry(MINUTE + 1) == {5: state}
        assert maintenance.compute_hours_and_days(all_of_them=True) == 2
        maintenance.expire()
        assert maintenance.sweep() == 0
    assert read(database, "SELECT points, sum FROM telemetry.metric_1d") == [(2, 2.0)]
    assert read(database, "SELECT client_id, pushes FROM telemetry.client_1h") == [("a\ufffdb", 1)]
    for table in ("pending_load", "client_load", "dead_letter_load"):
        assert read(database, f"SELECT count(*) FROM telemetry.{table}") == [(0,)]


def test_a_range_of_minutes_is_one_row_until_a_minute_has_another(store: Store, tasks: TaskStore) -> None:
    def carried(minute: int, until: int, packed: bytes) -> Contribution:
        return Contribution(client_key=5, minute=minute, entries=0, last_ns=3, packed=packed, until=until)

    def known(*minutes: int) -> dict[int, bytes]:
        found = tasks.contributions([(key, minute) for key in (5, 6) for minute in minutes])
        for (key, minute), item in found.items():
            assert (key, minute, item.until) == (item.client_key, item.minute, -1)
        return {minute: item.packed for (_, minute), item in found.items()}

    own = Contribution(client_key=5, minute=MINUTE + 3, entries=1, last_ns=4, packed=b"own")
    for number, contributions in enumerate(
        (
            [carried(MINUTE, MINUTE + 5, b"a"), carried(MINUTE + 10, MINUTE + 73, b"long")],
            [own],
            [carried(MINUTE + 4, MINUTE + 4, b"b")],
        )
    ):
        assert take_in(store, "q", number, contributions=contributions)
    everything = {MINUTE + n: b"a" for n in (0, 1, 2, 5)} | {MINUTE + 3: b"own", MINUTE + 4: b"b"}
    everything |= {MINUTE + n: b"long" for n in range(10, 74)}
    assert known(*range(MINUTE - 5, MINUTE + 100)) == everything
    store.forget_since(MINUTE + 2)
    assert known(*range(MINUTE - 5, MINUTE + 100)) == {MINUTE: b"a", MINUTE + 1: b"a"}


def test_series_that_differ_only_in_reason_or_error_are_bounded(tasks: TaskStore, database: str) -> None:
    def series_of(first: int, last: int, error: str | None = None) -> pa.Table:
        return pa.concat_tables(
            series((number, "m", False), reason=f"reason {number}", error=error)
            for number in range(first, last)
        )

    def add(table: pa.Table) -> tuple[int, list[int]]:
        tasks.begin()
        folded = tasks.add_series(table).folded
        found = tasks.find_series(table["series_high"].to_numpy(), table["series_low"].to_numpy())
        assert found.known.all()
        return folded, found.series.tolist()

    shown = "SELECT count(*), count(*) FILTER (WHERE {}) FROM telemetry.series"
    other = shown.format("reason = 'other' AND error IS NULL AND series_high IS NULL")
    folded, first = add(series_of(0, MAX_REASONS - 1))
    assert (folded, len(set(first))) == (0, MAX_REASONS - 1)
    # One is within the bound.
    folded, ids = add(series_of(MAX_REASONS - 10, MAX_REASONS + 5))
    assert (folded, len(set(ids))) == (5, 11)
    assert ids[:9] == first[-9:]
    assert read(database, other) == [(MAX_REASONS + 1, 1)]
    # A text that is the folded one has the same series, and other series have their own bound.
    literal = series((7_000, "m", False), reason="other")
    assert add(literal) == (0, [ids[-1]])
    assert add(series((8_000, "m", False), reason="x", topic="t"))[0] == 0
    folded, both = add(series_of(9_000, 9_003, error="e"))
    assert (folded, len(set(both) - set(first) - set(ids))) == (3, 1)
    assert read(database, shown.format("(reason, error) = ('other', 'other')"))[0][1] == 1
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE telemetry.series SET last_day = '2020-01-01'")
    assert add(series_of(500, 502)) == (2, [ids[-1]] * 2)
    assert read(database, "SELECT reason, error FROM telemetry.series WHERE last_day > '2020-01-01'") == [
        ("other", None)
    ]


def test_tasks_connect_with_what_the_driver_has_in_its_environment_and_files(
    store: Store, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = conninfo_to_dict(database)
    (tmp_path / "passwords").write_text("*:*:*:*:hunter 2\n")
    (tmp_path / "passwords").chmod(0o600)
    (tmp_path / "services").write_text(f"[rollup]\ndbname={at['dbname']}\n")
    there = {"PGPASSFILE": str(tmp_path / "passwords"), "PGSERVICEFILE": str(tmp_path / "services")}
    there |= {f"PG{name.upper()}": str(at[name]) for name in ("host", "port", "user") if name in at}
    there["PGSERVICE"] = "rollup"
    for name, text in there.items():
        monkeypatch.setenv(name, text)
    with Store("postgresql://", retention=RetentionSettings()) as driver:
        url = driver.url
    for name in there:
        monkeypatch.delenv(name)
    assert conninfo_to_dict(url)["password"] == "hunter 2"
    with closing(TaskStore(url, retention=RetentionSettings())) as tasks:
        assert known(tasks, {"a" * 32: NOW_NS}) == set()


def test_the_dead_letters_of_a_batch_are_bounded(store: Store, database: str) -> None:
    number = MAX_ROWS + 7
    positions = [f"{n:06}" for n in range(number)]
    letters = [["s"] * number, positions, ["why"] * number, [1] * number, [b"\xff"] * number]
    assert take_in(store, "q", 0, letters=pa.table(letters, schema=DEAD_LETTER_ROWS))
    found = read(database, "SELECT position, length(payload) FROM telemetry.dead_letter ORDER BY position")
    assert [position for position, _ in found] == positions[:MAX_ROWS]
    assert sum(length for _, length in found) == MAX_PAYLOADS
