"""Grafana's alert rules on findings, and the dashboard that they link to."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import yaml

from deploy.dashboards.written import CHART
from tests.integration.rollup.findings.fleet import INTERVAL_MS, NOW, Fleet, minutes, peers
from tests.testbed.dashboard_queries import DASHBOARDS, key_of
from tests.testbed.grafana_sql import TimeRange, Variable, expand

ALERTS: dict[str, dict[str, Any]] = {
    rule["uid"]: rule
    for group in yaml.safe_load((CHART / "alerts" / "grafana-rules.yaml").read_text())["groups"]
    for rule in group["rules"]
}
#: The queries of the rules on findings, by kind, for groups and clients.
RULES: dict[str, list[str]] = {}
for alert in ALERTS.values():
    for found_kind in re.findall(r"kind = '(\w+)'", sql_text := alert["data"][0]["model"]["rawSql"]):
        RULES.setdefault(found_kind, []).append(sql_text)


def everything_wrong(fleet: Fleet) -> None:
    """Make one finding of each kind, as bad as it can be."""
    steady: dict[str, Any] = {"connections_created": 1.0, "request_latency_ms_sum": 10.0}
    bad: dict[str, Any] = {
        "connections_created": 100.0,
        "request_latency_ms_sum": 5000.0,
        "throttle_ms_max": 5000.0,
        "rebalances": 50.0,
        "poll_idle_ratio_sum": 0.0,
        "poll_idle_ratio_points": 1.0,
    }
    group: dict[str, Any] = {"group_id": "g", "request_latency_points": 1.0}
    peers(fleet, **group, **steady)
    fleet.lags("bad", [20_000.0 + 1000 * push for push in range(7)], group_id="g")
    fleet.client("bad", client_software_version="3.7.0", **group, **bad)
    fleet.client("writer", client_software_version="3.7.0", principal="User:writer")
    fleet.client("silent", last_seen=NOW - minutes(17))
    fleet.client("twice", pushes=12, push_interval_ms_sum=2 * INTERVAL_MS)


def test_each_kind_has_an_alert_or_is_informational(fleet: Fleet) -> None:
    everything_wrong(fleet)
    fleet.look()
    found = {row["kind"]: row["severity"] for row in fleet.findings()}
    alerts = {
        kind: sum(len(fleet.connection.execute(sql.encode()).fetchall()) for sql in queries)
        for kind, queries in RULES.items()
    }
    assert alerts == dict.fromkeys(found.keys() - {"old_version", "silent"}, 1)
    assert {found["old_version"], found["silent"]} == {"info"}


def test_an_alert_has_the_labels_of_its_subject_and_no_empty_one(fleet: Fleet) -> None:
    everything_wrong(fleet)
    fleet.look()
    about = {
        kind: {name: value for name, value in row.items() if name != "number"}
        for kind, queries in RULES.items()
        for sql in queries
        for row in fleet.connection.execute(sql.encode())
    }
    client = {"cluster_id": "c1", "client_id": "bad", "principal": "User:app"}
    group = {"cluster_id": "c1", "group_id": "g"}
    assert about == {
        "throttled": client,
        "rebalance_storm": group,
        "connection_churn": client,
        "slow_client": client,
        "poll_bound": group,
        "lagging": group,
        "shared_instance": {"cluster_id": "c1", "client_id": "twice", "principal": "User:app"},
        "known_bad_version": {"cluster_id": "c1", "software": "apache-kafka-java", "version": "3.7.0"},
    }


def test_an_alert_has_the_number_of_its_finding(fleet: Fleet) -> None:
    everything_wrong(fleet)
    fleet.look()
    numbers = {
        kind: row["number"]
        for kind, queries in RULES.items()
        for sql in queries
        for row in fleet.connection.execute(sql.encode())
    }
    assert numbers == {
        "throttled": 5000,
        "rebalance_storm": 300,
        "connection_churn": 300,
        "slow_client": 5000,
        "poll_bound": 1,
        "lagging": 26_000,
        "shared_instance": 1.7,
        "known_bad_version": 1,
    }


def test_labels_are_not_empty_where_the_client_has_no_such_property(fleet: Fleet) -> None:
    columns: dict[str, Any] = {"cluster_id": None, "principal": None}
    fleet.client("nameless", pushes=12, push_interval_ms_sum=2 * INTERVAL_MS, **columns)
    fleet.connection.execute("UPDATE telemetry.client_state SET client_id = NULL")
    fleet.look()
    (sql,) = RULES["shared_instance"]
    (row,) = fleet.connection.execute(sql.encode())
    assert row == {"cluster_id": "unknown", "client_id": "(none)", "principal": "unknown", "number": 1.7}


def test_each_alert_uses_labels_that_its_query_returns(fleet: Fleet) -> None:
    for uid, rule in ALERTS.items():
        cursor = fleet.connection.execute(rule["data"][0]["model"]["rawSql"].encode())
        columns = {column.name for column in cursor.description or ()}
        used = re.findall(r"\.Labels\.(\w+)", " ".join(rule["annotations"].values()))
        assert set(used) <= columns, uid
        # Grafana takes columns of text as labels and needs one number.
        assert [column.type_code for column in cursor.description or ()].count(701) == 1, uid


def fires(fleet: Fleet, uid: str) -> list[dict[str, Any]]:
    """The labels of a rule's alerts: rows whose number is above zero."""
    rows = fleet.connection.execute(ALERTS[uid]["data"][0]["model"]["rawSql"].encode()).fetchall()
    numbers = [
        (row.pop(next(name for name, value in row.items() if isinstance(value, float))), row) for row in rows
    ]
    return [labels for number, labels in numbers if number > 0]


