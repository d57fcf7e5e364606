"""serve and config: output and exit codes."""

import sys
import types
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
import typer.main

from receiver.cli import app
from receiver.host.discovery import HostedPlugin
from receiver.settings.model import ReceiverSettings
from receiver.wire.walk import DATA_PATH
from spark_streaming.settings import RollupSettings
from tests.unit.cli.conftest import Run

TYPES = "console, kafka_topic, otlp, prometheus, spool_files"
GOOD = """
broker: {id: 1}
listeners:
  - {name: CLIENT, bind: "127.0.0.1:19092", upstream: "127.0.0.1:29092"}
plugins:
  - {type: console}
"""


def test_version(run: Run) -> None:
    result = run("--version")
    program, data_path = result.stdout.splitlines()
    assert (result.exit_code, program) == (0, f"kafka-telemetry {version('kafka-client-telemetry')}")
    assert data_path == f"data path: {DATA_PATH}"


def test_every_command_has_help_with_an_example(run: Run) -> None:
    def leaves(command: object, path: tuple[str, ...]) -> list[tuple[str, ...]]:
        below = getattr(command, "commands", None)
        if below is None:
            return [path]
        return [leaf for name, item in below.items() for leaf in leaves(item, (*path, name))]

    found = leaves(typer.main.get_command(app), ())
    assert set(found) == {
        ("serve",),
        ("config", "check"),
        ("config", "reference"),
        ("doctor",),
        ("testkit",),
        ("subscriptions", "list"),
        ("subscriptions", "show"),
        ("subscriptions", "put"),
        ("subscriptions", "patch"),
        ("subscriptions", "apply"),
        ("subscriptions", "copy"),
        ("subscriptions", "diff"),
        ("subscriptions", "explain"),
        ("subscriptions", "match"),
        ("clients", "show"),
        ("clients", "explain"),
        ("clients", "watch"),
        ("connections",),
        ("usage",),
        ("mcp",),
        ("owners", "list"),
        ("owners", "show"),
        ("owners", "put"),
        ("owners", "delete"),
        ("upgrade-check",),
        ("subscriptions", "delete"),
        ("clients", "list"),
        ("series",),
        ("status",),
        ("events",),
        ("listeners",),
        ("plugins",),
        ("token", "new"),
        ("rollup", "run"),
        ("rollup", "migrate"),
        ("rollup", "rebuild"),
        ("rollup", "findings"),
        ("rollup", "status"),
        ("rollup", "findings"),
        ("rollup", "reference"),
    }
    for path in found:
        result = run(*path, "--help")
        assert result.exit_code == 0
        assert "Example" in result.stdout
        assert "\\b" not in result.stdout
        assert f"\n    kafka-telemetry {' '.join(path)}" in result.stdout


@pytest.mark.parametrize("arguments", [["nonsense"], ["serve"], ["config", "check"], ["serve", "--nonsense"]])
def test_wrong_usage(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Usage: kafka-telemetry" in result.stderr


def test_check_of_a_good_configuration(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "receiver.yaml"
    file.write_text(GOOD)
    result = run("config", "check", str(file))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{file}: good. Listeners: CLIENT on 127.0.0.1:19092. Plugins: console.\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            GOOD + "telemetry: {max_byte: 5}",
            "receiver.yaml:7:13: telemetry.max_byte: unknown key; did you mean max_bytes?",
        ),
        (
            GOOD + "telemetry: {quirks: [{client_software_name: a, client_software_version: '('}]}",
            "receiver.yaml: telemetry.quirks[0].client_software_version: '(' is no regular expression: "
            "missing ): (; write it for RE2",
        ),
        (
            GOOD + "  - {type: nonsense}",
            f'receiver.yaml:7:6: plugins[1].type: "nonsense": unknown plugin type; installed are {TYPES}',
        ),
        (
            GOOD + "  - {type: otlp, protocol: grpc}",
            "receiver.yaml:7:5: plugins[1]: needs endpoint, for example http://127.0.0.1:4317, or "
            "endpoints, a list",
        ),
    ],
)
def test_a_wrong_configuration_stops_check_and_serve_with_one_line(
    run: Run, tmp_path: Path, text: str, line: str
) -> None:
    file = tmp_path / "receiver.yaml"
    file.write_text(text)
    for arguments in (["config", "check", str(file)], ["serve", "--config", str(file)]):
        result = run(*arguments)
        assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"kafka-telemetry: {line}\n")


