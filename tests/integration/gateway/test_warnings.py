"""What should be corrected is in /readyz, the metrics and, once, the log; status has all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.gateway.support import TIMEOUT_S, GatewaySidecar, config
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import ScriptedBroker

RULES = Path(__file__).parents[3] / "deploy/helm/kafka-client-telemetry/alerts/prometheus-rules.yaml"
EVENT = "something should be corrected"


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


def warnings(sidecar: GatewaySidecar) -> list[str]:
    found: list[str] = sidecar.http.get("/readyz").json().get("warnings", [])
    return found


@pytest.mark.full
def test_a_receiver_without_subscriptions_says_so(broker: ScriptedBroker) -> None:
    with GatewaySidecar(config(broker.port)) as sidecar:
        for _ in range(3):
            (warning,) = warnings(sidecar)
        assert warning.startswith("there is no subscription, so clients push nothing: put one")
        assert sidecar.value("warnings", kind="subscription") == 1
        (found,) = re.findall(r'kafka_telemetry_warnings\{kind=~"([^"]+)"\}', RULES.read_text())
        kinds = {dict(labels)["kind"] for labels in sidecar.series("warnings")}
        assert set(found.split("|")) < kinds, "the alert names kinds that there are"
        (line,) = sidecar.awaited(EVENT)
        assert (line["of"], line["problem"], line["level"]) == ("subscription", warning, "warning")

        sidecar.put_subscription("all", ["*"], 60_000)
        assert warnings(sidecar) == []
        assert sidecar.value("warnings", kind="subscription") == 0
        assert sidecar.http.delete("/v1/subscriptions/all").status_code == 204
        assert len(warnings(sidecar)) == 1
        assert len(sidecar.awaited(EVENT, 2)) == 2


def test_status_shows_the_processes(broker: ScriptedBroker) -> None:
    with GatewaySidecar(config(broker.port, gateway={"relays": 2})) as sidecar:

        def status() -> dict[str, object]:
            found: dict[str, object] = sidecar.http.get("/v1/status").json()
            return found

        wait_until(
            lambda: status()["relays"] == {"running": 2, "expected": 2},
            timeout_s=TIMEOUT_S,
            what="two relays",
        )
        shown = status()
        assert shown["problem"] is None
        assert shown["warnings"] == warnings(sidecar)
        assert isinstance(shown["restarts"], dict)
        assert {"core": 0, "relay": 0}.items() <= shown["restarts"].items()
        processes = shown["processes"]
        assert isinstance(processes, list)
        assert [process["name"] for process in processes] == ["core", "relay-1", "relay-2"]
        assert all(process["resident_bytes"] > 1_000_000 for process in processes)
        listeners = shown["listeners"]
        assert isinstance(listeners, list)
        assert [listener["name"] for listener in listeners] == ["CLIENT"]
