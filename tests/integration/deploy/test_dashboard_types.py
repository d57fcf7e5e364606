"""Every dashboard matches Grafana's TypeScript types, checked by the compiler."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.dashboards.typecheck import OLDER_VERSIONS, type_errors

_DASHBOARDS = Path(__file__).parents[3] / "deploy" / "helm" / "kafka-client-telemetry" / "dashboards"

#: They hide the text box for values of one's own, and name the default colours of a percent change.
_NEWER_MEMBERS = {"allowCustomValue", "perPage", "percentChangeColorMode", "selectionMode"}
_WRONG_PANELS = {
    "option": {"type": "stat", "options": {"colourMode": "value"}},
    "member": {"type": "stat", "options": {"colorMode": "colour"}},
    "field": {"type": "timeseries", "fieldConfig": {"defaults": {"custom": {"width": 2}}, "overrides": []}},
    "type": {"type": "graph"},
    "query": {"type": "timeseries", "targets": [{"refId": "A", "expression": "up"}]},
}


def test_every_dashboard_has_grafanas_types() -> None:
    dashboards = sorted(_DASHBOARDS.glob("*.json"))
    assert dashboards, f"no dashboards in {_DASHBOARDS}"
    assert type_errors(dashboards) == []


@pytest.mark.parametrize("version", OLDER_VERSIONS)
def test_every_dashboard_has_the_types_of_older_grafanas(version: str) -> None:
    errors = type_errors(sorted(_DASHBOARDS.glob("*.json")), version=version)
    # An older Grafana ignores members that it does not know.
    unknown = re.compile(
        r".* error TS2353: .* may only specify known properties, and '\"(\w+)\"' does not .*"
    )
    found = [match[1] if (match := unknown.fullmatch(error)) else error for error in errors]
    assert set(found) <= _NEWER_MEMBERS


def test_a_panel_that_grafana_does_not_know_is_refused(tmp_path: Path) -> None:
    dashboards = []
    for name, panel in _WRONG_PANELS.items():
        dashboard = tmp_path / f"{name}.json"
        dashboard.write_text(f'{{"title": "Wrong", "schemaVersion": 41,\n"panels": [{json.dumps(panel)}]}}')
        dashboards.append(dashboard)
    errors = type_errors(dashboards)
    assert {name for name in _WRONG_PANELS if any(e.startswith(f"{name}.ts(2,") for e in errors)} == set(
        _WRONG_PANELS
    )
