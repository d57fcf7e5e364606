from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from receiver.host.discovery import PluginConfigError, installed_types, load_plugins
from receiver.settings.errors import SettingsError

ACME = dedent(
    """
    from pydantic import Field
    from receiver.plugin import ClientTelemetryReceiver, PluginConfig
    from receiver.plugin.secret import Secret

    class AcmeConfig(PluginConfig):
        url: str = Field(pattern="^acme://")
        token: Secret | None = None
        size: int = Field(default=3, ge=1, le=9)

    class Acme(ClientTelemetryReceiver):
        Config = AcmeConfig
        def export(self, context, payload): ...

    class Broken(Acme):
        def __init__(self, config):
            raise RuntimeError(f"no luck with {config.token.get_secret_value()}")

    class Greedy(Acme):
        class Config(PluginConfig):
            queue: int = 1

    class Untyped(Acme):
        Config = dict

    class Idle(ClientTelemetryReceiver):
        pass
    """
)
ENTRY_POINTS = """
[kafka_client_telemetry.plugins]
acme = acme_plugin:Acme
broken = acme_plugin:Broken
greedy = acme_plugin:Greedy
untyped = acme_plugin:Untyped
notclass = acme_plugin:ACME
notthere = acme_plugin_missing:Acme
wrong = acme_plugin:PluginConfig
idle = acme_plugin:Idle
"""


