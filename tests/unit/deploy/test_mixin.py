"""The mixin has the dashboards and rules of the chart, evaluated by Jsonnet itself."""

from __future__ import annotations

import json
from typing import Any

import _jsonnet  # type: ignore[import-untyped]
import pytest
import yaml

from deploy.dashboards.addresses import ADDRESSES, PLACEHOLDERS
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


@pytest.mark.full
def test_the_addresses_of_grizzly_are_those_of_the_dashboards() -> None:
    made = evaluated(
        "[{ kind: 'Dashboard', metadata: { name: d.uid, folder: 'k' }, spec: d } for d in "
        "std.objectValues(m.grafanaDashboards)]"
    )
    assert {item["metadata"]["name"] for item in made} == {
        dashboard["uid"] for dashboard in DASHBOARDS.values()
    }


EVERY_PLACEHOLDER = "&".join(f"{name.lower()}=${{{name}}}" for name in PLACEHOLDERS)


def with_links(links: str, field: str = "m.grafanaDashboards") -> Any:
    return evaluated(
        f"local m = (import 'mixin.libsonnet') + {{ _config+:: {{ links+: {links} }} }}; {field}"
    )


@pytest.mark.parametrize(
    "host",
    [
        "https://logs.example.com",
        pytest.param("http://[fd00::1]:3000", marks=pytest.mark.full),
    ],
)
def test_it_sets_the_addresses_of_logs_and_traces(host: str) -> None:
    address = f"{host}/search?q=%22%24&{EVERY_PLACEHOLDER}"
    made = with_links(json.dumps({"logs": address}))
    for name, dashboard in made.items():
        variables = dashboard["templating"]["list"]
        linked = {
            variable["name"]: variable["query"] for variable in variables if variable["name"] in ADDRESSES
        }
        assert linked == ({"logs": address, "traces": ""} if name.endswith("one-client.json") else {})
        # Nothing else changes.
        others = [variable for variable in variables if variable["name"] not in ADDRESSES]
        before = DASHBOARDS[name.removeprefix("kct-").removesuffix(".json")]
        assert others == [item for item in before["templating"]["list"] if item["name"] not in ADDRESSES]


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("logs.example.com/${KAFKA_CLIENT_ID}", "begin it with https:// or http://"),
        ("javascript:alert(1)", "begin it with https:// or http://"),
        ("https:///path", "give a host, without placeholders and without a login"),
        ("https://${KAFKA_CLIENT_ID}.example.com/", "give a host, without placeholders and without a login"),
        ("https://u:p@example.com/", "give a host, without placeholders and without a login"),
        ("https://example.com/${CLIENT_ID}", "the placeholders are ${KAFKA_CLIENT_ID}, "),
        ("https://example.com/$x", "write another dollar as %24"),
        ('https://example.com/?q="x"', "percent-encode blanks, quotes,"),
        ("https://example.com/?q=a b", "percent-encode blanks, quotes,"),
    ],
)
def test_it_refuses_an_address(address: str, problem: str) -> None:
    with pytest.raises(RuntimeError) as refused:
        with_links(json.dumps({"logs": address}))
    assert f"_config.links.logs: '{address}': " in str(refused.value)
    assert problem in str(refused.value)


def test_it_refuses_what_is_no_address_of_logs_or_traces() -> None:
    with pytest.raises(RuntimeError, match=r"_config\.links\.logs: give the address as text"):
        with_links("{ logs: 5 }")
    with pytest.raises(
        RuntimeError, match=r"_config\.links\.metrics: unknown; the links are logs and traces"
    ):
        with_links("{ metrics: 'https://example.com/' }")


def test_the_chart_knows_the_same_placeholders() -> None:
    checks = (CHART / "templates" / "_checks.tpl").read_text()
    (listed,) = [line for line in checks.splitlines() if "$placeholders := list" in line]
    assert [part for part in listed.split('"') if part.startswith("KAFKA_")] == list(PLACEHOLDERS)
