"""The documented clicks find the culprits of a made-up fleet.

The fleet is that of the pictures. The job, the tables, the queries and the links are real.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from pyspark.sql import SparkSession

from spark_streaming.findings import find
from spark_streaming.findings.settings import FindingSettings
from spark_streaming.job import Job
from spark_streaming.load import load
from spark_streaming.postgres import Store
from spark_streaming.settings import RetentionSettings
from tests.dashboards.pushes import write_spool
from tests.testbed.clicks import Click, clicks, link_of
from tests.testbed.dashboard_queries import DASHBOARDS, asked, chosen, key_of
from tests.testbed.grafana_sql import TimeRange
from tests.testbed.postgres import Postgres

HOURS: Final = 2
STEPS: Final = clicks("With the roll-up")
#: Who is wrong in the made-up fleet: the last click's variable and its text.
CULPRITS: Final = {
    "the throttled client": ("var-client", "export-1"),
    "the lagging group": ("var-group", "search-indexer"),
    "the poll-bound consumer": ("var-client", "warehouse-4"),
    "the outdated library": ("var-client", "export-1"),
    "the client that reconnects": ("var-client", "billing-2"),
}

#: Of findings.
KINDS: Final = tuple(
    name for name, field in FindingSettings.model_fields.items() if hasattr(field.annotation, "model_fields")
)

Row = dict[str, Any]


class Reader:
    """Somebody who looks at dashboards over the same time range."""

    def __init__(self, connection: psycopg.Connection[Any], window: TimeRange) -> None:
        self._connection, self._window = connection, window

    def rows(self, name: str, title: str, wanted: dict[str, str]) -> list[Row]:
        """The rows of a panel of a dashboard, as some variables are chosen."""
        variables = chosen(DASHBOARDS[name], self._connection, self._window, wanted)
        (sql,) = (
            query.sql for query in asked(DASHBOARDS[name], variables, self._window) if query.title == title
        )
        cursor = psycopg.RawCursor(self._connection).execute(sql.encode())
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def click(self, one: Click, wanted: dict[str, str]) -> str:
        """Click on the row's link and return its URL."""
        (panel,) = (
            panel for panel in DASHBOARDS[board(one.dashboard)]["panels"] if panel["title"] == one.panel
            and panel["type"] == "table"
        )  # fmt: skip
        rows = self.rows(board(one.dashboard), one.panel, wanted)
        row = next(row for row in rows if one.kind in {None, row.get("kind")})
        return link_of(panel, one.column, row)


def board(words: str) -> str:
    """The file of the dashboard with a title."""
    (found,) = (
        name for name, dashboard in DASHBOARDS.items() if dashboard["title"] == f"Kafka clients: {words}"
    )
    return found


@pytest.fixture(scope="module")
def reader(
    spark: SparkSession, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("clicks")
    now = datetime.now(UTC)
    write_spool(folder / "telemetry", end=now, last=timedelta(hours=HOURS))
    # The job would look for findings at its end, which is later on a busy machine.
    settings = load(
        None,
        {
            "spool_files": {"path": str(folder / "telemetry")},
            "checkpoint": str(folder / "checkpoint"),
            "findings": {kind: {"enabled": False} for kind in KINDS},
        },
    )
    with postgres.database() as url:
        with Store(url, retention=RetentionSettings()) as store:
            store.migrate()
            Job(spark, store, settings, threading.Event()).run_once()
        with psycopg.connect(url) as connection:
            connection.execute("SET search_path = telemetry; SET timezone = 'UTC'")
            find(connection, FindingSettings(), now)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET timezone = 'UTC'")
            yield Reader(connection, TimeRange(start=now - timedelta(hours=HOURS), end=now))


def test_the_page_finds_each_culprit_within_three_clicks() -> None:
    assert STEPS.keys() == CULPRITS.keys() == clicks("On Prometheus alone").keys()
    assert max(map(len, STEPS.values())) <= 3


@pytest.mark.parametrize("who", CULPRITS)
def test_the_documented_clicks_end_at_the_culprit(reader: Reader, who: str) -> None:
    wanted: dict[str, str] = {}
    variable, text = CULPRITS[who]
    steps = STEPS[who]
    assert steps[0].dashboard == "fleet"
    for number, step in enumerate(steps):
        if number:
            assert step.dashboard == steps[number - 1].leads_to
        address = urlsplit(reader.click(step, wanted))
        opened = board(step.leads_to)
        assert address.path == f"/d/{DASHBOARDS[opened]['uid']}"
        taken = {key: values[0] for key, values in parse_qs(address.query).items() if "${" not in key}
        variables = {model["name"] for model in DASHBOARDS[opened]["templating"]["list"]}
        assert {key.removeprefix("var-") for key in taken if key.startswith("var-")} <= variables
        wanted = {
            key.removeprefix("var-"): bytes.fromhex(value).decode().strip('{}"')
            for key, value in taken.items()
            if key.startswith("var-")
        }
        assert all(key_of(text) for text in wanted.values())
        shown = reader.rows(opened, step.shows, wanted)
        assert [row for row in shown if row.get("value", 0) is not None], step.shows
    assert wanted[variable.removeprefix("var-")] == text