def install(site: Path, name: str, entry_points: str) -> None:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution with plugins, installed as pip would leave it."""
    (tmp_path / "acme_plugin.py").write_text(ACME)
    install(tmp_path, "acme", ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "acme_plugin", raising=False)
    return tmp_path


def problem(*configs: dict[str, Any]) -> str:
    with pytest.raises(PluginConfigError) as caught:
        load_plugins(configs)
    text = str(caught.value)
    assert "\n" not in text
    assert isinstance(caught.value, SettingsError), "whoever handles settings errors handles ours"
    return text


def test_our_own_plugins_are_installed() -> None:
    assert {"otlp", "console"} <= set(installed_types())


def test_nothing_is_nothing() -> None:
    assert load_plugins([]) == []


@pytest.mark.usefixtures("acme")
def test_host_keys_and_own_keys_are_split() -> None:
    (one,) = load_plugins(
        [
            {
                "type": "acme",
                "url": "acme://x",
                "size": 5,
                "queue": {"max_items": 7},
                "batch": {"linger_ms": 3},
                "retry": {"max_elapsed_s": 0},
            }
        ]
    )
    assert (one.name, one.type) == ("acme", "acme")
    assert one.plugin.config.model_dump() == {"url": "acme://x", "token": None, "size": 5}
    assert (one.settings.queue.max_items, one.settings.queue.max_bytes) == (7, 67_108_864)
    assert one.settings.batch.linger_ms == 3
    assert one.settings.retry.max_elapsed_s == 0


@pytest.mark.usefixtures("acme")
def test_names_are_unique() -> None:
    url = "acme://x"
    loaded = load_plugins(
        [
            {"type": "acme", "url": url},
            {"type": "acme", "url": url, "name": "acme-2"},
            {"type": "acme", "url": url},
            {"type": "acme", "url": url, "name": "mine"},
        ]
    )
    assert [item.name for item in loaded] == ["acme", "acme-2", "acme-3", "mine"]
    assert problem({"type": "acme", "url": url, "name": "a"}, {"type": "acme", "url": url, "name": "a"}) == (
        'plugins[1].name: "a": plugins[0] has the same name: choose another'
    )


@pytest.mark.usefixtures("acme")
def test_each_has_a_spool_of_its_own() -> None:
    first = {"type": "acme", "url": "acme://x", "name": "a"}
    loaded = load_plugins(
        [
            first,
            {**first, "name": "b", "spool": {"path": "x/y"}},
            {**first, "name": "c", "delivery": "memory"},
        ]
    )
    assert [item.spool_path for item in loaded] == [Path("spool/a"), Path("x/y"), None]
    for same in (str(Path("spool/a").absolute()), "./spool/b/../a"):
        assert problem(first, {**first, "name": "b", "spool": {"path": same}}).endswith(
            '/a": plugins[0] has the same folder: give each plugin its own'
        )


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize("path", ["", "."])
def test_no_spool_is_spread_over_the_working_directory(path: str) -> None:
    assert "plugins[0].spool.path" in problem({"type": "acme", "url": "acme://x", "spool": {"path": path}})


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"type": "acme"}, "plugins[0].url: required: text"),
        (
            {"type": "acme", "url": "http://u:pw@h"},
            'plugins[0].url: "http://***@h": must match ^acme://',
        ),
        (
            {"type": "acme", "url": "h:1,u:p/w, p@w@h:9092"},
            'plugins[0].url: "***@h:9092": must match ^acme://',
        ),
        (
            {"type": "acme", "url": "acme://x", "size": 12},
            "plugins[0].size: 12: expected an integer, 1 to 9",
        ),
        (
            {"type": "acme", "url": "acme://x", "size": "5"},
            'plugins[0].size: "5": expected an integer, 1 to 9',
        ),
        (
            {"type": "acme", "url": "acme://x", "tokn": "hunter2"},
            "plugins[0].tokn: unknown key; did you mean token?",
        ),
        (
            {"type": "acme", "url": "acme://x", "queue": {"max_item": 1}},
            "plugins[0].queue.max_item: unknown key; did you mean max_items?",
        ),
        (
            {"type": "acme", "url": "acme://x", "queue": {"max_items": 0}},
            "plugins[0].queue.max_items: 0: expected an integer, 1 to 10000000",
        ),
        (
            {"type": "acme", "url": "acme://x", "queue": 4},
            "plugins[0].queue: expected a mapping",
        ),
        (
            {"type": "acme", "url": "acme://x", "name": "no spaces"},
            'plugins[0].name: "no spaces": must match ',
        ),
        ({"type": "acme", "url": "acme://x", "token": 12345}, "plugins[0].token: expected text, or {file: "),
    ],
)
def test_what_is_wrong_is_named_with_the_fix(config: dict[str, Any], message: str) -> None:
    text = problem(config)
    assert text.startswith(message)
    assert "hunter2" not in text
    assert "12345" not in text
    assert "pw" not in text


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    ("type_", "meant"), [("Otlp", "otlp"), ("otpl", "otlp"), ("kafka-topic", "kafka_topic")]
)
def test_a_misspelt_type_is_guessed(type_: str, meant: str) -> None:
    assert problem({"type": type_}).endswith(f"unknown plugin type; did you mean {meant}?")


@pytest.mark.parametrize("name", ["Bad/Name", "../up", ".hidden", "a b", ""])
def test_a_name_that_is_no_folder_is_refused(name: str) -> None:
    assert f"plugins[0].name: {json.dumps(name)}: must match " in problem({"type": "console", "name": name})


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize("type_", ["nonsense", "", 3, None, ["otlp"]])
def test_an_unknown_type_names_those_there_are(type_: object) -> None:
    text = problem({"type": type_})
    assert text.startswith("plugins[0].type: ")
    assert f"installed are {', '.join(sorted(installed_types()))}" in text
    assert {"acme", "otlp"} <= set(installed_types())


def test_a_missing_type_is_named() -> None:
    assert problem({"endpoint": "x"}).startswith("plugins[0].type: unknown plugin type; installed are ")


def test_mistakes_of_the_host_and_of_the_plugin_are_told_at_once() -> None:
    with pytest.raises(PluginConfigError) as caught:
        load_plugins([{"type": "console", "name": "Bad/Name", "queue": {"max_item": 1}, "format": "xml"}])
    keys = {mistake.key for mistake in (caught.value, *caught.value.further)}
    assert keys == {"plugins[0].name", "plugins[0].queue.max_item", "plugins[0].format"}


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    ("type_", "message"),
    [
        ("notthere", "acme_plugin_missing:Acme cannot be loaded: ModuleNotFoundError"),
        ("notclass", "acme_plugin:ACME cannot be loaded: AttributeError"),
        ("wrong", "acme_plugin:PluginConfig is no ClientTelemetryReceiver"),
        ("idle", "acme_plugin:Idle has neither export nor export_batch"),
        ("untyped", "the Config of acme_plugin:Untyped is no PluginConfig"),
        ("greedy", "the Config of acme_plugin:Greedy has keys that are reserved for the host: queue"),
        ("broken", "the plugin cannot be constructed: RuntimeError at acme_plugin.py"),
    ],
)
def test_a_plugin_that_keeps_not_to_the_contract_is_named(type_: str, message: str) -> None:
    text = problem({"type": type_} | ({"url": "acme://x", "token": "hunter2"} if type_ == "broken" else {}))
    assert text.startswith(f'plugins[0].type: "{type_}": ')
    assert message in text
    assert "hunter2" not in text


def test_two_claims_to_one_type_are_refused(acme: Path) -> None:
    install(acme, "other", "[kafka_client_telemetry.plugins]\nacme = other:Acme\n")
    text = problem({"type": "acme", "url": "acme://x"})
    assert "the type acme is claimed by " in text
    assert "other:Acme" in text
    assert "acme_plugin:Acme" in text


def test_the_same_claim_twice_is_one(acme: Path) -> None:
    install(acme, "again", "[kafka_client_telemetry.plugins]\nacme = acme_plugin:Acme\n")
    assert len(load_plugins([{"type": "acme", "url": "acme://x"}])) == 1


def test_a_plugins_sizes_and_times_take_units() -> None:
    (hosted,) = load_plugins(
        [{"type": "prometheus", "bind": "127.0.0.1:1", "linger_s": "2m", "spool": {"max_bytes": "2GiB"}}]
    )
    assert hosted.plugin.config.linger_s == 120  # type: ignore[attr-defined]
    assert hosted.settings.spool.max_bytes == 2 << 30
