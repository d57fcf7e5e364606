"""Three brokers, three sidecars, one truth: the cluster's CLIENT_METRICS resources."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from receiver.doctor import Options, examine
from receiver.wire import api_keys
from receiver.wire.altered_configs import AlteredConfig, Operation
from tests.integration.gateway.support import GatewaySidecar, Raw, get_subscriptions
from tests.integration.test_config_requests import Caller
from tests.testbed import kafka_tools
from tests.testbed.cluster import KafkaCluster
from tests.testbed.older_broker import OlderBroker
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import wait_until

pytestmark = pytest.mark.full

_WITHIN_S = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as brokers:
        yield brokers


def _config(cluster: KafkaCluster, node_id: int) -> dict[str, Any]:
    upstream = cluster.brokers[node_id].bootstrap
    return {
        "broker": {"id": node_id},
        "listeners": [{"name": "CLIENT", "bind": f"{LOOPBACK}:{free_port()}", "upstream": upstream}],
        "subscriptions": {"store": "kafka", "kafka": {"bootstrap_servers": cluster.bootstrap}},
        "rest": {"bind": f"{LOOPBACK}:{free_port()}"},
        "plugins": [{"type": "console"}],
    }


@pytest.fixture(scope="module")
def sidecars(cluster: KafkaCluster) -> Iterator[list[GatewaySidecar]]:
    with contextlib.ExitStack() as running:
        yield [
            running.enter_context(GatewaySidecar(_config(cluster, node_id), wait_for_broker=False))
            for node_id in cluster.brokers
        ]


@pytest.fixture
def clean(sidecars: list[GatewaySidecar], cluster: KafkaCluster) -> Iterator[list[GatewaySidecar]]:
    """The sidecars, without a subscription before and after the test."""
    yield sidecars
    for name in names(sidecars[0]):
        cluster.brokers[1].delete_client_metrics(name)
    everywhere(sidecars, lambda one: names(one) == [], "no subscriptions")


def subscriptions(sidecar: GatewaySidecar) -> dict[str, dict[str, Any]]:
    items = sidecar.http.get("/v1/subscriptions", params={"limit": 1000}).json()["items"]
    return {item["name"]: item for item in items}


def names(sidecar: GatewaySidecar) -> list[str]:
    return sorted(subscriptions(sidecar))


def everywhere(sidecars: list[GatewaySidecar], holds: Callable[[GatewaySidecar], bool], what: str) -> None:
    for sidecar in sidecars:
        wait_until(lambda one=sidecar: holds(one), timeout_s=_WITHIN_S, what=what)  # type: ignore[misc]


def asked_for(sidecar: GatewaySidecar) -> bytes:
    """Return what a new client is answered."""
    with Raw(sidecar.port()) as raw:
        return raw.exchange(get_subscriptions())


def test_what_kafkas_tool_writes_reaches_every_sidecar(
    clean: list[GatewaySidecar], cluster: KafkaCluster
) -> None:
    tool = cluster.bootstrap
    kafka_tools.client_metrics(
        tool, "--alter", "--name", "tool", "--metrics", "org.apache.kafka.producer.,x.", "--interval", "5000"
    )
    everywhere(clean, lambda one: names(one) == ["tool"], "the tool's subscription")
    for sidecar in clean:
        assert subscriptions(sidecar)["tool"]["metrics"] == ["org.apache.kafka.producer.", "x."]
        assert subscriptions(sidecar)["tool"]["interval_ms"] == 5000
        assert b"org.apache.kafka.producer." in asked_for(sidecar)
    printed = kafka_tools.client_metrics(tool, "--alter", "--generate-name", "--metrics", "*")
    everywhere(clean, lambda one: len(names(one)) == 2, "a generated name")
    (generated,) = set(names(clean[0])) - {"tool"}
    assert generated in printed
    kafka_tools.client_metrics(tool, "--delete", "--name", generated)
    everywhere(clean, lambda one: names(one) == ["tool"], "its deletion")
    kafka_tools.configs(
        tool, "--alter", "--entity-type", "client-metrics", "--entity-name", "tool", "--add-config",
        "interval.ms=700",
    )  # fmt: skip
    everywhere(clean, lambda one: subscriptions(one)["tool"]["interval_ms"] == 700, "the other tool's edit")


def test_kafkas_tools_see_what_rest_writes(clean: list[GatewaySidecar], cluster: KafkaCluster) -> None:
    first, second, _ = clean
    body = {
        "metrics": ["x.", "y."],
        "interval_ms": 2000,
        # Kafka has no way to say the first.
        "match": {"client_id": "orders-[0-9]{1,3}", "client_software_name": "apache-kafka-java"},
    }
    first.http.put("/v1/subscriptions/rest", json=body).raise_for_status()
    assert names(first) == ["rest"]
    everywhere(clean, lambda one: subscriptions(one).get("rest", {}).get("match") == body["match"], "the PUT")
    assert "rest" in kafka_tools.client_metrics(cluster.bootstrap, "--list")
    shown = kafka_tools.client_metrics(cluster.bootstrap, "--describe", "--name", "rest")
    for text in ("metrics=x.,y.", "interval.ms=2000", "match=client_software_name=apache-kafka-java"):
        assert text in shown

    # Kafka's tool changes what it knows, and the rest stays.
    kafka_tools.client_metrics(cluster.bootstrap, "--alter", "--name", "rest", "--metrics", "z.")
    everywhere(clean, lambda one: subscriptions(one)["rest"]["metrics"] == ["z."], "the tool's edit")
    assert subscriptions(second)["rest"]["match"] == body["match"]

    # A subscription that the tool deletes takes the rest with it.
    kafka_tools.client_metrics(cluster.bootstrap, "--delete", "--name", "rest")
    everywhere(clean, lambda one: names(one) == [], "the deletion")
    second.http.put("/v1/subscriptions/rest", json={"metrics": ["w."]}).raise_for_status()
    everywhere(clean, lambda one: "rest" in subscriptions(one), "another PUT")
    assert [subscriptions(item)["rest"]["match"] for item in clean] == [{}, {}, {}]
    second.http.delete("/v1/subscriptions/rest").raise_for_status()
    assert names(second) == []
    everywhere(clean, lambda one: names(one) == [], "the DELETE")


def test_a_sidecar_that_was_down_catches_up(clean: list[GatewaySidecar], cluster: KafkaCluster) -> None:
    *others, third = clean
    third.put_subscription("before", ["x."], 1000)
    everywhere(others, lambda one: names(one) == ["before"], "the PUT")
    third.kill()
    others[0].put_subscription("meanwhile", ["y."], 1000)
    cluster.brokers[1].delete_client_metrics("before")
    third.start()
    everywhere(clean, lambda one: names(one) == ["meanwhile"], "both changes")


def test_without_brokers_the_last_known_subscriptions_stay_in_force(
    clean: list[GatewaySidecar], cluster: KafkaCluster
) -> None:
    first, second, _ = clean
    first.put_subscription("known", ["x."], 1000)
    everywhere(clean, lambda one: names(one) == ["known"], "the PUT")
    for broker in cluster.brokers.values():
        broker.pause()
    try:
        everywhere(clean, lambda one: one.value("subscriptions_stale") == 1, "that it is said")
        assert [names(item) for item in clean] == [["known"]] * 3
        refused = first.http.put("/v1/subscriptions/other", json={"metrics": []})
        assert refused.status_code == 503
        assert "nothing has changed" in refused.json()["detail"]
        assert second.awaited("subscriptions not read, the last known ones stay")
        assert second.value("subscription_store_failures_total") >= 1

        # The local copy is in force after a restart, too.
        second.kill()
        second.start()
        assert names(second) == ["known"]
        assert second.value("subscriptions_stale") == 1
    finally:
        for broker in cluster.brokers.values():
            broker.resume()
    everywhere(clean, lambda one: one.value("subscriptions_stale") == 0, "the brokers' return")
    second.put_subscription("other", ["y."], 1000)
    everywhere(clean, lambda one: names(one) == ["known", "other"], "a PUT afterwards")


def _older(
    cluster: KafkaCluster, node_id: int, folder: Path, running: contextlib.ExitStack
) -> GatewaySidecar:
    """A sidecar with the store sqlite, in front of a broker that seems to keep no resources."""
    old = free_port()
    without = frozenset({api_keys.LIST_CONFIG_RESOURCES})
    running.enter_context(OlderBroker(old, cluster.brokers[node_id].client_port, without))
    config = _config(cluster, node_id)
    config["listeners"][0]["upstream"] = f"{LOOPBACK}:{old}"
    config["subscriptions"] = {"store": "sqlite", "path": str(folder / f"{node_id}.db")}
    return running.enter_context(GatewaySidecar(config))


def _scattered(sidecar: GatewaySidecar) -> list[str]:
    return [warning for warning in sidecar.warnings() if "kafka-client-metrics.sh" in warning]


def _logged(sidecar: GatewaySidecar) -> list[dict[str, Any]]:
    lines = sidecar.awaited("something should be corrected")
    return [line for line in lines if line["of"] == "scattered"]


def test_sidecars_on_sqlite_before_older_brokers_warn_that_they_scatter(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as running:
        sidecars = [_older(cluster, node_id, tmp_path, running) for node_id in (1, 2)]
        for sidecar in sidecars:
            sidecar.put_subscription("all", ["a."], 60_000)
            warns = partial(_scattered, sidecar)
            wait_until(lambda warns=warns: len(warns()) == 1, timeout_s=_WITHIN_S, what="its warning")  # type: ignore[misc]
            (warning,) = warns()
            assert "the cluster has brokers that are not behind this sidecar" in warning
            assert sidecar.value("warnings", kind="scattered") == 1
            status = sidecar.http.get("/v1/status").json()
            assert status["subscriptions"]["scattered"] == warning
            assert [line["problem"] for line in _logged(sidecar)] == [warning]
            file = tmp_path / "receiver.yaml"
            file.write_text(yaml.safe_dump(dict(sidecar.config)))
            report = asyncio.run(examine(file, {}, Options()))
            (finding,) = [found for found in report.findings if found.check == "scattered"]
            assert (str(finding.state), finding.seen in warning) == ("warning", True)
            assert str(finding.do).startswith("set subscriptions.store to kafka")

        # What the warning is about: the change of a tool is in one of them.
        caller = Caller(sidecars[0].port())
        change = AlteredConfig("metrics", "b.", Operation.SET)
        (result,) = caller.alter(api_keys.INCREMENTAL_ALTER_CONFIGS, 1, {"tool": [change]})
        caller.close()
        assert result.error_code == 0
        assert [names(sidecar) for sidecar in sidecars] == [["all", "tool"], ["all"]]
