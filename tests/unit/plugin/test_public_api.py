"""The public import name of the plugin contract, ``kafka_client_telemetry.plugin``."""

from __future__ import annotations

import ast
from pathlib import Path

from kafka_client_telemetry import plugin

import receiver.plugin

EXAMPLE = Path(__file__).parents[3] / "examples" / "webhook-plugin" / "kafka_telemetry_webhook.py"
OUR_PACKAGES = {"kafka_client_telemetry", "receiver", "plugins", "spark_streaming"}


def test_the_public_names_are_exactly_those_of_receiver_plugin() -> None:
    assert sorted(plugin.__all__) == sorted(receiver.plugin.__all__)
    for name in plugin.__all__:
        assert getattr(plugin, name) is getattr(receiver.plugin, name)
    others = {name for name in vars(plugin) if not name.startswith("_")} - set(plugin.__all__)
    assert others == {"annotations"}


def test_the_example_plugin_is_written_against_the_public_name_only() -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(EXAMPLE.read_text())):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.update(f"{node.module}.{alias.name}" for alias in node.names)
    assert {name for name in imported if name.split(".")[0] in OUR_PACKAGES} == {
        "kafka_client_telemetry.plugin"
    }
