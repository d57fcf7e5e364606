"""Every command that users are told to run is run by a test, or is on a list with its reason."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
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
from tests.project.commands import (
    TREE,
    Command,
    bare_commands,
    commands_of_page,
    documented_commands,
    hidden_blocks,
    hidden_commands,
)
from tests.unit.api.conftest import Api, ask, instance_id

COMMANDS = documented_commands()

#: Which test runs the commands of a program, or tries them as far as it can.
RUN_BY = {
    "curl": "tests/project/test_commands.py::test_curl_gets_an_answer",
    "kafka-telemetry": "tests/unit/cli/test_documented_commands.py::test_every_command_does_what_it_is_for",
    "kafka-*.sh": "tests/integration/test_documented_tools.py::test_a_tool_accepts_the_command",
    "make": "tests/project/test_commands.py::test_make_has_the_target",
    "openssl": "tests/project/test_commands.py::test_openssl_makes_the_tokens",
    "pip": "tests/project/test_commands.py::test_pip_installs_what_there_is",
    "python": "tests/project/test_commands.py::test_a_module_has_the_options",
}

#: What answers the requests that are not the REST API's, or that have no end, by a part of the URL.
OTHER_ANSWERS = {
    ":8643/metrics": "tests/integration/rollup/test_cli.py",
    ":8643/v1/findings": "tests/integration/rollup/findings/test_answers.py",
    "/v1/events": "tests/unit/api/test_events.py",
}

#: How many commands of other programs there are, and why they are not run. Each is a decision: a
#: new one fails here until somebody has tried it by hand.
NOT_RUN = {
    ".": (1, "tests/release/test_quick_start.py has the environment active in its shell"),
    "cosign": (2, "signs images in a registry"),
    "df": (1, "is of the machine"),
    "docker": (8, "tests/images and tests/examples run the images"),
    "git": (1, "signs a release"),
    "helm": (10, "tests/helm and tests/kubernetes install the chart"),
    "iostat": (1, "is of the machine"),
    "jb": (1, "fetches from GitHub; tests/unit/deploy evaluates what it fetches"),
    "jsonnet": (2, "needs what jb fetches; tests/unit/deploy evaluates the same files"),
    "kill": (3, "names a signal, with which tests/integration kills plugins and receivers"),
    "kubectl": (18, "tests/kubernetes makes the same objects in a real cluster"),
    "spark-submit": (1, "tests/integration/rollup submits the job to a cluster"),
    "terraform": (2, "tests/examples checks the provider's requests"),
    "towncrier": (1, "writes the changelog of a release"),
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
            if any(part in url for part in OTHER_ANSWERS):
                continue
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
    assert command.words[1] == "-m", command.place
    module, *arguments = command.words[2:]
    assert importlib.util.find_spec(module) is not None
    if module == "pytest":
        paths = [argument for argument in arguments if argument.startswith("tests/")]
        assert paths
        assert all((TREE / path).exists() for path in paths)


@pytest.mark.full
@pytest.mark.parametrize("command", of("python", "python3"))
def test_a_module_has_the_options(command: Command) -> None:
    module, *arguments = command.words[2:]
    if module == "pytest":
        return
    # A synopsis has brackets around what may be left out.
    words = [word.strip("[]") for word in arguments]
    if not any(word.startswith("--") for word in words):
        return
    shown = help_of(module, *(word for word in words[:1] if not word.startswith("--")))
    for option, value in pairwise([*words, ""]):
        if option.startswith("--"):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", shown)
            if (choices := re.search(rf"{option} {{(.*?)}}", shown)) and value:
                assert value in choices[1].split(",")


@cache
def help_of(*module: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *module, "--help"],
        cwd=TREE,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "1000"},
    )
    return done.stdout


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
    found = Counter(
        re.sub(r"^kafka-[a-z-]+\.sh$", "kafka-*.sh", command.program).replace("python3", "python")
        for command in COMMANDS
        # A name and a verb are a mention.
        if command.is_whole or any(word.startswith("-") for word in command.words)
    )
    assert found.keys() >= RUN_BY.keys(), "take out what no page has"
    left = {program: count for program, count in found.items() if program not in RUN_BY}
    assert left == {program: count for program, (count, _) in NOT_RUN.items()}


def test_the_lists_name_tests_that_there_are() -> None:
    reasons = [reason for _, reason in NOT_RUN.values()]
    named = re.findall(
        r"tests/[\w/]+(?:\.py)?(?:::\w+)?", " ".join([*RUN_BY.values(), *OTHER_ANSWERS.values(), *reasons])
    )
    assert len(named) > len(RUN_BY)
    for test in named:
        path, _, function = test.partition("::")
        assert (TREE / path).exists(), test
        assert not function or f"def {function}(" in (TREE / path).read_text(), test


@pytest.mark.parametrize(
    ("line", "programs"),
    [
        ("DEMO_SECONDS=60 make demo", ["make"]),
        ("python3 -m venv x && . x/bin/activate", ["python3", "."]),
        ("kubectl get pods | grep x; df -h", ["kubectl", "grep", "df"]),
    ],
)
def test_each_command_of_a_line_is_read(line: str, programs: list[str], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```sh\n{line}\n```\n")
    assert [command.program for command in commands_of_page(page, tmp_path)] == programs


@pytest.mark.parametrize(
    "block", ["```\nmake demo\n```", "```console\n$ make demo\n```", "```text\npsql -c x\n```"]
)
def test_a_block_that_is_not_marked_is_found(block: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{block}\n")
    assert list(hidden_blocks(page, tmp_path)) == ["page.md:1"]
