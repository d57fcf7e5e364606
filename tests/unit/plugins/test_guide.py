"""The plugin guide: its example works as it stands, and it leaves out nothing."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from plugins.console import ConsoleConfig
from plugins.otlp import OtlpConfig
from receiver import plugin as contract
from receiver.host import DropReason, HostSettings, PluginHost, load_plugins
from tests.unit.plugins.support import client_push

GUIDE = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text()


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert isinstance(text, str)
    return text


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example, installed as its entry point says."""
    groups = tomllib.loads(block("toml"))["project"]["entry-points"]
    ((group, entries),) = groups.items()
    info = tmp_path / "journal-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: journal\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    (tmp_path / "journal_plugin.py").write_text(block("python"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "journal_plugin", raising=False)


@pytest.mark.usefixtures("journal")
def test_the_example_works(tmp_path: Path) -> None:
    path = tmp_path / "pushes"
    host = PluginHost(load_plugins([{"type": "journal", "path": str(path)}]))
    host.start()
    for _ in range(3):
        host.offer(client_push())
    assert host.stop(5)
    assert path.read_text() == "apache-kafka-java 108\n" * 3
    (statistics,) = host.statistics()
    assert (statistics.exported_pushes, statistics.failures) == (3, 0)


@pytest.mark.usefixtures("journal")
def test_the_example_survives_a_start_that_fails(tmp_path: Path) -> None:
    host = PluginHost(load_plugins([{"type": "journal", "path": str(tmp_path / "no" / "such")}]))
    host.start()
    host.offer(client_push())
    assert host.stop(0.2)
    (statistics,) = host.statistics()
    assert statistics.dropped[DropReason.SHUTDOWN] == 1


def test_the_configuration_is_one_that_is_accepted(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("Bearer x")
    text = block("yaml").replace("/run/secrets/otlp-token", str(token))
    assert [one.name for one in load_plugins(yaml.safe_load(text)["plugins"])] == ["otlp", "debug"]


def test_every_reason_exception_and_host_key_is_named() -> None:
    errors = [name for name in contract.__all__ if name.endswith("Error") and name != "ExportError"]
    for name in (*DropReason, *errors, *HostSettings.model_fields):
        assert f"`{name}" in GUIDE, name


@pytest.mark.parametrize("config", [OtlpConfig, ConsoleConfig, HostSettings])
def test_every_setting_has_a_description(config: type[BaseModel]) -> None:
    for name, field in config.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            assert all(one.description for one in inner.model_fields.values()), name
        else:
            assert field.description, name
