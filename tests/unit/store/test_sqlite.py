"""The SQLite store: durability, threads, and the error for each file that it cannot use."""

import os
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from receiver.store.sqlite import SCHEMA_VERSION, SqliteSubscriptionStore
from receiver.store.store import StoreError, StoreStatus
from receiver.telemetry.subscription import Subscription
from receiver.telemetry.subscription_checks import Temporality

PRODUCERS = Subscription(
    name="producers",
    metrics=("org.apache.kafka.producer.", "org.apache.kafka.consumer."),
    interval_ms=60_000,
    match={"client_software_name": "apache-kafka-java", "client_id": "orders-[0-9]+"},
)
EVERYTHING = Subscription(name="Ü/all 'of' \"them\"", metrics=("*",), interval_ms=100, match={})


def test_a_subscription_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.db"
    store = SqliteSubscriptionStore(path)
    assert store.load_all() == ()
    store.put(PRODUCERS)
    store.put(EVERYTHING)
    store.close()
    store = SqliteSubscriptionStore(path)
    assert store.load_all() == (PRODUCERS, EVERYTHING)
    store.close()


def test_every_field_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.db"
    time = datetime(2026, 11, 23, 12, 30, 15, 251_000, UTC)
    whole = Subscription(
        "s",
        ("a.",),
        enabled=False,
        expires_at=time,
        temporality=Temporality.CUMULATIVE,
        labels={"team": "orders"},
        description="two\nlines",
        changed_by="ed",
        changed_at=time,
    )
    store = SqliteSubscriptionStore(path)
    store.put(whole)
    store.close()
    store = SqliteSubscriptionStore(path)
    (found,) = store.load_all()
    store.close()
    assert found == whole
    assert (found.changed_by, found.changed_at) == ("ed", time)


def test_a_subscription_survives_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.db"
    store = SqliteSubscriptionStore(path)
    store.put(PRODUCERS)
    # Another connection sees what is in the write-ahead log although the first was never closed.
    other = SqliteSubscriptionStore(path)
    assert other.load_all() == (PRODUCERS,)
    other.close()
    store.close()


def test_put_replaces_and_delete_removes(tmp_path: Path) -> None:
    store = SqliteSubscriptionStore(tmp_path / "subscriptions.db")
    store.put(PRODUCERS)
    changed = Subscription(name="producers", metrics=(), interval_ms=1000, match={})
    store.put(changed)
    assert store.load_all() == (changed,)
    store.delete("producers")
    store.delete("producers")
    assert store.load_all() == ()
    store.close()


def test_many_threads_may_write_at_once(tmp_path: Path) -> None:
    store = SqliteSubscriptionStore(tmp_path / "subscriptions.db")
    many = [Subscription(name=f"s{n:03}", metrics=("a.",), interval_ms=1000, match={}) for n in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store.put, many))
    assert store.load_all() == tuple(many)
    store.close()


@pytest.mark.parametrize("linked", [False, True])
def test_a_new_file_is_private_and_an_old_one_keeps_its_mode(tmp_path: Path, linked: bool) -> None:
    path = tmp_path / "subscriptions.db"
    if linked:
        path.symlink_to(tmp_path / "elsewhere.db")
    umask = os.umask(0)
    try:
        store = SqliteSubscriptionStore(path)
        store.put(PRODUCERS)
    finally:
        os.umask(umask)
    files = [file for file in tmp_path.iterdir() if not file.is_symlink()]
    assert len(files) == 3, "the database, its log and the log's index"
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    store.close()
    path.chmod(0o640)
    SqliteSubscriptionStore(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def refusal(path: Path) -> str:
    with pytest.raises(StoreError) as caught:
        SqliteSubscriptionStore(path)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_a_missing_folder(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "subscriptions.db"
    assert refusal(path) == (
        f"{path}: cannot be opened: its folder must exist and be writable for the receiver"
    )


def test_a_loop_of_symbolic_links(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.db"
    path.symlink_to(path)
    assert refusal(path).startswith(f"{path}: cannot be opened: ")


def test_a_file_that_is_not_a_database_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.db"
    path.write_text("this is no database\n" * 100)
    assert refusal(path) == f"{path}: is not a SQLite database: set another subscriptions.path"
    assert path.read_text() == "this is no database\n" * 100


def test_another_programs_database_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE precious (x)")
    other.commit()
    other.close()
    before = path.read_bytes()
    assert refusal(path) == f"{path}: is the database of another program: set another subscriptions.path"
    assert path.read_bytes() == before


def test_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.db"
    SqliteSubscriptionStore(path).close()
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    newer.close()
    assert refusal(path).startswith(f"{path}: was written by a newer version (schema {SCHEMA_VERSION + 1}")


def test_a_file_that_another_process_has_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receiver.store.sqlite._BUSY_TIMEOUT_S", 0.05)
    path = tmp_path / "subscriptions.db"
    store = SqliteSubscriptionStore(path)
    store.put(PRODUCERS)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    assert refusal(path).endswith("is in use by another process: give each receiver a file of its own")
    with pytest.raises(StoreError, match="is in use by another process"):
        store.delete("producers")
    holder.execute("ROLLBACK")
    holder.close()
    assert store.load_all() == (PRODUCERS,)
    store.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_file(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.db"
    SqliteSubscriptionStore(path).close()
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        assert "make the file and its folder writable for the receiver" in refusal(path)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("interval_ms", 5, "interval_ms: 5 is out of range; give 100 to 3600000 milliseconds"),
        ("metrics", "nonsense", "Expecting value: line 1 column 1 (char 0)"),
        (
            "match",
            '{"colour": "red"}',
            "match.colour: 'red' has an unknown selector; use one of client_instance_id",
        ),
        ("match", "5", "match: 5 is not a mapping; give patterns by selector"),
        ("temporality", "both", "temporality: 'both' is not a temporality"),
        ("expires_at", 2**50, "date value out of range"),
    ],
)
def test_an_invalid_row_is_named(tmp_path: Path, column: str, value: object, problem: str) -> None:
    path = tmp_path / "subscriptions.db"
    store = SqliteSubscriptionStore(path)
    store.put(PRODUCERS)
    meddler = sqlite3.connect(path)
    meddler.execute(f"UPDATE subscription SET {column} = ?", (value,))
    meddler.commit()
    meddler.close()
    store.put(EVERYTHING)
    with capture_logs() as logged:
        assert store.load_all() == (EVERYTHING,)
        assert store.load_all() == (EVERYTHING,)
    (line,) = logged
    assert line["problems"][0].startswith(f"'producers': {problem}")
    # The status has the name, and no values.
    problem = f"{path}: 1 subscription can't be used; the log has them: 'producers'"
    assert store.status() == StoreStatus(problem=problem, failures=1)
    store.close()
