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


PROVISIONED: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(GRAFANA)["groups"] for rule in group["rules"]
]


def test_grafana_takes_the_file_of_rules() -> None:
    """Grafana 10.4 to 13 do not start with others (provisioning/alerting/rules_types.go)."""
    groups = yaml.safe_load(GRAFANA)["groups"]
    assert len({group["name"] for group in groups}) == len(groups)
    for group in groups:
        assert group["name"].strip()
        assert group["folder"].strip()
        assert re.fullmatch(r"[1-9]\d*m", group["interval"])  # ngalert: a multiple of ten seconds
    for names in ([rule["uid"] for rule in PROVISIONED], [rule["title"] for rule in PROVISIONED]):
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("rule", PROVISIONED, ids=name_of)
def test_grafana_takes_a_rule(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", rule["uid"])
    assert 0 < len(rule["title"]) <= 190
    assert re.fullmatch(r"\d+[smhd]", rule["for"])
    assert rule["condition"] in [query["refId"] for query in rule["data"]]
    # KeepLast since 10.4.1.
    assert rule["noDataState"] in {"NoData", "OK", "Alerting", "KeepLast"}
    assert rule["execErrState"] in {"Error", "OK", "Alerting", "KeepLast"}
    # "both annotations __dashboardUid__ and __panelId__ must be specified", and so must the fields.
    assert ("__dashboardUid__" in rule["annotations"]) == ("__panelId__" in rule["annotations"])
    assert ("dashboardUid" in rule) == ("panelId" in rule)
    for query in rule["data"]:
        assert query["datasourceUid"]
        assert query["model"]["refId"] == query["refId"]
        begin, end = query["relativeTimeRange"]["from"], query["relativeTimeRange"]["to"]
        assert begin > end >= 0
    for texts in (rule["labels"], rule["annotations"]):
        assert all(isinstance(text, str) and text for text in texts.values())
    assert not {name for name in rule["labels"] if name.startswith("__") or name == "alertname"}


def test_a_database_that_does_not_answer_is_one_alert_and_ends_none() -> None:
    states = {rule["uid"]: rule["execErrState"] for rule in PROVISIONED}
    assert states.pop("kct-database") == "Alerting"
    assert set(states.values()) == {"KeepLast"}
