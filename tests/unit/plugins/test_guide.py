"""The plugin guide is complete, names what exists, and its configuration works."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from plugins.console import ConsoleConfig
from plugins.otlp import OtlpConfig
from receiver import plugin as contract
from receiver.host.delivery.statistics import DropReason
from receiver.host.discovery import ENTRY_POINT_GROUP, load_plugins
from receiver.host.settings import HostSettings
from receiver.settings.descriptions import descriptions

TREE = Path(__file__).parents[3]
GUIDE = (TREE / "docs" / "plugins.md").read_text()


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert isinstance(text, str)
    return text


def test_the_configuration_of_the_page_is_valid(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("Bearer x")
    text = block("yaml").replace("/run/secrets/otlp-token", str(token))
    assert [plugin.name for plugin in load_plugins(yaml.safe_load(text)["plugins"])] == ["otlp", "debug"]


def test_every_reason_exception_and_host_key_is_named() -> None:
    errors = [name for name in contract.__all__ if name.endswith("Error") and name != "ExportError"]
    for name in (*DropReason, *errors, *HostSettings.model_fields):
        assert f"`{name}" in GUIDE, name


def test_the_signatures_of_the_contract_are_the_real_ones() -> None:
    receiver = contract.ClientTelemetryReceiver
    signatures = [
        f"def {name}{inspect.signature(method)}"
        for name, method in vars(receiver).items()
        if inspect.isfunction(method)
    ]
    shown = [line for line in block("python").splitlines() if line.startswith("def ")]
    assert shown == [signature.replace("'", "") for signature in signatures]
    assert "Config: ClassVar[type[PluginConfig]] = PluginConfig " in block("python")
    assert f"max_batch_items: int = {receiver.max_batch_items} " in block("python")


def test_the_example_and_its_type_exist() -> None:
    (path,) = re.findall(r"\(\.\./(examples/[^)]+)/README\.md\)", GUIDE)
    project = tomllib.loads((TREE / path / "pyproject.toml").read_text())["project"]
    (type_,) = project["entry-points"][ENTRY_POINT_GROUP]
    assert f"`{{type: {type_}, url:" in GUIDE


def test_the_reserved_setting_names_are_the_hosts() -> None:
    (line,) = re.findall(r"must not have the fields ([^.]*)\.$", GUIDE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", line)) == {"type", *HostSettings.model_fields}


@pytest.mark.parametrize("config", [OtlpConfig, ConsoleConfig, HostSettings])
def test_every_setting_has_a_description(config: type[BaseModel]) -> None:
    for name, field in config.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            assert descriptions(inner).keys() == inner.model_fields.keys(), name
        else:
            assert name in descriptions(config)
