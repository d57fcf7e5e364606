"""Grafana's alert rules on findings, and the dashboard that they link to."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import yaml

from deploy.dashboards.written import CHART
from tests.integration.rollup.findings.fleet import INTERVAL_MS, NOW, Fleet, minutes, peers
from tests.testbed.dashboard_queries import DASHBOARDS, key_of
from tests.testbed.grafana_sql import TimeRange, Variable, expand

RULES: dict[str, str] = {
    kind: sql
    for group in yaml.safe_load((CHART / "alerts" / "grafana-rules.yaml").read_text())["groups"]
    for rule in group["rules"]
    for sql in [rule["data"][0]["model"]["rawSql"]]
    for kind in re.findall(r"kind = '(\w+)'", sql)
}


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
    fleet.client("bad", client_software_version="3.7.0", **group, **bad)
    fleet.client("silent", last_seen=NOW - minutes(17))
    fleet.client("twice", pushes=12, push_interval_ms_sum=2 * INTERVAL_MS)


def test_each_kind_has_an_alert_or_is_informational(fleet: Fleet) -> None:
    everything_wrong(fleet)
    fleet.look()
    found = {row["kind"]: row["severity"] for row in fleet.findings()}
    alerts = {kind: len(fleet.connection.execute(sql.encode()).fetchall()) for kind, sql in RULES.items()}
    assert alerts == dict.fromkeys(found.keys() - {"old_version", "silent"}, 1)
    assert {found["old_version"], found["silent"]} == {"info"}


def test_an_alert_names_the_client(fleet: Fleet) -> None:
    everything_wrong(fleet)
    fleet.look()
    about = {
        kind: {name: value for name, value in row.items() if value and name not in {"findings", "principal"}}
        for kind, sql in RULES.items()
        for row in fleet.connection.execute(sql.encode())
    }
    java = "apache-kafka-java 3.7.0"
    instance = {"cluster_id": "c1", "client_id": "bad", "group_id": "g", "software": java}
    assert about == {
        "throttled": {"cluster_id": "c1", "client_id": "bad"},
        "rebalance_storm": {"cluster_id": "c1", "group_id": "g"},
        "connection_churn": instance,
        "slow_client": instance,
        "poll_bound": {"cluster_id": "c1", "group_id": "g"},
        "shared_instance": {
            "cluster_id": "c1",
            "client_id": "twice",
            "software": "apache-kafka-java 4.4.0",
        },
        "known_bad_version": {"cluster_id": "c1", "software": java},
    }


def on_one_client(fleet: Fleet, client_id: str) -> set[str]:
    """The kinds of finding that the dashboard *One client* shows of a client id."""
    (sql,) = (
        panel["targets"][0]["rawSql"]
        for panel in DASHBOARDS["one-client"]["panels"]
        if panel["title"] == "Findings"
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
    assert on_one_client(fleet, "bad") == RULES.keys() - {"shared_instance"} | {"old_version"}
    assert on_one_client(fleet, "twice") == {"shared_instance"}
    assert on_one_client(fleet, "peer-0") == {"rebalance_storm", "poll_bound"}
    assert on_one_client(fleet, "silent") == {"silent"}
    assert on_one_client(fleet, "elsewhere") == set()
