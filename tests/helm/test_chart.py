"""The chart as a whole: lint, unit tests, package contents, coverage of its switches."""

from __future__ import annotations

import json
import re
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.features import BROKER_CHART, Rendered
from tests.testbed.helm import CHART, CI_VALUES, Helm

PROJECT = CHART.parents[2] / "pyproject.toml"


@pytest.mark.parametrize("values", [CHART / "values.yaml", *CI_VALUES], ids=lambda path: path.stem)
def test_lint_finds_nothing(helm: Helm, values: Path) -> None:
    helm.run("lint", "--strict", CHART, "--values", values)


def test_unit_tests_of_templates_pass(helm: Helm) -> None:
    suites = list((CHART / "tests").glob("*_test.yaml"))
    output = helm.run("--strict", CHART, program="helm-unittest")
    assert re.search(rf"Test Suites:\s+{len(suites)} passed, {len(suites)} total", output), output


def test_each_template_makes_something_for_some_ci_file(all_rendered: Mapping[Path, Rendered]) -> None:
    # checks.yaml only refuses values; the partials are reached by those that include them.
    templates = {file.name for file in (CHART / "templates").glob("*.yaml")} - {"checks.yaml"}
    reached = set().union(*(item.templates for item in all_rendered.values()))
    assert templates - reached == set()


def test_each_switch_is_tried_both_ways_by_ci_files() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    tried = [_merged(defaults, yaml.safe_load(file.read_text())) for file in CI_VALUES]
    switches = dict(_switches(schema))
    assert switches
    untried = {
        f"{'.'.join(path)}: {option}"
        for path, options in switches.items()
        for option in options
        if option not in [_at(values, path) for values in tried]
    }
    assert untried == set()


def _switches(
    schema: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    for name, item in schema.get("properties", {}).items():
        if item.get("type") == "boolean":
            # A parent chart's dependency reads this one, no template does.
            if (*path, name) != ("enabled",):
                yield (*path, name), [False, True]
        elif "enum" in item:
            yield (*path, name), [choice for choice in item["enum"] if isinstance(choice, str)]
        else:
            yield from _switches(item, (*path, name))


def _merged(defaults: Any, given: Any) -> Any:
    if not (isinstance(defaults, dict) and isinstance(given, dict)):
        return given
    return {**defaults, **{key: _merged(defaults.get(key), value) for key, value in given.items()}}


def _at(values: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        values = values[name]
    return values


def test_its_version_is_the_projects() -> None:
    version = tomllib.loads(PROJECT.read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_the_package_has_only_the_files_that_an_installation_needs(helm: Helm, tmp_path: Path) -> None:
    helm.run("package", CHART, "--destination", tmp_path)
    (package,) = tmp_path.glob("*.tgz")
    with tarfile.open(package) as archive:
        packed = {name.removeprefix(f"{CHART.name}/") for name in archive.getnames()}
    folders = {
        str(file.relative_to(CHART))
        for folder in ("templates", "dashboards", "alerts", "presets")
        for file in (CHART / folder).rglob("*")
        if file.is_file()
    }
    assert packed == folders | {"Chart.yaml", "values.yaml", "values.schema.json", "README.md", ".helmignore"}


def test_the_pages_statefulset_is_the_one_that_is_tried() -> None:
    page = (CHART / "README.md").read_text().partition("\n## Sidecar in your own StatefulSet\n")[2]
    shown = next(block for block in re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S) if "spec:" in block)
    lines = [line for line in shown.splitlines() if not line.lstrip().startswith("# ...")]
    tried = iter((BROKER_CHART / "templates" / "statefulset.yaml").read_text().splitlines())
    # In the page's order, with others between them.
    assert [line for line in lines if line not in tried] == []