def read_until(fleet: Fleet, ago: timedelta | None) -> None:
    """Set the time until which pushes were read; None: never."""
    fleet.connection.execute("UPDATE telemetry.horizon SET read_until = now() - %s::interval", [ago])


def test_a_new_installation_fires_no_alert(fleet: Fleet) -> None:
    read_until(fleet, None)
    assert {uid: fires(fleet, uid) for uid in ALERTS} == {uid: [] for uid in ALERTS}


def test_a_roll_up_that_reads_nothing_fires_an_alert(fleet: Fleet) -> None:
    read_until(fleet, minutes(14))
    assert fires(fleet, "kct-rollup-stands-still") == []
    read_until(fleet, minutes(16))
    assert fires(fleet, "kct-rollup-stands-still") == [{}]
    read_until(fleet, None)


def test_a_cluster_without_pushes_fires_an_alert(fleet: Fleet) -> None:
    now = datetime.now(UTC)
    fleet.client("stopped", cluster_id="c1", last_seen=now - minutes(20))
    fleet.client("pushes", cluster_id="c2", last_seen=now - minutes(3))
    fleet.client("left", cluster_id="c3", last_seen=now - minutes(60), terminated=True)
    read_until(fleet, minutes(2))
    assert fires(fleet, "kct-no-pushes") == [{"cluster_id": "c1"}]
    # Nothing is known of pushes that were not read.
    read_until(fleet, minutes(10))
    assert fires(fleet, "kct-no-pushes") == []
    read_until(fleet, None)


def test_a_database_error_fires_one_alert() -> None:
    fails = {uid: rule["execErrState"] for uid, rule in ALERTS.items()}
    assert fails == dict.fromkeys(ALERTS, "KeepLast") | {"kct-database": "Alerting"}
    annotations = ALERTS["kct-database"]["annotations"]
    assert ".Labels" not in str(annotations), "a failed query returns no labels"


def on_one_client(fleet: Fleet, client_id: str) -> set[str]:
    """The kinds of finding that the dashboard *One client* shows of a client id."""
    (sql,) = (
        panel["targets"][0]["rawSql"]
        for panel in DASHBOARDS["one-client"]["panels"]
        if panel["title"] == "Findings" and panel["type"] == "table"
    )
    asked = expand(
        sql,
        window=TimeRange(start=NOW - minutes(60), end=NOW),
        interval=60,
        variables=[
            Variable(name="client", values=(key_of(client_id),)),
            Variable(name="cluster", values=(), several=True, all_value="NULL", all_chosen=True),
        ],
    )
    return {row["kind"] for row in psycopg.RawCursor(fleet.connection).execute(asked.encode())}


def test_the_dashboard_of_a_client_has_the_findings_of_its_group_and_version_too(fleet: Fleet) -> None:
    everything_wrong(fleet)
    fleet.client("elsewhere", cluster_id="c2", group_id="g")
    fleet.look()
    # The bug of its version is one of producers.
    of_others = {"shared_instance", "known_bad_version"}
    assert on_one_client(fleet, "bad") == RULES.keys() - of_others | {"old_version"}
    assert on_one_client(fleet, "writer") == {"known_bad_version", "old_version"}
    assert on_one_client(fleet, "twice") == {"shared_instance"}
    assert on_one_client(fleet, "peer-0") == {"rebalance_storm", "poll_bound", "lagging"}
    assert on_one_client(fleet, "silent") == {"silent"}
    assert on_one_client(fleet, "elsewhere") == set()
