"""The chart's generated files are those that the code makes."""

from __future__ import annotations

from deploy import console
from deploy.dashboards.written import CHART, files


def test_the_generated_dashboards_and_rules_are_up_to_date() -> None:
    made = {path.as_posix(): text for path, text in files()}

    there = {
        path.relative_to(CHART).as_posix(): path.read_text("utf-8")
        for folder in ("dashboards", "alerts")
        for path in (CHART / folder).iterdir()
    } | {"mixin.libsonnet": (CHART / "mixin.libsonnet").read_text("utf-8")}

    assert there.keys() == made.keys()
    assert [name for name in made if made[name] != there[name]] == [], "run `make docs`"


def test_the_consoles_types_are_up_to_date() -> None:
    assert console.TYPES.read_text("utf-8") == console.types(), "run `make docs`"
