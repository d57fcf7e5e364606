"""What the pages of recipes say is a configuration, and commands that work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import re2
import yaml

from tests.unit.cli.conftest import Run, Sidecar

DOCS = Path(__file__).parents[3] / "docs"
PAGES = ("vendors.md", "connect-and-streams.md")
LISTENER = {"name": "CLIENT", "bind": "127.0.0.1:19092", "upstream": "127.0.0.1:29092"}


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


RECIPES = [text for page in PAGES for text in blocks(page, "yaml")]


def configuration(text: str, secrets: Path) -> dict[str, Any]:
    for name in re.findall(r"/run/secrets/([a-z-]+)", text):
        (secrets / name).write_text("Bearer of-the-vendor")
    found = yaml.safe_load(text.replace("/run/secrets", str(secrets)))
    assert isinstance(found, dict)
    return {"plugins": [{"type": "console"}], **found, "listeners": [LISTENER]}


@pytest.mark.parametrize("text", RECIPES, ids=lambda text: " ".join(text.split())[:60])
def test_a_recipe_is_a_good_configuration(run: Run, tmp_path: Path, text: str) -> None:
    file = tmp_path / "receiver.yaml"
    file.write_text(yaml.safe_dump(configuration(text, tmp_path)))
    checked = run("config", "check", str(file))
    assert checked.exit_code == 0, checked.stderr


def test_what_goes_over_the_internet_is_compressed() -> None:
    """Datadog takes 500 kB, and 5 MB if compressed; a batch has up to 2 MiB."""
    entries = [entry for text in RECIPES for entry in yaml.safe_load(text).get("plugins", ())]
    remote = [entry for entry in entries if entry.get("endpoint", "").startswith("https://")]
    assert len(remote) == 5
    assert {entry["compression"] for entry in remote} == {"gzip"}


def test_every_vendor_of_the_table_has_a_recipe() -> None:
    text = (DOCS / "vendors.md").read_text()
    table = set(re.findall(r"\[([A-Z][A-Za-z ]+)\]\(#", text))
    assert table == set(re.findall(r"^## (.*)$", text, re.MULTILINE))
    assert len(table) == 7
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        assert "```yaml\nplugins:" in section, section


def test_the_commands_work(run: Run, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_TELEMETRY_URL", sidecar.url)
    commands = [text for page in PAGES for text in blocks(page, "sh")]
    assert len(commands) == 2
    for text in commands:
        program, *arguments = shlex.split(text.replace("\\\n", " "))
        assert program == "kafka-telemetry"
        done = run(*arguments)
        assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    ("client_id", "folded"),
    [
        ("connector-producer-orders-12", "connector-producer-orders"),
        ("connector-consumer-orders-0", "connector-consumer-orders"),
        ("billing-0f2d8b9e-1c3a-4e5f-8a7b-6c5d4e3f2a1b-StreamThread-1-consumer", "billing-consumer"),
        (
            "billing-0f2d8b9e-1c3a-4e5f-8a7b-6c5d4e3f2a1b-StreamThread-12-restore-consumer",
            "billing-restore-consumer",
        ),
        ("billing-0f2d8b9e-1c3a-4e5f-8a7b-6c5d4e3f2a1b-admin", "billing-admin"),
    ],
)
def test_generated_client_ids_are_folded(client_id: str, folded: str) -> None:
    rules = [
        rule
        for text in blocks("connect-and-streams.md", "yaml")
        for rule in yaml.safe_load(text)["telemetry"].get("series", {}).get("client_id_folding", ())
    ]
    found = [
        re2.sub(rule["pattern"], rule["replacement"], client_id)
        for rule in rules
        if re2.fullmatch(rule["pattern"], client_id)
    ]
    assert found == [folded]
