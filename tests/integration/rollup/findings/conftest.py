"""A store for findings, emptied before each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.rows import dict_row

from spark_streaming.postgres import Store
from spark_streaming.settings import RetentionSettings
from tests.integration.rollup.findings.fleet import Fleet
from tests.testbed.postgres import Postgres


@contextmanager
def fleet_of(url: str) -> Iterator[Fleet]:
    with Store(url, retention=RetentionSettings()) as store:
        store.migrate()
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        connection.execute(
            "CREATE TABLE telemetry.everything PARTITION OF telemetry.client_rollup_1m DEFAULT"
        )
        connection.execute("CREATE TABLE telemetry.all_totals PARTITION OF telemetry.rollup_1m DEFAULT")
        yield Fleet(connection, url)


@pytest.fixture(scope="module")
def shared(postgres: Postgres) -> Iterator[Fleet]:
    with postgres.database() as url, fleet_of(url) as fleet:
        yield fleet


@pytest.fixture
def fleet(shared: Fleet) -> Fleet:
    shared.connection.execute(
        "TRUNCATE telemetry.client_state, telemetry.client_rollup_1m, telemetry.series, telemetry.rollup_1m,"
        " telemetry.finding RESTART IDENTITY"
    )
    return shared
