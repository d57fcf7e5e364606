"""The commands of ours on pages, in help and in advice, run against a sidecar's REST API."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

import pytest
import yaml

from receiver.wire.uuid import uuid_to_text
from tests.project.commands import TREE, Command, documented_commands
from tests.unit.api.conftest import ask, instance_id
from tests.unit.cli.conftest import Run, Sidecar

#: The commands that ask no sidecar, and what runs them.
ELSEWHERE: Final = {
    "--install-completion": "tests/integration/test_completion.py",
    "doctor": "tests/release/test_quick_start.py and tests/integration/test_doctor.py",
    "mcp": "tests/unit/cli/test_mcp.py",
    "rollup": "tests/integration/rollup",
    "serve": "tests/release/test_quick_start.py",
    "testkit": "tests/integration/test_testkit.py",
}

#: Subscriptions are made before they are shown, and deleted at last.
ORDER: Final = ("put", "apply", "delete")

#: What ends a command that goes on for ever.
ENDS: Final = {"events": ("--kept", "--count=1"), "watch": ("--looks=1",), "--watch": ("--looks=1",)}

#: Done, and done with something to tell.
GOOD: Final = (0, 3)

CONFIGURATION: Final = """
listeners: [{name: CLIENT, bind: "127.0.0.1:19092", upstream: "127.0.0.1:29092"}]
subscriptions: {store: sqlite, path: ./others.db}
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of somebody who follows the pages."""
    folder = tmp_path / "desk"
    subscriptions = folder / "subscriptions.d"
    shutil.copytree(TREE / "examples" / "gitops" / "subscriptions.d", subscriptions)
    shutil.copy(subscriptions / "producers.yaml", folder)
    shutil.copy(subscriptions / "producers.yaml", folder / "subscriptions.yaml")
    (folder / "payments.yaml").write_text('match: {principal: "User:pay-.*"}\n')
    (folder / "a.token").write_text("a-token-of-the-chart-with-32-letters\n")
    for name in ("receiver.yaml", "RECEIVER.yaml", "old.yaml"):
        (folder / name).write_text(CONFIGURATION)
    monkeypatch.chdir(folder)
    return folder


def order(command: Command) -> int:
    found = [ORDER.index(word) for word in command.arguments[1:2] if word in ORDER]
    return {0: 0, 1: 2, 2: 3}[found[0]] if found else 1


def test_every_command_does_what_it_is_for(
    run: Run, sidecar: Sidecar, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(sidecar.telemetry, 2, 1000.0, client_id="orders-1")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(desk))
    profiles = desk / "kafka-telemetry" / "profiles.yaml"
    profiles.parent.mkdir()
    profiles.write_text(yaml.safe_dump({"profiles": {"prod-eu": {"url": sidecar.url}}}))
    ours = [command for command in documented_commands() if command.program == "kafka-telemetry"]
    ran = set()
    for command in sorted(ours, key=order):
        if command.arguments in ran or not command.arguments or command.arguments[0] in ELSEWHERE:
            continue
        ran.add(command.arguments)
        done = run(*arguments(command, sidecar.url), KAFKA_TELEMETRY_URL=sidecar.url)
        # A sentence may name a command without its arguments.
        is_short = done.exit_code == 2 and ("Missing" in done.output or "Error" not in done.output)
        is_good = done.exit_code in GOOD or (is_short and not command.is_whole)
        assert is_good, f"{command.place}: {command}: {done.output}"
    assert len(ran) > len(ELSEWHERE)


def arguments(command: Command, url: str) -> list[str]:
    """Return the arguments, with a client that is there and a sidecar that answers."""
    client = uuid_to_text(instance_id(2))
    words = [re.sub(r"^http://[0-9.]+:8642$", url, word) for word in command.arguments]
    words = [re.sub(r"^/run/secrets/.*", "a.token", word) for word in words]
    words = [{"CLIENT": "orders-1", "7wk08yJMQAOK9PUGl2Zmrg": client}.get(word, word) for word in words]
    return words + [end for word in command.arguments for end in ENDS.get(word, ())]


def test_what_is_not_run_here_is_run_elsewhere() -> None:
    for named in ELSEWHERE.values():
        for path in re.findall(r"tests/[a-z_/]+(?:\.py)?", named):
            assert (TREE / path).exists(), path
