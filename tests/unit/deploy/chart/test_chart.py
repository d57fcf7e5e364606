"""The files generated from values.yaml are up to date; every value is used and tested."""

from __future__ import annotations

import re

import pytest
import yaml

from deploy.chart.readme import with_table
from deploy.chart.values import parse
from deploy.chart.written import CHART, files

VALUES = parse((CHART / "values.yaml").read_text("utf-8"))
_FOLDER = CHART / "templates"
TEMPLATES = {str(path.relative_to(_FOLDER)): path.read_text("utf-8") for path in _FOLDER.rglob("*.*")}
SUITES = [yaml.safe_load(path.read_text("utf-8")) for path in (CHART / "tests").glob("*_test.yaml")]


def test_the_generated_files_are_up_to_date() -> None:
    stale = [name for name, text in files() if (CHART / name).read_text("utf-8") != text]

    assert stale == [], "run `make docs`"


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^README.md: lacks the line <!-- values: made by"):
        with_table("# A page\n", VALUES)


def test_every_value_is_read_by_a_template() -> None:
    text = "".join(TEMPLATES.values())
    unused = [value.path for value in VALUES.values() if not re.search(rf"\b{value.path[-1]}\b", text)]

    assert unused == []


def test_every_template_has_tests() -> None:
    tried = {name for suite in SUITES for name in suite["templates"]}

    assert {name for name in TEMPLATES if not name.startswith("_")} == tried


def test_every_helper_is_defined_once_and_used() -> None:
    text = "".join(TEMPLATES.values())
    defined = re.findall(r'define "([^"]+)"', text)
    # What a broker chart includes is its own use.
    used = set(re.findall(r'include "([^"]+)"', text + (CHART / "README.md").read_text("utf-8")))

    assert len(defined) == len(set(defined))
    # The hook's template puts the part into the name.
    used |= {name for name in defined if name.endswith((".config", ".origins"))}
    assert {name for name in defined if ".sidecar." not in name} <= used <= set(defined)


def test_every_named_template_of_the_sidecar_is_in_the_readme() -> None:
    page = (CHART / "README.md").read_text("utf-8")
    public = set(re.findall(r'define "(kafka-client-telemetry\.sidecar\.\w+)"', TEMPLATES["_sidecar.tpl"]))

    assert {name for name in public if f"`{name}`" not in page} == {
        "kafka-client-telemetry.sidecar.podSelector"
    }


def test_the_chart_has_the_projects_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    project = (CHART.parents[2] / "pyproject.toml").read_text("utf-8")

    assert f'\nversion = "{chart["appVersion"]}"\n' in project
    assert f"version: {chart['version']}" in (CHART / "README.md").read_text("utf-8")
