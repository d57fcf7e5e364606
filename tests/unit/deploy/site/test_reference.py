"""The generated pages name everything that their code has."""

from __future__ import annotations

from typing import Any, cast

from deploy.dashboards.prometheus_rules import prometheus_rules
from deploy.site.reference import PAGES
from receiver.catalogue import CATALOGUE


def test_every_endpoint_has_a_section() -> None:
    page = PAGES["rest-endpoints"]()
    for heading in ("## GET /v1/subscriptions", "## PUT /v1/subscriptions/{name}", "## GET /metrics"):
        assert f"\n{heading}\n" in page


def test_every_command_has_a_section() -> None:
    page = PAGES["command-line"]()
    for command in ("serve", "config check", "subscriptions put", "clients list", "rollup run", "token new"):
        assert f"\n## kafka-telemetry {command}\n" in page
    assert "| `--config" in page


def test_every_alert_is_named() -> None:
    page = PAGES["alerts"]()
    groups = cast("list[dict[str, Any]]", prometheus_rules()["groups"])
    assert all(f"\n### {rule['alert']}\n" in page for group in groups for rule in group["rules"])


def test_every_metric_has_its_name_in_prometheus() -> None:
    page = PAGES["prometheus-names"]()
    expected = [metric.name for metric in CATALOGUE if metric.clients != ("rollup",)]
    assert [name for name in expected if f"| `{name.removeprefix('org.apache.kafka.')}` |" not in page] == []


def test_the_schema_has_every_view() -> None:
    page = PAGES["schema"]()
    assert "CREATE VIEW" in page
    assert "```sql" in page
