"""A reload puts the whole configuration in force, or says what is wrong and changes nothing."""

from __future__ import annotations

import copy
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateway.support import (
    TIMEOUT_S,
    GatewaySidecar,
    Raw,
    config,
    get_subscriptions,
    listener,
    refusal,
)
from tests.testbed.ports import LOOPBACK, free_port, listening_on
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import ScriptedBroker

REFUSED, APPLIED = "configuration not reloaded", "configuration reloaded"
SUCCESSFUL = "config_last_reload_successful"
APPLIED_AT = "config_last_reload_success_timestamp_seconds"


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


def reloaded(sidecar: GatewaySidecar, event: str) -> dict[str, Any]:
    """Reload, and return the log's line about it."""
    count = len(sidecar.logged(event)) + 1
    sidecar.reload()
    return sidecar.awaited(event, count)[-1]


def plugins(sidecar: GatewaySidecar) -> dict[str, str]:
    return {item["name"]: item["state"] for item in sidecar.http.get("/v1/plugins").json()["items"]}


def taken_port(settings: dict[str, Any], folder: Path) -> str:
    settings["plugins"].append({"type": "prometheus", "bind": (folder / "taken").read_text()})
    return f'receiver.yaml: plugins[1].bind: "{settings["plugins"][1]["bind"]}": cannot listen there: '


def shared_port(settings: dict[str, Any], folder: Path) -> str:
    bind = settings["listeners"][0]["bind"]
    settings["plugins"].append({"type": "prometheus", "bind": bind})
    return f'receiver.yaml: plugins[1].bind: "{bind}": listeners[0] listens on {bind} already'


def broken_quirk(settings: dict[str, Any], folder: Path) -> str:
    settings["telemetry"] = {"quirks": [{"client_software_name": "x", "client_software_version": "("}]}
    return "quirks"


def missing_certificate(settings: dict[str, Any], folder: Path) -> str:
    settings["rest"]["tls"] = {
        "cert_file": str(folder / "none.pem"),
        "key_file": str(folder / "none.key"),
    }
    return "rest.tls"


def broken_subscription(settings: dict[str, Any], folder: Path) -> str:
    (folder / "subscriptions").mkdir()
    (folder / "subscriptions" / "all.yaml").write_text("name: all\nmetrics: ['*']\ninterval_ms: soon\n")
    settings["subscriptions"] = {"store": "file", "path": str(folder / "subscriptions")}
    return "interval_ms"


def missing_key(settings: dict[str, Any], folder: Path) -> str:
    settings["telemetry"] = {
        "privacy": {"pseudonymize": ["principal"], "key": {"file": str(folder / "none.key")}}
    }
    return "telemetry.privacy.key"


@pytest.mark.parametrize(
    "spoil",
    [
        taken_port,
        *(
            pytest.param(spoil, marks=pytest.mark.full)
            for spoil in (missing_certificate, shared_port, broken_quirk, broken_subscription, missing_key)
        ),
    ],
)
def test_what_cannot_be_applied_changes_nothing(
    broker: ScriptedBroker, tmp_path: Path, spoil: Callable[[dict[str, Any], Path], str]
) -> None:
    settings = config(broker.port)
    with listening_on(LOOPBACK) as taken, GatewaySidecar(settings) as sidecar, Raw(sidecar.port()) as raw:
        (tmp_path / "taken").write_text(f"{LOOPBACK}:{taken.getsockname()[1]}")
        began, before = time.time(), copy.deepcopy(settings)
        assert (sidecar.value(SUCCESSFUL), sidecar.warnings()) == (1, [])
        applied_at = sidecar.value(APPLIED_AT)
        assert began - TIMEOUT_S < applied_at <= began
        processes = sidecar.processes()

        problem = spoil(settings, tmp_path)
        settings["listeners"].append(later := listener("LATER", broker.port))
        settings["limits"] = {"source_address": {"connections": 1}}
        assert problem in reloaded(sidecar, REFUSED)["problem"]
        wait_until(lambda: sidecar.value(SUCCESSFUL) == 0, timeout_s=TIMEOUT_S, what="the metric")
        (warning,) = sidecar.warnings()
        assert warning.startswith("the last reload was refused, the configuration before it stays in force: ")
        assert problem in warning
        assert sidecar.value(APPLIED_AT) == applied_at
        assert refusal(int(later["bind"].rpartition(":")[2]))[0] == "refused"
        assert plugins(sidecar) == {"console": "running"}
        assert sidecar.processes() == processes
        assert raw.exchange(get_subscriptions())
        with Raw(sidecar.port()) as second:  # the limit of the refused configuration is not in force
            assert second.exchange(get_subscriptions())

        settings.clear()
        settings.update(before)
        reloaded(sidecar, APPLIED)
        wait_until(lambda: sidecar.value(SUCCESSFUL) == 1, timeout_s=TIMEOUT_S, what="the metric")
        assert sidecar.warnings() == []
        assert sidecar.value(APPLIED_AT) > applied_at


