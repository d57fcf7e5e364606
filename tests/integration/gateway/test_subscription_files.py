"""Subscriptions from a folder of files: applied, followed, and refused with every mistake."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateway.support import (
    TIMEOUT_S,
    GatewaySidecar,
    Raw,
    config,
    get_subscriptions,
)
from tests.testbed.ports import free_port
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import ScriptedBroker


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "subscriptions.d"
    path.mkdir()
    return path


def from_files(broker: ScriptedBroker, folder: Path) -> dict[str, Any]:
    return config(broker.port, subscriptions={"store": "file", "path": str(folder)})


def names(sidecar: GatewaySidecar) -> list[str]:
    return [item["name"] for item in sidecar.http.get("/v1/subscriptions").json()["items"]]


def become(sidecar: GatewaySidecar, expected: list[str]) -> None:
    wait_until(lambda: names(sidecar) == expected, timeout_s=TIMEOUT_S, what=f"subscriptions {expected}")


def asked_for(sidecar: GatewaySidecar, prefix: bytes) -> bool:
    """Whether a new client is asked for metrics with this prefix."""
    with Raw(sidecar.port()) as raw:
        return prefix in raw.exchange(get_subscriptions())


@pytest.mark.full
def test_clients_are_asked_for_what_the_files_say(broker: ScriptedBroker, folder: Path) -> None:
    (folder / "first.yaml").write_text("metrics: [first.]\n")
    with GatewaySidecar(from_files(broker, folder)) as sidecar:
        assert names(sidecar) == ["first"]
        assert asked_for(sidecar, b"first.")

        (folder / "second.yaml").write_text("metrics: [second.]\n")
        become(sidecar, ["first", "second"])
        assert asked_for(sidecar, b"second.")

        # A mistake in one file keeps the change in another from being applied.
        (folder / "first.yaml").write_text("metrics: [changed.]\n")
        (folder / "second.yaml").write_text("metrics: ['not a prefix']\ninterval_ms: 1\n")
        wait_until(lambda: sidecar.value("subscriptions_stale") == 1, timeout_s=TIMEOUT_S, what="a mistake")
        (line,) = sidecar.awaited("subscriptions not applied, the last good ones stay")
        assert [mistake.split(": ")[:2] for mistake in line["mistakes"]] == [
            ["second.yaml:1:11", "metrics[0]"],
            ["second.yaml:2:1", "interval_ms"],
        ]
        assert sidecar.value("subscription_store_failures_total") == 1
        ready = sidecar.http.get("/readyz")
        assert ready.status_code == 200
        assert ready.json()["warnings"] == [
            f"the last known subscriptions stay in force: {folder}: 2 mistakes in its files; the log has them"
        ]
        assert asked_for(sidecar, b"first.")

        # REST names the file to change.
        refused = sidecar.http.put("/v1/subscriptions/second", json={"metrics": []})
        assert refused.status_code == 409
        assert f"{folder}/second.yaml: " in refused.json()["detail"]
        assert sidecar.http.delete("/v1/subscriptions/second").status_code == 409

        (folder / "second.yaml").unlink()
        become(sidecar, ["first"])
        assert asked_for(sidecar, b"changed.")
        assert sidecar.value("subscriptions_stale") == 0
        assert "warnings" not in sidecar.http.get("/readyz").json()

        sidecar.signal(signal.SIGTERM)
        assert sidecar.wait() == 0


@pytest.mark.full
def test_a_bad_folder_does_not_keep_traffic_waiting(broker: ScriptedBroker, folder: Path) -> None:
    with GatewaySidecar(from_files(broker, folder / "absent")) as sidecar:
        assert names(sidecar) == []
        assert sidecar.value("subscriptions_stale") == 1
        (folder / "absent").mkdir()
        (folder / "absent" / "a.yaml").write_text("metrics: [a.]\n")
        become(sidecar, ["a"])
        assert asked_for(sidecar, b"a.")


@pytest.mark.full
def test_another_store_is_applied_without_a_restart(broker: ScriptedBroker, folder: Path) -> None:
    settings = config(broker.port)
    with GatewaySidecar(settings) as sidecar:
        sidecar.put_subscription("rest", ["rest."], 1000)
        (folder / "a.yaml").write_text("metrics: 5\n")
        settings["subscriptions"] = {"store": "file", "path": str(folder)}
        sidecar.reload()
        sidecar.wait_for_log("configuration not reloaded")
        assert (
            "a.yaml:1:1: metrics: 5 is not a list"
            in sidecar.logged("configuration not reloaded")[0]["problem"]
        )
        assert names(sidecar) == ["rest"]

        settings["subscriptions"]["accept_loss"] = True
        (folder / "a.yaml").write_text("metrics: [a.]\n")
        sidecar.reload()
        become(sidecar, ["a"])
        (folder / "b.yaml").write_text("metrics: [b.]\n")
        become(sidecar, ["a", "b"])

        settings["subscriptions"] = {"accept_loss": True}
        sidecar.reload()
        become(sidecar, ["rest"])
        sidecar.put_subscription("rest", ["rest."], 2000)


@pytest.mark.full
def test_a_reload_ends_no_subscription_by_another_store(broker: ScriptedBroker, folder: Path) -> None:
    settings = config(broker.port)
    with GatewaySidecar(settings) as sidecar:
        for name in ("same", "missing", "other"):
            sidecar.put_subscription(name, [f"{name}."], 1000)
        (folder / "same.yaml").write_text("{metrics: [same.], interval_ms: 1000}\n")
        (folder / "other.yaml").write_text("{metrics: [other.], interval_ms: 2000}\n")
        settings["subscriptions"] = {"store": "file", "path": str(folder)}
        sidecar.reload()
        (line,) = sidecar.awaited("configuration not reloaded")
        assert line["problem"].startswith(
            "receiver.yaml: subscriptions: the new store lacks 1 subscription ('missing') and has "
            "1 subscription ('other') in another form; copy them with `kafka-telemetry subscriptions copy"
        )
        assert names(sidecar) == ["missing", "other", "same"]

        for name in ("missing", "other"):
            (folder / f"{name}.yaml").write_text(f"{{metrics: [{name}.], interval_ms: 1000}}\n")
        sidecar.reload()
        sidecar.awaited("configuration reloaded")
        assert sidecar.http.put("/v1/subscriptions/same", json={"metrics": []}).status_code == 409


@pytest.mark.full
def test_a_store_that_cannot_be_read_does_not_replace_another(broker: ScriptedBroker) -> None:
    settings = config(broker.port)
    with GatewaySidecar(settings) as sidecar:
        sidecar.put_subscription("mine", ["mine."], 1000)
        nowhere = {"bootstrap_servers": f"127.0.0.1:{free_port()}"}
        settings["subscriptions"] = {"store": "kafka", "kafka": nowhere}
        sidecar.reload()
        (line,) = sidecar.awaited("configuration not reloaded")
        assert "subscriptions: the new store can't be read, so it may lack subscriptions: " in line["problem"]
        assert asked_for(sidecar, b"mine.")
