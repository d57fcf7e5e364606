"""Defaults of a database or role do not change what the roll-up reads and writes."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

import psycopg
import pytest
from psycopg import sql

from spark_streaming.findings.answers import FindingFilter
from spark_streaming.postgres import Store
from spark_streaming.settings import RetentionSettings
from tests.integration.rollup.store.rows import MINUTE, NOW_NS, entries, put_series, read, rows, take_in

FORMATS = {
    "datestyle": "SQL, DMY",
    "intervalstyle": "sql_standard",
    "timezone": "Asia/Kathmandu",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "transform_null_equals": "on",
    "array_nulls": "off",
    "lock_timeout": "1",
}


@pytest.mark.parametrize(
    "defaults",
    [
        FORMATS,
        {"default_transaction_isolation": "serializable"},
        {"default_transaction_isolation": "repeatable read"},
    ],
    ids=lambda defaults: next(iter(defaults.values())),
)
def test_defaults_of_a_database_change_nothing(database: str, defaults: dict[str, str]) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for name, value in defaults.items():
            connection.execute(
                sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                    sql.Identifier(connection.info.dbname), sql.Identifier(name), sql.Literal(value)
                )
            )
    third = 0.1 + 0.2
    with Store(database, retention=RetentionSettings()) as store:
        store.migrate()
        put_series(database, (1, 7, "m", False))
        written = rows((MINUTE, 1, 7, False, None, 2, third, third, third, 0))
        taken = entries((5, MINUTE, "it's \\ 1"))
        assert take_in(store, "q", 0, totals=written, entries=taken, minutes=taken)
        assert not take_in(store, "q", 0, totals=written)
        with store.maintenance(NOW_NS) as maintenance:
            until = maintenance.read_until(NOW_NS, ended=True)
            maintenance.compute_hours_and_days(all_of_them=True)
            maintenance.expire()
        assert until == datetime.fromtimestamp(MINUTE * 60, UTC)
        assert store.status().read_until == until
        with closing(store.findings()) as reader:
            assert reader.read(FindingFilter()) == []
    assert read(
        database, "SELECT points, sum, (sum)::float8 = 0.1::float8 + 0.2 FROM telemetry.metric_1m"
    ) == [(2, pytest.approx(third), True)]
    assert read(database, "SELECT client_id FROM telemetry.client") == [("it's \\ 1",)]
