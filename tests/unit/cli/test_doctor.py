"""doctor: its options, its text and its exit status. tests/integration has real setups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from receiver.cli.doctor import merged
from receiver.doctor.findings import Area, Report, State, ok, warning
from tests.testbed.ports import free_port
from tests.unit.cli.conftest import Run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "receiver.yaml"
    written.write_text(f"""
listeners: [{{name: A, bind: "127.0.0.1:{free_port()}", upstream: "127.0.0.1:{free_port()}"}}]
rest: {{bind: "127.0.0.1:{free_port()}"}}
subscriptions: {{path: {tmp_path}/subscriptions.db}}
plugins: [{{type: console, delivery: memory}}]
""")
    return written


def test_findings_are_grouped_and_say_what_to_do(run: Run, file: Path) -> None:
    result = run("doctor", "--config", str(file), "--before-start")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "configuration:",
        "ports:",
        "broker:",
        "plugin:",
        "not proven: 4 ok, 1 failed",
    ]
    (number,) = (number for number, line in enumerate(lines) if line.startswith("  failed "))
    assert "broker of listener A" in lines[number]
    assert "           do: start the broker, or correct listeners[].upstream" in lines[number:]
    assert max(map(len, lines)) <= 80


def test_only_problems(run: Run, file: Path) -> None:
    lines = run("doctor", "--config", str(file), "--before-start", "--problems-only").stdout.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["broker:", "not proven: 4 ok, 1 failed"]
    assert not [line for line in lines if line.startswith("  ok")]


def test_a_problem_of_several_subjects_is_told_once() -> None:
    same = ("the broker takes telemetry itself", "remove the plugin")
    report = Report(
        [
            warning(Area.BROKER, "hidden", "listener A", *same),
            ok(Area.BROKER, "answers", "listener A", "answers"),
            warning(Area.BROKER, "hidden", "listener B", *same),
            ok(Area.BROKER, "answers", "listener B", "answers"),
            warning(Area.BROKER, "other", "listener B", "something else", "remove the plugin"),
            warning(Area.CLIENT, "late", "client c, instance i", "silent", "look at its log"),
        ]
    )
    told = [(finding.state, finding.subject) for finding in merged(report.findings)]
    assert told == [
        (State.WARNING, "listener A, listener B"),
        (State.OK, "listener A"),
        (State.OK, "listener B"),
        (State.WARNING, "listener B"),
        (State.WARNING, "client c, instance i"),
    ]


def test_mistakes_in_the_file_have_their_place_once(run: Run, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("listener: 1\nlisteners: []\ndrain: {timeout_s: soon}\n")
    lines = run("doctor", "--config", str(wrong)).stdout.splitlines()
    assert [line for line in lines if "wrong.yaml" in line] == [
        "  failed   wrong.yaml:1:1: listener: unknown key; did you mean listeners?",
        '  failed   wrong.yaml:3:9: drain.timeout_s: "soon": expected a number, 0 to 600,',
    ]
    assert len([line for line in lines if "do: correct it" in line]) == 1


def test_json_is_one_document(run: Run, file: Path) -> None:
    result = run("doctor", "--config", str(file), "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["proven"], document["counts"]["failed"]) == (1, False, 2)


def test_wrong_options(run: Run, file: Path) -> None:
    for arguments, words in (
        (("--host", "two words"), "not a host name"),
        (("--client-certificate", str(file)), "both --client-certificate and --client-key"),
        (("--ca-file", str(file.parent / "none")), "does not exist"),
    ):
        result = run("doctor", "--config", str(file), *arguments)
        assert (result.exit_code, words in " ".join(result.stderr.split())) == (2, True), result.stderr
    assert run("doctor", "--config", str(file), "--ca-file", str(file)).exit_code == 1


def test_a_client_can_not_control_the_terminal(run: Run, file: Path) -> None:
    result = run("doctor", "--config", str(file), "--client", "\x1b[31m", "--before-start")
    assert "\x1b" not in result.stdout
