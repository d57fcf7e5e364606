"""Schema: migrations, the reader's rights, and views that use indexes."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pyarrow as pa
import pytest

import spark_streaming
from spark_streaming.postgres import Store, StoreError, TaskStore
from spark_streaming.rows import SERIES_ROWS
from spark_streaming.settings import RetentionSettings
from spark_streaming.watched import WATCHED
from tests.integration.rollup.store.rows import MINUTE, NOW_NS, read, rows, take_in
from tests.testbed.postgres import Postgres

READER = f"telemetry_reader_{os.getpid()}"
SCHEMA = Path(spark_streaming.__path__[0]) / "postgres/schema"
MIGRATIONS = sorted(file.stem for file in SCHEMA.iterdir())


def test_a_further_migration_keeps_the_data(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = "SELECT reason, note FROM telemetry.dead_letter"
    with Store(database, retention=RetentionSettings()) as store:
        store.migrate()
        with psycopg.connect(database) as connection:
            connection.execute(
                "INSERT INTO telemetry.dead_letter (query_id, batch_id, source, position, reason, bytes, "
                "payload) VALUES ('q', 1, 's', 'p', 'kept', 0, '')"
            )
        folder = tmp_path / "schema"
        shutil.copytree(SCHEMA, folder)
        monkeypatch.setattr("spark_streaming.postgres.migrations._SCHEMA", folder)
        second = folder / "0002_made_up.sql"
        second.write_text(
            "ALTER TABLE dead_letter ADD COLUMN note text NOT NULL DEFAULT 'none'; SELECT 1 / 0"
        )
        with pytest.raises(StoreError, match="division by zero"):
            store.migrate()
        with pytest.raises(psycopg.errors.UndefinedColumn):
            read(database, kept)
        second.write_text("ALTER TABLE dead_letter ADD COLUMN note text NOT NULL DEFAULT 'none'")
        assert store.migrate() == ["0002_made_up"]
        assert read(database, kept) == [("kept", "none")]
        assert store.migrate() == []
        monkeypatch.undo()
        with pytest.raises(StoreError, match=r"0002_made_up.*upgrade"):
            store.migrate()


def test_the_reader_reads_what_a_further_migration_adds(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "schema"
    shutil.copytree(SCHEMA, folder)
    (folder / "0002_made_up.sql").write_text("CREATE VIEW made_up AS SELECT client_owner FROM client_state")
    with Store(database, retention=RetentionSettings(), reader_role=READER) as store:
        assert store.migrate() == MIGRATIONS
        monkeypatch.setattr("spark_streaming.postgres.migrations._SCHEMA", folder)
        assert store.migrate() == ["0002_made_up"]
    with psycopg.connect(database) as connection:
        connection.execute(f"SET ROLE {READER}".encode())
        assert connection.execute("SELECT client_owner FROM telemetry.made_up").fetchall() == []


def test_a_database_that_cannot_hold_every_client_id_is_refused(postgres: Postgres) -> None:
    with (
        postgres.database(encoding="SQL_ASCII") as database,
        Store(database, retention=RetentionSettings()) as store,
        pytest.raises(StoreError, match=r"encoding SQL_ASCII.*ENCODING 'UTF8'"),
    ):
        store.migrate()


def test_watched_metrics_have_their_columns_in_order(store: Store, database: str) -> None:
    for view in ("client_1m", "client_1h"):
        found = read(
            database,
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'telemetry' "
            f"AND table_name = '{view}' ORDER BY ordinal_position",
        )
        names = [name for (name,) in found]
        watched = [slot.column for slot in WATCHED]
        assert [name for name in names if name in watched] == watched


def test_the_catalogue_and_the_names_of_software(store: Store, database: str) -> None:
    assert read(
        database,
        "SELECT unit, kind, combines FROM telemetry.catalogue "
        "WHERE metric = 'org.apache.kafka.producer.connection.creation.total'",
    ) == [("{connection}", "sum", "sum")]
    unknown = "SELECT client FROM telemetry.software EXCEPT SELECT unnest(clients) FROM telemetry.catalogue"
    assert read(database, unknown) == []


def test_the_reader_reads_the_interface_only(database: str) -> None:
    with Store(database, retention=RetentionSettings(), reader_role=READER) as store:
        store.migrate()
        store.migrate()
    with psycopg.connect(database, autocommit=True) as connection:
        tables = connection.execute(
            "SELECT relname, relkind = 'v' FROM pg_class WHERE relnamespace = 'telemetry'::regnamespace "
            "AND relkind IN ('v', 'r', 'p')"
        ).fetchall()
        connection.execute(f"SET ROLE {READER}".encode())
        readable = set()
        for name, view in tables:
            try:
                connection.execute(f"SELECT * FROM telemetry.{name} LIMIT 1".encode())
                readable.add(name)
            except psycopg.errors.InsufficientPrivilege:
                assert not view
        connection.execute("SELECT reason, bytes FROM telemetry.dead_letter")
        for statement in (
            "SELECT payload FROM telemetry.dead_letter",
            "DELETE FROM telemetry.finding",
            "CREATE TABLE telemetry.mine ()",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
        connection.execute("RESET ROLE")
        connection.execute(f"DROP OWNED BY {READER}; DROP ROLE {READER}".encode())
    views = {name for name, view in tables if view}
    assert readable == views | {"catalogue", "software", "finding", "ledger"}
    assert len(views) == 24


def test_missing_rights_are_named(database: str) -> None:
    role = f"telemetry_job_{os.getpid()}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 's3cret'".encode())
        parts = urlsplit(database)
        host = parts.netloc.rpartition("@")[2]
        url = urlunsplit(parts._replace(netloc=f"{role}:s3cret@{host}"))
        try:
            with Store(url, retention=RetentionSettings(), reader_role=READER) as store:
                with pytest.raises(StoreError, match=f'CREATE SCHEMA telemetry AUTHORIZATION "{role}"'):
                    store.migrate()
                connection.execute(f"CREATE SCHEMA telemetry AUTHORIZATION {role}".encode())
                with pytest.raises(StoreError, match=f'CREATE ROLE "{READER}" NOLOGIN'):
                    store.migrate()
                connection.execute(f"CREATE ROLE {READER} NOLOGIN".encode())
                assert store.migrate() == MIGRATIONS
        finally:
            connection.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}".encode())
            connection.execute(f"DROP ROLE IF EXISTS {READER}".encode())


def test_filters_use_indexes_and_prune_partitions(store: Store, database: str) -> None:
    many, days = 8_000, 3
    count = pa.array(range(many))
    columns = {
        "series_high": count,
        "series_low": count,
        "metric": pa.array([f"metric {number % 40}" for number in range(many)]),
        "breakdown": pa.array([False] * many),
        "rule": pa.array([0] * many, pa.int8()),
    }
    series = pa.table(
        [
            columns.get(field.name, pa.array([f"{field.name} {number // 40}" for number in range(many)]))
            for field in SERIES_ROWS
        ],
        schema=SERIES_ROWS,
    )
    with closing(TaskStore(database, retention=RetentionSettings())) as tasks:
        tasks.begin()
        tasks.add_series(series)
        found = tasks.find_series(count.to_numpy(), count.to_numpy())
        assert found.known.all()
        ids = list(zip(found.series.tolist(), found.fleet.tolist(), strict=True))
    for day in range(days):
        minute = MINUTE - day * 1440
        points = ((minute, item, fleet, False, None, 1, 1.0, 1.0, 1.0, 0) for item, fleet in ids)
        assert take_in(store, "q", day, totals=rows(*points))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("ANALYZE")
        newest = f"to_timestamp({NOW_NS // 10**9 - 3600})"
        for view, where, index in (
            ("metric_1m", "client_id = 'client_id 7'", "series_client_id"),
            ("metric_1m", "group_id = 'group_id 7'", "series_group_id"),
            ("metric_1m", "principal = 'principal 7'", "series_principal"),
            ("topic_1m", "topic = 'topic 7'", "series_topic"),
        ):
            for since in (newest, "now() - interval '1 hour'"):
                query = (
                    f"EXPLAIN (ANALYZE, COSTS off) SELECT bucket, sum FROM telemetry.{view} "
                    f"WHERE metric = 'metric 3' AND {where} AND bucket >= {since}"
                )
                plan = "\n".join(line for (line,) in connection.execute(query.encode()))
                assert index in plan, plan
                assert "Seq Scan" not in plan.replace("Seq Scan on pending_load", ""), plan
                scanned = set(re.findall(r" on (rollup_1m_p\d+)", plan))
                assert 1 <= len(scanned) <= 2, plan
