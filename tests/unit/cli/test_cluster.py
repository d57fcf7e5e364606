"""The command line asks for the whole cluster, and says who did not answer."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from receiver.wire.uuid import uuid_to_text
from tests.testbed.ports import free_port
from tests.unit.api.conftest import ask, connection, instance_id
from tests.unit.cli.conftest import Run, Sidecar, served


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Sidecar]:
    with served(Sidecar(tmp_path / "other.db")) as running:
        yield running


def asking(tmp_path: Path, stack: ExitStack, *members: str) -> Sidecar:
    first = Sidecar(tmp_path / "first.db")
    first.members = list(members)
    return stack.enter_context(served(first))


def test_lists_are_those_of_the_cluster(run: Run, other: Sidecar, tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = asking(tmp_path, stack, other.url)
        for number, sidecar in enumerate((first, other), 2):
            sidecar.connections.append(connection(number))
            ask(sidecar.telemetry, number, 1000.0)
        for command in (("clients", "list"), ("connections",)):
            listed = run(*command, "-o", "json", "--url", first.url)
            assert (listed.exit_code, listed.stderr) == (0, "")
            assert {item["receiver"] for item in json.loads(listed.stdout)} == {"first", "other"}
            alone = run(*command, "-o", "json", "--scope", "receiver", "--url", first.url)
            assert len(json.loads(alone.stdout)) == 1
            # Receivers of one cluster answer for each other, and each item is listed once.
            both = run(*command, "-o", "json", "--url", first.url, "--url", other.url)
            assert len(json.loads(both.stdout)) == 2
        text = uuid_to_text(instance_id(3))
        shown = run("clients", "show", text, "-o", "json", "--url", first.url)
        assert json.loads(shown.stdout)["receiver"] == "other"
        explained = run("clients", "explain", text, "--url", first.url)
        assert explained.exit_code == 0
        assert explained.stdout.startswith(f"client        orders {text}")


def test_who_does_not_answer_is_named(run: Run, other: Sidecar, tmp_path: Path) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        first = asking(tmp_path, stack, other.url, dead)
        ask(other.telemetry, 2, 1000.0)
        text = uuid_to_text(instance_id(2))
        commands = (("clients", "list"), ("connections",), ("clients", "show", text))
        for command in commands:
            result = run(*command, "--url", first.url)
            assert result.exit_code == 1
            assert f"kafka-telemetry: without {dead}: nothing listens there\n" in result.stderr
        assert text in run("clients", "list", "--url", first.url).stdout


def test_the_worst_come_first_in_the_cluster(run: Run, other: Sidecar, tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = asking(tmp_path, stack, other.url)
        for number in range(2, 6):
            ask(first.telemetry, number, 1000.0)
        ask(other.telemetry, 9, 500.0)
        listed = run("clients", "list", "--limit", "3", "-o", "json", "--url", first.url)
        found = json.loads(listed.stdout)
        assert [item["state"] for item in found] == ["silent", "unsubscribed", "unsubscribed"]
