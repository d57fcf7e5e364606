"""pyproject.toml defines licence, authors and addresses; every other file repeats them exactly."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.project import PROJECT, REPOSITORY

TREE = Path(__file__).parents[2]
AUTHORS = PROJECT["authors"][0]["name"]
DOCKERFILES = sorted((TREE / "deploy/images").glob("*/Dockerfile"))


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=TREE, check=True, capture_output=True, text=True
    ).stdout
    return [TREE / name for name in listed.split("\0") if name and (TREE / name).is_file()]


def test_the_licence_is_apache_2_and_its_text_is_there() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    text = (TREE / "LICENSE").read_text()
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "END OF TERMS AND CONDITIONS" in text
    assert AUTHORS in (TREE / "NOTICE").read_text()


def test_every_address_of_the_project_begins_with_the_repository() -> None:
    owner = REPOSITORY.rpartition("/")[0]
    found = set()
    for path in tracked_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found |= set(re.findall(rf"{re.escape(owner)}/[\w.-]+", text))
    assert found == {REPOSITORY}


def test_pyproject_has_all_addresses() -> None:
    assert set(PROJECT["urls"]) == {"Repository", "Documentation", "Issues", "Changelog"}
    assert all(url.startswith(REPOSITORY) for url in PROJECT["urls"].values())


def test_the_chart_repeats_them() -> None:
    chart = yaml.safe_load((TREE / "deploy/helm/kafka-client-telemetry/Chart.yaml").read_text())
    assert chart["home"] == REPOSITORY
    assert chart["sources"] == [REPOSITORY]
    assert chart["maintainers"] == [{"name": AUTHORS}]
    assert chart["annotations"]["artifacthub.io/license"] == PROJECT["license"]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
def test_the_images_repeat_them(dockerfile: Path) -> None:
    text = dockerfile.read_text()
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', text))
    assert labels["licenses"] == PROJECT["license"]
    assert labels["vendor"] == AUTHORS
    assert labels["source"] == REPOSITORY
    assert "LICENSE NOTICE" in text or "FROM ${RECEIVER}" in text
