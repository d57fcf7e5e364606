"""Migrates the schema, and refreshes the catalogue and the reader's rights.

Each file in ``schema/`` is one migration and runs once, in order of their names. A
released file never changes: a change of the schema is a further file.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

import psycopg
from psycopg import sql

from spark_streaming.postgres.packing import create_tables
from spark_streaming.postgres.values import StoreError
from spark_streaming.postgres.views import create_views
from spark_streaming.settings import RetentionSettings
from spark_streaming.standard_metric import load

_SCHEMA: Traversable = files("spark_streaming.postgres") / "schema"
_OLDEST_SERVER: Final = 140_000
_ENCODING: Final = "UTF8"
#: Tables that readers may read, beside the views.
_READABLE_TABLES: Final = ("catalogue", "software", "finding", "ledger")
_READABLE_OF_DEAD_LETTERS: Final = (
    "seen_at",
    "query_id",
    "batch_id",
    "source",
    "position",
    "reason",
    "bytes",
)

#: Client software names (KIP-511) and the catalogue's names of the clients.
_SOFTWARE: Final = (
    ("apache-kafka-java", "java"),
    ("librdkafka", "librdkafka"),
    ("confluent-kafka-python", "librdkafka"),
    ("confluent-kafka-go", "librdkafka"),
    ("confluent-kafka-dotnet", "librdkafka"),
    ("confluent-kafka-javascript", "librdkafka"),
    ("kgo", "franz-go"),
    ("franz-go", "franz-go"),
    ("dekaf", "dekaf"),
)


def migrate(
    connection: psycopg.Connection[Any], *, retention: RetentionSettings, reader_role: str | None
) -> list[str]:
    """Migrate the schema; return the names of the migrations that were applied.

    Args:
        connection: In a transaction that holds the store's lock.

    Raises:
        StoreError: The schema is newer than this version, the server too old, the database's
            encoding not UTF8, or a right is missing.
    """
    version = connection.info.server_version
    if version < _OLDEST_SERVER:
        raise StoreError(f"unsupported PostgreSQL {version // 10_000} (supported: 14 or newer)")
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != _ENCODING:
        raise StoreError(
            f"the database {connection.info.dbname} has the encoding {encoding or 'unknown'}, which can't "
            "hold every client id: create one with "
            f"CREATE DATABASE ... ENCODING '{_ENCODING}' TEMPLATE template0"
        )
    done = _migrated(connection)
    if done is None:
        _create(connection)
    names = {name for name, _ in _scripts()}
    unknown = sorted(set(done or ()) - names)
    if unknown:
        raise StoreError(
            f"the schema telemetry has unknown migrations ({', '.join(unknown)}) of a newer version: "
            "upgrade the roll-up"
        )
    fresh = []
    for name, script in _scripts():
        if name not in (done or ()):
            connection.execute(script)
            connection.execute("INSERT INTO migration (name) VALUES (%s)", [name])
            fresh.append(name)
    if fresh:
        create_tables(connection)
        create_views(connection)
    connection.execute(
        "INSERT INTO horizon (minutes_from, hours_from, days_from) "
        "SELECT today - %s, today - %s, today - %s FROM date_trunc('day', now()) AS today "
        "WHERE NOT EXISTS (SELECT FROM horizon)",
        [timedelta(days=days) for days in (retention.minute_days, retention.hour_days, retention.day_days)],
    )
    _create_key(connection)
    _refresh_catalogue(connection)
    if reader_role is not None:
        _grant_read(connection, reader_role)
    return fresh


def _migrated(connection: psycopg.Connection[Any]) -> list[str] | None:
    if connection.execute("SELECT to_regclass('telemetry.migration')").fetchone() == (None,):
        return None
    return [name for (name,) in connection.execute("SELECT name FROM migration")]


def _create(connection: psycopg.Connection[Any]) -> None:
    try:
        # Not IF NOT EXISTS, which needs the right to create schemas even if the schema exists.
        if connection.execute("SELECT to_regnamespace('telemetry')").fetchone() == (None,):
            connection.execute("CREATE SCHEMA telemetry")
        connection.execute(
            "CREATE TABLE migration (name text PRIMARY KEY, done_at timestamptz NOT NULL DEFAULT now())"
        )
    except psycopg.errors.InsufficientPrivilege:
        raise StoreError(
            f"the role {connection.info.user} may not create the schema telemetry: as a superuser, run "
            f'CREATE SCHEMA telemetry AUTHORIZATION "{connection.info.user}"'
        ) from None


def _scripts() -> Iterator[tuple[str, bytes]]:
    for file in sorted(_SCHEMA.iterdir(), key=lambda file: file.name):
        yield file.name.removesuffix(".sql"), file.read_bytes()


def _create_key(connection: psycopg.Connection[Any]) -> None:
    """Create the key of the series hashes if there is none.

    The server generates it, because statements and their parameters may appear in the server's log.
    """
    made = connection.execute(
        "INSERT INTO id_key (secret) SELECT substring(sha256(uuid_send(gen_random_uuid()) || "
        "uuid_send(gen_random_uuid())) FOR 16) WHERE NOT EXISTS (SELECT FROM id_key)"
    )
    if made.rowcount:
        # Hashes of another key are void. Rows are found by their dimensions and get new hashes.
        connection.execute(
            "UPDATE series SET series_high = NULL, series_low = NULL WHERE series_high IS NOT NULL"
        )


def _refresh_catalogue(connection: psycopg.Connection[Any]) -> None:
    columns = (
        "name",
        "kind",
        "unit",
        "description",
        "combines",
        "required",
        "clients",
        "draft_name",
        "released_names",
    )
    connection.execute("DELETE FROM catalogue; DELETE FROM software")
    with connection.cursor() as cursor:
        cursor.executemany(
            sql.SQL("INSERT INTO catalogue (metric, {}) VALUES ({})").format(
                sql.SQL(", ").join(map(sql.Identifier, columns[1:])),
                sql.SQL(", ").join([sql.Placeholder()] * len(columns)),
            ),
            [[_plain(getattr(metric, column)) for column in columns] for metric in load()],
        )
        cursor.executemany("INSERT INTO software VALUES (%s, %s)", _SOFTWARE)


def _plain(value: object) -> object:
    if isinstance(value, StrEnum):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _grant_read(connection: psycopg.Connection[Any], name: str) -> None:
    role = sql.Identifier(name)
    if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).fetchone() is None:
        try:
            connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(role))
        except psycopg.errors.InsufficientPrivilege:
            raise StoreError(
                f"the role {connection.info.user} may not create the role {name}: as a superuser, run "
                f'CREATE ROLE "{name}" NOLOGIN, or leave the role out of the settings'
            ) from None
    views = connection.execute("SELECT viewname FROM pg_views WHERE schemaname = 'telemetry'").fetchall()
    readable = [*(view for (view,) in views), *_READABLE_TABLES]
    connection.execute(sql.SQL("GRANT USAGE ON SCHEMA telemetry TO {}").format(role))
    connection.execute(
        sql.SQL("GRANT SELECT ON {} TO {}").format(sql.SQL(", ").join(map(sql.Identifier, readable)), role)
    )
    connection.execute(
        sql.SQL("GRANT SELECT ({}) ON dead_letter TO {}").format(
            sql.SQL(", ").join(map(sql.Identifier, _READABLE_OF_DEAD_LETTERS)), role
        )
    )
