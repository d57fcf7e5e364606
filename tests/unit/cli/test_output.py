"""Output of commands cannot control a terminal, whatever text a client or the server sent."""

from __future__ import annotations

import json

import pytest

from receiver.cli.output import OutputFormat, fail, print_json, print_table, print_wrapped

HOSTILE = "a\x1b[2J\x9b2J\x7f\x85\u2028\u202e\U000e0001\rb"


def test_json_escapes_control_characters_and_keeps_the_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    value = {"client_id": HOSTILE, "topic": "gr\u00fc\u00df"}
    print_json(value)
    written = capsys.readouterr().out
    assert all(line.isprintable() for line in written.split("\n"))
    assert "gr\u00fc\u00df" in written
    assert json.loads(written) == value


def test_tables_and_errors_replace_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"client": HOSTILE}], OutputFormat.TABLE)
    fail(f"the sidecar says: {HOSTILE}")
    written = capsys.readouterr()
    assert len(written.out.splitlines()) == 2
    assert all(line.isprintable() for line in written.out.split("\n"))
    assert len(written.err.splitlines()) == 1
    assert written.err[:-1].isprintable()


def test_a_command_in_a_sentence_is_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    command = "`kafka-telemetry subscriptions put all --metric '*'`"
    print_wrapped(f"there is no subscription, so clients push nothing: put one, for example {command}", "- ")
    print_wrapped(f"do: `{'long ' * 40}`", "  ")  # which no line has room for
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if command in line]
