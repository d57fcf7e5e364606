"""The banner of the dashboards, and the state of clients when pushes stop."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.integration.rollup.findings.conftest import fleet_of
from tests.integration.rollup.findings.fleet import Fleet, minutes
from tests.testbed.dashboard_queries import DASHBOARDS

ROLLUP = [name for name, board in DASHBOARDS.items() if "${postgres}" in str(board)]


@pytest.fixture
def fleet(database: str) -> Iterator[Fleet]:
    with fleet_of(database) as made:
        yield made


def banner(connection: psycopg.Connection[dict[str, object]] | str) -> str:
    """What the banner says; it needs no variable of the dashboard."""
    sql = DASHBOARDS["fleet"]["panels"][0]["targets"][0]["rawSql"]
    if isinstance(connection, str):
        with psycopg.connect(connection) as opened:
            (row,) = opened.execute(sql).fetchall()
            return str(row[0])
    (found,) = connection.execute(sql).fetchall()
    return str(found["banner"])


def read_until(fleet: Fleet, at: datetime) -> None:
    fleet.connection.execute("UPDATE telemetry.horizon SET read_until = %s", [at])


def states(fleet: Fleet) -> dict[str, str]:
    rows = fleet.connection.execute("SELECT client_id, state FROM telemetry.client").fetchall()
    return {row["client_id"]: row["state"] for row in rows}


@pytest.mark.parametrize("name", ROLLUP)
def test_each_dashboard_of_the_roll_up_begins_with_the_banner(name: str) -> None:
    first = DASHBOARDS[name]["panels"][0]
    assert first["targets"] == DASHBOARDS["fleet"]["panels"][0]["targets"]
    assert first["gridPos"] == {"x": 0, "y": 0, "w": 24, "h": 2}


def test_a_database_without_tables_has_a_next_step(database: str) -> None:
    assert "Next: run kafka-telemetry rollup migrate" in banner(database)


def test_an_empty_database_has_a_next_step(fleet: Fleet) -> None:
    said = banner(fleet.connection)
    assert said.startswith("No push has been read yet. Next: start kafka-telemetry rollup run")


def test_it_says_until_when_pushes_were_read(fleet: Fleet) -> None:
    now = datetime.now(UTC)
    fleet.client("pushes", last_seen=now - minutes(3))
    read_until(fleet, now - minutes(2))
    assert banner(fleet.connection) == (
        f"Up to date: pushes were read until {now - minutes(2):%Y-%m-%d %H:%M} UTC"
    )


def test_a_roll_up_that_stands_still_is_behind_and_makes_no_client_silent(fleet: Fleet) -> None:
    now = datetime.now(UTC)
    fleet.client("pushes", last_seen=now - minutes(63))
    read_until(fleet, now - minutes(62))
    assert banner(fleet.connection).startswith(
        f"The roll-up is behind: it has read pushes until {now - minutes(62):%Y-%m-%d %H:%M} UTC. Clients are"
    )
    assert states(fleet) == {"pushes": "live"}


def test_when_pushes_of_a_cluster_stop_its_clients_keep_their_state(fleet: Fleet) -> None:
    now = datetime.now(UTC)
    for number in range(3):
        fleet.client(f"stopped-{number}", cluster_id="c1", last_seen=now - minutes(60 + number))
    fleet.client("silent-before", cluster_id="c1", last_seen=now - minutes(90))
    fleet.client("left", cluster_id="c1", last_seen=now - minutes(70), terminated=True)
    fleet.client("pushes", cluster_id="c2", last_seen=now - minutes(3))
    fleet.client("fell-silent", cluster_id="c2", last_seen=now - minutes(20))
    read_until(fleet, now - minutes(2))
    assert states(fleet) == {
        **{f"stopped-{number}": "live" for number in range(3)},
        "silent-before": "silent",
        "left": "left",
        "pushes": "live",
        "fell-silent": "silent",
    }
    assert banner(fleet.connection) == (
        f"No pushes arrive from cluster c1 since {now - minutes(60):%Y-%m-%d %H:%M} UTC. Its clients are "
        "shown as they were then. Check the sidecars and their delivery."
    )


def test_clients_of_a_cluster_without_pushes_are_silent_after_a_day(fleet: Fleet) -> None:
    now = datetime.now(UTC)
    fleet.client("gone", cluster_id=None, last_seen=now - timedelta(hours=25))
    read_until(fleet, now - minutes(2))
    assert states(fleet) == {"gone": "silent"}
    assert banner(fleet.connection).startswith("Up to date")
