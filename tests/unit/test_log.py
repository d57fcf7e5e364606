"""The log's lines, whatever somebody else puts into them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import structlog

from receiver.log import configure, only_warnings
from receiver.settings.model import LogSettings


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize(
    "said", ["a\nforged", "\x1b[2Jhidden", "\x9b2J", "a\x85b", "a\u2028b", "a\u202eb", "a\rb"], ids=ascii
)
def test_what_a_client_says_neither_ends_a_line_nor_steers_a_terminal(
    form: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(LogSettings(format=form))
    try:
        structlog.get_logger("receiver.gateway").warning("limit exceeded", client_id=said)
    finally:
        structlog.reset_defaults()
    written = capsys.readouterr().err
    assert "client_id" in written
    assert written.endswith("\n")
    assert written[:-1].isprintable()


def test_the_console_shows_no_python(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings(format="console"))
    try:
        log = structlog.get_logger("receiver.audit")
        log.info("change", before=None, after={"name": "all", "enabled": True, "match": {}}, names=["a"])
    finally:
        structlog.reset_defaults()
    written = capsys.readouterr().err
    assert 'after={"name": "all", "enabled": true, "match": {}}' in written
    assert 'before=null names=["a"]' in written


def test_a_command_logs_no_less_than_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    before = structlog.get_config()
    with only_warnings(LogSettings(format="json")):
        log = structlog.get_logger()
        log.info("subscriptions read")
        log.warning("something should be corrected")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert [json.loads(line)["event"] for line in shown.err.splitlines()] == ["something should be corrected"]
    assert structlog.get_config() == before
