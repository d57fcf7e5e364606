"""Every command that users are told to run is checked: parsed, run, or on a list with its reason.

`tests/unit/cli/test_documented_commands.py` runs our own against a sidecar's REST API, and
`tests/integration/test_documented_tools.py` those of Kafka's tools against a broker.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
import typer.main
from typer.core import TyperGroup
from typer.exceptions import TyperException

from receiver.cli import app
from receiver.store.sqlite import SqliteSubscriptionStore
from receiver.wire.uuid import uuid_to_text
from tests.project.commands import TREE, Command, bare_commands, documented_commands, hidden_commands
from tests.unit.api.conftest import Api, ask, instance_id

COMMANDS = documented_commands()

#: How many commands of other programs there are, and why they are not run. Each is a decision: a
#: new one fails here until somebody has tried it by hand.
NOT_RUN = {
    "cosign": (2, "signs images in a registry"),
    "df": (1, "is of the machine"),
    "docker": (8, "tests/images and tests/examples run the images"),
    "git": (1, "signs a release"),
    "helm": (9, "tests/helm and tests/kubernetes install the chart"),
    "iostat": (1, "is of the machine"),
    "jb": (1, "fetches from GitHub; tests/unit/deploy evaluates what it fetches"),
    "jsonnet": (2, "needs what jb fetches; tests/unit/deploy evaluates the same files"),
    "kill": (2, "names a signal, with which tests/integration kills plugins and receivers"),
    "kubectl": (12, "tests/kubernetes makes the same objects in a real cluster"),
    "spark-submit": (1, "tests/integration/rollup submits the job to a cluster"),
    "terraform": (2, "tests/examples checks the provider's requests"),
}


def of(*programs: str) -> list[Any]:
    """The commands of programs, each once as a parameter of a test."""
    once = {
        (command.words, command.is_whole, "-C" in command.words and command.place): command
        for command in COMMANDS
        if command.program in programs
    }
    return [pytest.param(command, id=f"{command.place} {command}"[:100]) for command in once.values()]


def parse(command: Any, arguments: Iterable[str], *, is_whole: bool) -> None:
    """Parse arguments with the real parser, without running anything."""
    if arguments == ("--install-completion",):  # it would be installed at once
        assert any("--install-completion" in option.opts for option in command.params)
        return
    try:
        context = command.make_context(command.name, list(arguments))
    except typer.Exit as exit_:  # --version
        if exit_.exit_code:
            raise
        return
    except TyperException as error:
        # A sentence may name a command without its arguments.
        if is_whole or type(error).__name__ not in {"MissingParameter", "NoArgsIsHelpError"}:
            raise
        return
    given = [*context._protected_args, *context.args]
    if isinstance(command, TyperGroup) and given:
        _, below, rest = command.resolve_command(context, given)
        parse(below, rest, is_whole=is_whole)


@pytest.mark.parametrize("command", of("kafka-telemetry"))
def test_our_own_commands_are_accepted(command: Command) -> None:
    parse(typer.main.get_command(app), command.arguments, is_whole=command.is_whole)


def test_no_command_is_in_a_block_that_is_not_read() -> None:
    assert hidden_commands() == [], "mark the block as sh"


def test_no_command_of_an_advice_is_not_read() -> None:
    assert bare_commands() == [], "put the command between backticks"


def test_a_wrong_command_is_refused() -> None:
    group = typer.main.get_command(app)
    for wrong in (["client", "list"], ["clients", "list", "--clientid", "a"], ["plugins", "-o", "xml"]):
        with pytest.raises(TyperException):
            parse(group, wrong, is_whole=False)
    parse(group, ["clients", "show"], is_whole=False)
    with pytest.raises(TyperException):
        parse(group, ["clients", "show"], is_whole=True)


def test_curl_gets_an_answer(tmp_path: Path) -> None:
    store = SqliteSubscriptionStore(tmp_path / "subscriptions.db")
    api = Api(store)
    client = uuid_to_text(instance_id(2))
    commands = [command for command in COMMANDS if command.program == "curl"]
    assert len(commands) > 5

    async def scenario(rest: httpx.AsyncClient) -> None:
        ask(api.telemetry, 2, api.clock.now)
        # A PUT makes what a PATCH changes.
        for command in sorted(commands, key=lambda each: "PUT" not in each.words):
            url, method, headers, body = curl(command)
            if "/v1/events" in url or ":8643" in url:
                continue  # a stream, which its own tests follow; and the roll-up's endpoint
            path = re.sub(r"^(SIDECAR|http://127\.0\.0\.1:8642)", "", url).replace("INSTANCE", client)
            answer = await rest.request(method, path, headers=headers, content=body)
            assert answer.is_success, f"{command.place}: {answer.text}"

    api.run(scenario)
    store.close()


def curl(command: Command) -> tuple[str, str, dict[str, str], str | None]:
    """Return URL, method, headers and body of a command."""
    url, method, headers, body = "", "GET", {}, None
    words = iter(command.words[1:])
    for word in words:
        match word:
            case "-X":
                method = next(words)
            case "-H":
                name, _, value = next(words).partition(":")
                headers[name] = value.strip()
            case "-d":
                body = next(words)
            case "-N" | "-sf":
                pass
            case _:
                assert not word.startswith("-"), f"{command.place}: {word}"
                assert not url, f"{command.place}: {word}"
                url = word
    if body is not None:
        if body.startswith("@"):
            body = ((TREE / command.place).parent / body[1:]).read_text()
        json.loads(body)
    return url, method, headers, body


@pytest.mark.parametrize("command", of("make"))
def test_make_has_the_target(command: Command) -> None:
    done = subprocess.run(
        ["make", "--dry-run", *command.words[1:]],
        cwd=(TREE / command.place).parent if "-C" in command.words else TREE,
        check=False,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", of("python", "python3"))
def test_python_finds_the_module(command: Command) -> None:
    words = command.words[1:]
    assert words[0] in {"-m", "-c"}, command.place
    if words[0] == "-m":
        assert importlib.util.find_spec(words[1]) is not None


@pytest.mark.parametrize("command", of("pip"))
def test_pip_installs_what_there_is(command: Command) -> None:
    extras = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in command.words[2:]:
        named = re.search(r"\[(.*)\]", word)
        assert set(named[1].split(",")) <= extras.keys() if named else word == "."


def test_openssl_makes_the_tokens(tmp_path: Path) -> None:
    commands = [command for command in COMMANDS if command.program == "openssl"]
    assert commands
    for command in commands:
        words = [command.program, *command.arguments]
        done = subprocess.run(words, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{command.place}: {done.stderr}"
        assert done.stdout.strip()


def test_what_is_not_run_is_on_the_list() -> None:
    checked = {"kafka-telemetry", "curl", "make", "python", "python3", "pip", "openssl"}
    of_kafka = re.compile(r"kafka-[a-z-]+\.sh")
    left = Counter(
        command.program
        for command in COMMANDS
        # A name and a verb are a mention.
        if (command.is_whole or any(word.startswith("-") for word in command.words))
        and command.program not in checked | _VARIABLES
        and not of_kafka.fullmatch(command.program)
    )
    assert left == {program: count for program, (count, _) in NOT_RUN.items()}


#: Variables in front of a command.
_VARIABLES = {"DEMO_SECONDS=60"}
