"""Kafka's own tools, as the pages call them, do at a real broker what the pages say."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.project.commands import Command, documented_commands
from tests.testbed import kafka_tools
from tests.testbed.broker import KafkaBroker

pytestmark = pytest.mark.full

_TOOL = re.compile(r"kafka-[a-z-]+\.sh")

#: A mention of a tool's name is no command.
COMMANDS = [
    command
    for command in documented_commands()
    if _TOOL.fullmatch(command.program) and len(command.words) > 1
]


def parameters() -> list[Any]:
    return [pytest.param(command, id=f"{command.place} {command}"[:100]) for command in COMMANDS]


@pytest.mark.parametrize("command", parameters())
def test_a_tool_accepts_the_command(broker: KafkaBroker, command: Command) -> None:
    is_address = re.compile(r"BROKER|[a-z0-9.]+:\d+")
    arguments = [
        broker.internal_bootstrap if is_address.fullmatch(word) else word for word in command.words[1:]
    ]
    # A producer reads records until its input ends.
    kafka_tools.script(command.program, arguments, stdin="record\n")


def test_the_quota_of_a_client_id_is_shown(broker: KafkaBroker) -> None:
    quota = ["--entity-type", "clients", "--entity-name", "documented"]
    kafka_tools.configs(
        broker.internal_bootstrap, "--alter", "--add-config", "producer_byte_rate=1024", *quota
    )
    shown = [
        kafka_tools.configs(broker.internal_bootstrap, *command.words[3:])
        for command in COMMANDS
        if command.program == "kafka-configs.sh" and command.words[1] == "--bootstrap-server"
    ]
    assert shown
    assert all("documented" in text and "producer_byte_rate=1024" in text for text in shown)
