"""Alert rules say what is the matter, and refer to findings, pages and metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from spark_streaming.findings.settings import FindingSettings
from tests.testbed.dashboard_queries import CHART, DASHBOARDS

DOCS = Path(__file__).parents[3]
GRAFANA = (CHART / "alerts" / "grafana-rules.yaml").read_text()
RULES: list[dict[str, Any]] = [
    rule
    for text in (GRAFANA, (CHART / "alerts" / "prometheus-rules.yaml").read_text())
    for group in yaml.safe_load(text)["groups"]
    for rule in group["rules"]
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["uid"])
def test_a_rule_says_what_it_means_and_where_more_is_written(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert {"summary", "description", "runbook_url"} <= rule["annotations"].keys()
    page, _, heading = rule["annotations"]["runbook_url"].partition("#")
    text = (DOCS / page).read_text()
    assert not heading or heading in {
        line.lstrip("# ").lower().replace(" ", "-") for line in text.splitlines() if line.startswith("#")
    }


def test_grafana_reads_no_environment_variable_out_of_the_file() -> None:
    assert "$" not in GRAFANA


def test_findings_that_exist_are_alerted_on_but_for_versions_that_are_merely_old() -> None:
    kinds = {
        name
        for name, field in FindingSettings.model_fields.items()
        if isinstance(field.annotation, type) and hasattr(field.annotation, "model_fields")
    }
    asked = " ".join(str(rule["data"]) for rule in RULES if "data" in rule).replace("\\'", "'")
    assert set(re.findall(r"kind = '(\w+)'", asked)) == kinds - {"old_version"}


def test_the_receivers_metrics_are_those_that_it_documents() -> None:
    documented = set(re.findall(r"kafka_telemetry_\w+", (DOCS / "docs" / "receiver-metrics.md").read_text()))
    asked = set(
        re.findall(r"kafka_telemetry_\w+", f"{RULES} {DASHBOARDS['receiver']} {DASHBOARDS['versions']}")
    )
    assert asked
    assert {re.sub("_bucket$", "", name) for name in asked} - documented == set()
