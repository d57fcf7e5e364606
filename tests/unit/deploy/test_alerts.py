"""Alert rules are explained, and refer to findings, pages and metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.dashboards.runbooks import RUNBOOKS
from receiver.gateway.listeners.admission import RefusalReason
from spark_streaming.findings.settings import FindingSettings
from tests.testbed.dashboard_queries import CHART, DASHBOARDS

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "receiver-metrics.md").read_text()
RUNBOOK_SECTIONS = {
    re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-"): text
    for heading, text in re.findall(
        r"^### (.+)\n((?:(?!##).*\n)*)", (DOCS / "runbooks.md").read_text(), re.MULTILINE
    )
}
GRAFANA = (CHART / "alerts" / "grafana-rules.yaml").read_text()
RULES: list[dict[str, Any]] = [
    rule
    for text in (GRAFANA, (CHART / "alerts" / "prometheus-rules.yaml").read_text())
    for group in yaml.safe_load(text)["groups"]
    for rule in group["rules"]
]


def name_of(rule: dict[str, Any]) -> str:
    """An alert's name; Grafana's rules have a title."""
    return str(rule.get("alert") or rule["title"])


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_a_rule_has_an_explanation_and_a_runbook(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert {"summary", "description"} <= rule["annotations"].keys()
    page, _, section = rule["annotations"]["runbook_url"].partition("#")
    assert page == RUNBOOKS
    assert section in RUNBOOK_SECTIONS


def test_every_runbook_is_complete_and_belongs_to_an_alert() -> None:
    assert list(RUNBOOK_SECTIONS) == [
        rule["annotations"]["runbook_url"].partition("#")[2]
        for rule in sorted(RULES, key=lambda rule: "alert" not in rule)
    ]
    for section, text in RUNBOOK_SECTIONS.items():
        assert re.findall(r"^- \*\*([\w ]+)\*\*", text, re.MULTILINE) == [
            "Means", "Users notice", "Look first", "Do", "Silence",
        ], section  # fmt: skip


def test_grafana_reads_no_environment_variable_out_of_the_file() -> None:
    assert "$" not in GRAFANA


def test_every_finding_but_the_informative_ones_fires_an_alert() -> None:
    kinds = {
        name
        for name, field in FindingSettings.model_fields.items()
        if isinstance(field.annotation, type) and hasattr(field.annotation, "model_fields")
    }
    asked = " ".join(str(rule["data"]) for rule in RULES if "data" in rule).replace("\\'", "'")
    assert set(re.findall(r"kind = '(\w+)'", asked)) == kinds - {"old_version", "silent"}


def test_every_reason_to_refuse_a_connection_is_explained() -> None:
    name = "KafkaTelemetryConnectionsRefused"
    (rule,) = (rule for rule in RULES if name_of(rule) == name)
    (panel,) = (
        dashboard
        for dashboard in DASHBOARDS["receiver"]["panels"]
        if dashboard["title"] == "Connections refused"
    )
    (row,) = re.findall(r"^.*_connections_refused_total` \|.*$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row.split("|")[3])) == set(RefusalReason)
    assert set(re.findall(r"\w+", panel["description"])) >= set(RefusalReason)
    # Health checks are no reason to do anything.
    to_do = set(RefusalReason) - {RefusalReason.GONE}
    assert f'reason!="{RefusalReason.GONE}"' in rule["expr"]
    for explained in (
        re.findall(r"(?:^|\. )([a-z_, ]+):", rule["annotations"]["description"]),
        re.findall(r"^  - (`.*?): ", RUNBOOK_SECTIONS[name.lower()], re.MULTILINE),
    ):
        assert set(re.findall(r"\w+", " ".join(explained))) == to_do
