"""Grafana's alert rules, over findings as the roll-up writes them: each finds its kind."""

from __future__ import annotations

import re
from typing import Any

import yaml

from deploy.dashboards.written import CHART
from tests.integration.rollup.findings.fleet import NOW, Fleet, minutes, peers

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
    bad = {
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


def test_each_kind_is_found_by_its_alert_or_is_only_worth_knowing(fleet: Fleet) -> None:
    everything_wrong(fleet)
    fleet.look()
    found = {row["kind"]: row["severity"] for row in fleet.findings()}
    told = {kind: len(fleet.connection.execute(sql.encode()).fetchall()) for kind, sql in RULES.items()}
    assert told == dict.fromkeys(found.keys() - {"old_version", "silent"}, 1)
    assert {found["old_version"], found["silent"]} == {"info"}


def test_an_alert_says_whom_it_is_about(fleet: Fleet) -> None:
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
        "known_bad_version": {"cluster_id": "c1", "software": java},
    }
