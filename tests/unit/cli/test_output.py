"""Output of commands cannot control a terminal, whatever text a client or the server sent."""

from __future__ import annotations

import json

import pytest

from receiver.cli.output import OutputFormat, fail, print_json, print_table

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