def test_a_wrong_variable_stops_serve(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "receiver.yaml"
    file.write_text(GOOD)
    result = run("serve", "--config", str(file), KAFKA_TELEMETRY_BROKER__ID="one")
    assert result.exit_code == 2
    problem = '"one": expected auto or an integer'
    assert result.stderr == f"kafka-telemetry: environment: KAFKA_TELEMETRY_BROKER__ID: {problem}\n"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (
            "1__TIMEOUT_MS",
            "abc",
            '1__TIMEOUT_MS: "abc": expected an integer, 1 to 600000, or text with a unit such as 30s',
        ),
        (
            "1__TYPE",
            "nonsense",
            f'1__TYPE: "nonsense": unknown plugin type; installed are {TYPES}',
        ),
        ("1__QUEUE", '{"max_items": 0}', "1__QUEUE: max_items: 0: expected an integer, 1 to 10000000"),
        ("1__HEADERS", '{"a": []}', "1__HEADERS: a: expected text, or {file: PATH} to read it from a file"),
        (
            "1__HEADERS__AUTHORIZATION",
            "12345",
            "1__HEADERS__AUTHORIZATION: expected text, or {file: PATH} to read it from a file; to set it as "
            "text, add double quotes inside those of the shell: "
            "KAFKA_TELEMETRY_PLUGINS__1__HEADERS__AUTHORIZATION='\"...\"'",
        ),
        (
            "1__ENDPOINT",
            "true",
            "1__ENDPOINT: true: expected text or null; to set it as text, add double quotes inside those "
            "of the shell: KAFKA_TELEMETRY_PLUGINS__1__ENDPOINT='\"...\"'",
        ),
    ],
)
def test_a_wrong_plugin_setting_names_its_variable(
    run: Run, tmp_path: Path, name: str, text: str, line: str
) -> None:
    file = tmp_path / "receiver.yaml"
    file.write_text(GOOD + "  - {type: otlp, endpoint: 'http://127.0.0.1:4317'}")
    result = run("config", "check", str(file), **{f"KAFKA_TELEMETRY_PLUGINS__{name}": text})
    assert result.exit_code == 2
    assert result.stderr == f"kafka-telemetry: environment: KAFKA_TELEMETRY_PLUGINS__{line}\n"


def test_a_quoted_number_is_text(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "receiver.yaml"
    file.write_text(GOOD + "  - {type: otlp, endpoint: 'http://127.0.0.1:4317'}")
    name = "KAFKA_TELEMETRY_PLUGINS__1__HEADERS__AUTHORIZATION"
    assert run("config", "check", str(file), **{name: '"12345"'}).exit_code == 0


@pytest.mark.parametrize("status", [0, 1, 2])
def test_serve_exits_with_the_status_of_the_receiver(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    calls: list[tuple[ReceiverSettings, Path]] = []

    def root(
        settings: ReceiverSettings, config_path: Path, plugins: Sequence[HostedPlugin], *, take_over: bool
    ) -> int:
        assert not take_over
        assert [plugin.type for plugin in plugins] == [entry["type"] for entry in settings.plugins]
        calls.append((settings, config_path))
        return status

    stand_in = types.ModuleType("receiver.app")
    stand_in.run = root  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "receiver.app", stand_in)
    file = tmp_path / "receiver.yaml"
    file.write_text(GOOD)
    result = run("serve", KAFKA_TELEMETRY_CONFIG=str(file), KAFKA_TELEMETRY_BROKER__ID="7")
    assert result.exit_code == status
    ((settings, path),) = calls
    assert settings.broker.id == 7
    assert path == file


def test_the_configuration_reference_names_every_section(run: Run) -> None:
    result = run("config", "reference")
    assert result.exit_code == 0
    assert all(f"`{section}" in result.stdout for section in ReceiverSettings.model_fields)


def test_the_reference_of_the_rollup_names_every_setting(run: Run) -> None:
    result = run("rollup", "reference")
    assert result.exit_code == 0
    assert all(f"`{key}" in result.stdout for key in RollupSettings.model_fields)
