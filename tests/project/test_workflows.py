"""The workflows pass actionlint and zizmor, and use what the Makefile offers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.testbed import parts

TREE = Path(__file__).parents[2]
GITHUB = TREE / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
#: Fails in both linters: an unknown key, a moving tag, and a template expansion in a shell.
BROKEN = """
name: broken
on: pull_request_target
jobs:
  a:
    runs-on: ubuntu-24.04
    unknown-key: 1
    steps:
      - uses: actions/checkout@main
      - run: echo "${{ github.event.pull_request.title }}"
"""


def actionlint(*paths: Path) -> subprocess.CompletedProcess[str]:
    # Without shellcheck, which is on some machines only.
    command: list[str | Path] = [parts.ACTIONLINT.require() / "actionlint", "-no-color", "-shellcheck="]
    command += paths
    return subprocess.run(command, cwd=TREE, capture_output=True, text=True, timeout=120)


def zizmor(*paths: Path) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [Path(sys.executable).with_name("zizmor"), "--offline", "--no-progress"]
    command += paths
    return subprocess.run(command, cwd=TREE, capture_output=True, text=True, timeout=120)


def test_there_is_a_gate_a_nightly_run_and_a_release() -> None:
    assert [path.stem for path in WORKFLOWS] == ["gate", "nightly", "release"]


@pytest.mark.full  # actionlint is built with Go
def test_actionlint_reports_no_problem() -> None:
    linted = actionlint(*WORKFLOWS)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_zizmor_reports_no_problem() -> None:
    actions = sorted((GITHUB / "actions").glob("*/action.yml"))
    assert actions
    linted = zizmor(*WORKFLOWS, *actions, GITHUB / "dependabot.yml")
    assert linted.returncode == 0, linted.stdout + linted.stderr


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    workflow = tmp_path / ".github/workflows/broken.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(BROKEN)
    return workflow


@pytest.mark.full  # actionlint is built with Go
def test_actionlint_finds_an_unknown_key(broken: Path) -> None:
    assert "unknown-key" in actionlint(broken).stdout


def test_zizmor_finds_an_injection_and_a_moving_tag(broken: Path) -> None:
    assert {"template-injection", "unpinned-uses"} <= set(re.findall(r"\[([a-z-]+)\]", zizmor(broken).stdout))


def test_workflows_run_targets_that_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (TREE / "Makefile").read_text(), re.M))
    used = {target for path in WORKFLOWS for target in re.findall(r"run: make ([a-z-]+)", path.read_text())}
    assert used
    assert used <= targets


def test_the_release_publishes_with_the_uv_that_the_makefile_pins() -> None:
    pinned = re.search(r"^UV_VERSION := (.+)$", (TREE / "Makefile").read_text(), re.M)
    assert pinned is not None
    assert f"uv=={pinned[1]} publish" in (GITHUB / "workflows/release.yml").read_text()


def test_owned_paths_exist() -> None:
    lines = (GITHUB / "CODEOWNERS").read_text().splitlines()
    paths = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert paths[0] == "*"
    assert [path for path in paths[1:] if not (TREE / path.strip("/")).exists()] == []


@pytest.mark.parametrize("form", ["bug", "feature"])
def test_an_issue_form_asks_for_what_is_needed(form: str) -> None:
    loaded = yaml.safe_load((GITHUB / f"ISSUE_TEMPLATE/{form}.yml").read_text())
    assert {"name", "description", "body"} <= set(loaded)
    questions = [field["id"] for field in loaded["body"] if field["type"] != "markdown"]
    assert len(questions) == len(set(questions))
    assert any(field.get("validations", {}).get("required") for field in loaded["body"])


@pytest.mark.parametrize(
    ("subject", "accepted"),
    [
        ("gateway: close idle connections", True),
        ("spark_streaming/decoder: skip unknown fields", True),
        ("Merge branch 'main'", True),
        ("gateway: " + "x" * 63, True),
        ("gateway: " + "x" * 64, False),
        ("Close idle connections", False),
        ("gateway:close", False),
        ("", False),
    ],
)
def test_commit_subjects(subject: str, accepted: bool, tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_text(f"{subject}\n\nThe reason.\n")
    ran = subprocess.run([GITHUB / "commit-subject", message], capture_output=True, text=True)
    assert (ran.returncode == 0) is accepted
    assert bool(ran.stderr) is not accepted