#: A plugin that writes down that it was constructed, as an installed distribution.
COUNTED = """
import os
from kafka_client_telemetry import plugin

class Counted(plugin.ClientTelemetryReceiver):
    class Config(plugin.PluginConfig):
        log: str
        name_of_it: str

    def __init__(self, config):
        super().__init__(config)
        with open(config.log, "a") as file:
            file.write(f"{os.getpid()} {config.name_of_it}\\n")

    def export(self, context, payload):
        return None
"""


def test_a_reload_builds_what_changed_once(broker: ScriptedBroker, tmp_path: Path) -> None:
    installed, log = tmp_path / "installed", tmp_path / "log"
    metadata = installed / "counted-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: counted\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[kafka_client_telemetry.plugins]\ncounted = counted:Counted\n"
    )
    (installed / "counted.py").write_text(COUNTED)

    def entry(name: str, **more: Any) -> dict[str, Any]:
        return {"type": "counted", "name": name, "log": str(log), "name_of_it": name, **more}

    settings = config(broker.port, plugins=[entry("kept"), entry("changed")])
    path = {"PYTHONPATH": str(installed)}
    with GatewaySidecar(settings, env=path) as sidecar:
        core = sidecar.processes()["kct-core"]
        log.unlink()
        settings["plugins"] = [entry("kept"), entry("changed", queue={"max_items": 7}), entry("new")]
        reloaded(sidecar, APPLIED)
        wait_until(
            lambda: plugins(sidecar) == dict.fromkeys(("kept", "changed", "new"), "running"),
            timeout_s=TIMEOUT_S,
            what="the plugins",
        )
        assert log.read_text().splitlines() == [f"{core} changed", f"{core} new"]


@pytest.mark.full
def test_a_plugin_may_take_the_port_that_another_part_gives_up(broker: ScriptedBroker) -> None:
    scraped, other = f"{LOOPBACK}:{free_port()}", listener("OTHER", broker.port)
    settings = config(broker.port, plugins=[{"type": "prometheus", "bind": scraped}])
    settings["listeners"].append(other)
    with GatewaySidecar(settings) as sidecar:
        settings["listeners"].remove(other)
        # One that has changed takes its own port again, and one is new on the listener's port.
        settings["plugins"] = [
            {"type": "prometheus", "bind": scraped, "max_series": 7},
            {"type": "prometheus", "bind": other["bind"]},
        ]
        reloaded(sidecar, APPLIED)
        wait_until(
            lambda: plugins(sidecar) == {"prometheus": "running", "prometheus-2": "running"},
            timeout_s=TIMEOUT_S,
            what="both plugins",
        )


def kill(sidecar: GatewaySidecar, process: str) -> None:
    """Kill a process, and wait until another one has its place."""
    killed = sidecar.processes()[process]
    os.kill(killed, signal.SIGKILL)
    wait_until(
        lambda: sidecar.processes().get(process) not in {None, killed},
        timeout_s=TIMEOUT_S,
        what=f"another {process}",
    )
    wait_until(sidecar.is_ready, timeout_s=TIMEOUT_S, what="readiness")


@pytest.mark.full
def test_restarts_are_counted(broker: ScriptedBroker) -> None:
    with GatewaySidecar(config(broker.port)) as sidecar:
        assert sidecar.series("process_restarts_total") == {
            (("process", "supervisor"),): 0,
            (("process", "core"),): 0,
            (("process", "relay"),): 0,
        }
        kill(sidecar, "kct-relay-1")
        kill(sidecar, "kct-core")
        assert sidecar.series("process_restarts_total") == {
            (("process", "supervisor"),): 0,
            (("process", "core"),): 1,
            (("process", "relay"),): 1,
        }
