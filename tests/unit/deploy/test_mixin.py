"""The mixin has the dashboards and rules of the chart, evaluated by Jsonnet itself."""

from __future__ import annotations

import json
from typing import Any

import _jsonnet  # type: ignore[import-untyped]
import yaml

from tests.testbed.dashboard_queries import CHART, DASHBOARDS


def evaluated(expression: str) -> Any:
    """A Jsonnet expression over the mixin, which is ``m``."""
    snippet = f"local m = import 'mixin.libsonnet'; {expression}"
    return json.loads(_jsonnet.evaluate_snippet("test", snippet, jpathdir=[str(CHART)]))


def test_it_has_every_dashboard() -> None:
    assert evaluated("m.grafanaDashboards") == {
        f"kct-{name}.json": dashboard for name, dashboard in DASHBOARDS.items()
    }
    assert evaluated("m.grafanaDashboardFolder") == "Kafka client telemetry"


def test_it_adds_its_rules_to_those_of_another_mixin() -> None:
    rules = yaml.safe_load((CHART / "alerts" / "prometheus-rules.yaml").read_text())
    assert evaluated("m.prometheusAlerts") == rules
    other = "{ prometheusAlerts+:: { groups+: [{ name: 'other' }] } }"
    assert evaluated(f"({other} + m).prometheusAlerts.groups") == [{"name": "other"}, *rules["groups"]]


def test_it_adds_its_recording_rules() -> None:
    rules = yaml.safe_load((CHART / "alerts" / "prometheus-recording-rules.yaml").read_text())
    assert evaluated("m.prometheusRules") == rules
    assert {"record", "expr"} == {key for group in rules["groups"] for rule in group["rules"] for key in rule}


def test_the_addresses_of_grizzly_are_those_of_the_dashboards() -> None:
    made = evaluated(
        "[{ kind: 'Dashboard', metadata: { name: d.uid, folder: 'k' }, spec: d } for d in "
        "std.objectValues(m.grafanaDashboards)]"
    )
    assert {one["metadata"]["name"] for one in made} == {one["uid"] for one in DASHBOARDS.values()}
