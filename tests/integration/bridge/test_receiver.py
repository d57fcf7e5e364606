"""Brokers with the bridge, and the whole receiver behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from receiver.doctor.bridge import bridge_findings
from receiver.doctor.findings import Finding, State
from receiver.settings.model import ReceiverSettings
from tests.integration.bridge.support import EXPORTER, properties
from tests.testbed import jvm
from tests.testbed.broker import KafkaBroker, Listener
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.clients import JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector, ExportedMetric
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import wait_until
from tests.testbed.security import Login, Security
from tests.testbed.sidecar import Sidecar, config_for

_ALICE = Security(login=Login(mechanism="PLAIN", user="alice", password="alice-secret"))


def _bridge(port: int, token_file: Path) -> dict[str, Any]:
    return {"bind": f"{LOOPBACK}:{port}", "token": {"file": str(token_file)}}


def _alone(port: int, token_file: Path) -> dict[str, Any]:
    """The configuration of a receiver that lets in bridges alone."""
    return {
        "bridge": _bridge(port, token_file),
        "subscriptions": {"store": "sqlite", "path": "./subscriptions.db"},
        "rest": {"bind": f"{LOOPBACK}:{free_port()}"},
        "plugins": [{"type": "console"}],
    }


@pytest.fixture(scope="module")
def port() -> int:
    """Where the receiver listens for bridges."""
    return free_port()


@pytest.fixture(scope="module")
def bridged(jar: Path, token_file: Path, port: int) -> Iterator[KafkaBroker]:
    """A broker with two listeners in SASL: clients of GATED come by the sidecar."""
    direct = Listener(name="DIRECT", security_protocol="SASL_PLAINTEXT")
    gated = Listener(name="GATED", security_protocol="SASL_PLAINTEXT", advertised_port=free_port())
    with KafkaBroker(
        plugins=[jar], listeners=[direct, gated], properties=properties(token_file, port)
    ) as broker:
        broker.alter_client_metrics("all", ["*"], 500)
        broker.create_topic("bridged")
        yield broker


def _samples(receiver: Sidecar, name: str, label: str) -> Mapping[str, float]:
    """The samples of a metric of broker 1 by the value of another label."""
    families = text_string_to_metric_families(receiver.http.get("/metrics").text)
    samples = (sample for family in families for sample in family.samples)
    return {
        item.labels[label]: item.value
        for item in samples
        if item.name == name and item.labels["broker"] == "1"
    }


def _events(receiver: Sidecar) -> Mapping[str, float]:
    return _samples(receiver, "kafka_telemetry_bridge_events_total", "event")


def _labels(exports: Sequence[ExportedMetric], client_id: str) -> dict[str, Any] | None:
    found = [export.resource for export in exports if export.resource.get("client_id") == client_id]
    return dict(found[0]) if found else None


@pytest.mark.full
def test_labels_are_those_of_the_gateway_and_the_way_is_shown(
    bridged: KafkaBroker, collector: Collector, token_file: Path, port: int
) -> None:
    config = config_for(bridged, collector=collector) | {"bridge": _bridge(port, token_file)}
    assert [listener["name"] for listener in config["listeners"]] == ["GATED"]
    with Sidecar(config) as receiver:
        receiver.put_subscription("all", ["*"], 500)
        with (
            JavaClient(
                Mode.PRODUCER,
                bootstrap=f"{LOOPBACK}:{bridged.port('DIRECT')}",
                topic="bridged",
                client_id="direct",
                security=_ALICE,
            ),
            JavaClient(
                Mode.PRODUCER,
                bootstrap=receiver.bootstrap("GATED"),
                topic="bridged",
                client_id="gated",
                security=_ALICE,
            ),
        ):
            collector.wait_for(lambda exports: all(_labels(exports, item) for item in ("direct", "gated")))
            direct, gated = (_labels(collector.exports(), item) for item in ("direct", "gated"))
            clients = {item["client_id"]: item for item in receiver.http.get("/v1/clients").json()["items"]}
    assert direct is not None
    assert gated is not None
    own = {"client_id", "client_instance_id", "client_source_port", "listener"}
    assert gated.pop("sasl_mechanism") == "PLAIN"  # no broker tells a plugin of it
    assert {key: value for key, value in direct.items() if key not in own} == {
        key: value for key, value in gated.items() if key not in own
    }
    assert direct.keys() == gated.keys()
    assert (direct["listener"], direct["principal"]) == ("DIRECT", "User:alice")
    assert {name: client["via"] for name, client in clients.items()} == {
        "direct": "bridge",
        "gated": "gateway",
    }
    assert clients["direct"]["subscription_id"] is None
    assert clients["direct"]["push_interval_ms"] == 500
    assert clients["gated"]["requested_metrics"] == ["*"]


def test_nothing_is_lost_while_the_receiver_is_killed_restarted_and_stopped(
    bridged: KafkaBroker, token_file: Path, port: int
) -> None:
    client = LibrdkafkaClient(
        Mode.PRODUCER, bootstrap=bridged.bootstrap, topic="bridged", client_id="through-restarts"
    )
    with Sidecar(_alone(port, token_file)) as receiver, client:
        _wait_for_pushes(receiver, 2)
        receiver.kill()
        receiver.start()
        _wait_for_pushes(receiver, 2)
        assert receiver.terminate() == 0
        receiver.start()
        _wait_for_pushes(receiver, 2)
        receiver.reload()
        wait_until(lambda: "configuration reloaded" in receiver.log_text(), timeout_s=60, what="the reload")
        client.stop()
        wait_until(lambda: _is_settled(receiver), timeout_s=60, what="all pushes acknowledged")
        dropped = {event: count for event, count in _events(receiver).items() if "dropped" in event}
        assert dropped == {}
        assert _events(receiver).get("refused", 0) == 0
        joined = [object_ for object_ in receiver.logged_objects() if object_["event"] == "bridge joined"]
        assert len(joined) == 3  # a reload that changes nothing of it keeps the connection


def _wait_for_pushes(receiver: Sidecar, count: int) -> None:
    wait_until(
        lambda: (
            _samples(receiver, "kafka_telemetry_bridge_pushes_total", "result").get("accepted", 0) >= count
        ),
        timeout_s=60,
        what=f"{count} pushes by the bridge",
    )


def _is_settled(receiver: Sidecar) -> bool:
    """Whether the bridge says that all it has received was acknowledged."""
    events = _events(receiver)
    return 0 < events.get("received", 0) == events.get("acknowledged", 0)


@pytest.mark.full
def test_tls_with_the_receivers_name_and_authority(jar: Path, token_file: Path, tmp_path: Path) -> None:
    port = free_port()
    certificate = CertificateAuthority().issue().write(tmp_path, "server")
    stranger = CertificateAuthority().issue().write(tmp_path, "stranger")
    config = _alone(port, token_file)
    config["bridge"]["tls"] = {"cert_file": str(certificate.chain), "key_file": str(certificate.key)}
    settings = properties(token_file, port, tls="true", tls_ca_file=str(stranger.ca))
    settings["kafka.telemetry.bridge.receivers"] = f"localhost:{port}"
    with Sidecar(config) as receiver, KafkaBroker(plugins=[jar], properties=settings) as broker:
        broker.alter_client_metrics("all", ["*"], 500)
        broker.wait_for_log("telemetry receiver localhost/127.0.0.1")
        assert "PKIX path" in broker.log_text()
        broker.alter_properties({"kafka.telemetry.bridge.tls.ca.file": str(certificate.ca)})
        with LibrdkafkaClient(
            Mode.PRODUCER, bootstrap=broker.bootstrap, topic="encrypted", client_id="encrypted"
        ):
            _wait_for_pushes(receiver, 2)
        assert 'bridge_refusals_total{reason="tls"}' in receiver.http.get("/metrics").text


def _clients(receiver: Sidecar) -> set[str]:
    return {client["client_id"] for client in receiver.http.get("/v1/clients").json()["items"]}


@pytest.mark.full
def test_receivers_by_the_addresses_of_one_name(jar: Path, token_file: Path, tmp_path: Path) -> None:
    name, port, addresses = "receivers.example", free_port(), (LOOPBACK, "127.0.0.2")
    certificate = CertificateAuthority().issue(dns_names=[name]).write(tmp_path, "server")
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"{address} {name}\n" for address in addresses) + "127.0.0.1 localhost\n")
    settings = properties(token_file, tls="true", tls_ca_file=str(certificate.ca))
    settings["kafka.telemetry.bridge.receivers"] = f"{name}:{port}"
    with ExitStack() as stack:
        receivers = []
        for address in addresses:
            config = _alone(port, token_file)
            config["bridge"]["bind"] = f"{address}:{port}"
            config["bridge"]["tls"] = {"cert_file": str(certificate.chain), "key_file": str(certificate.key)}
            receivers.append(stack.enter_context(Sidecar(config)))
        flags = (*jvm.QUICK_START, f"-Djdk.net.hosts.file={hosts}")
        broker = stack.enter_context(KafkaBroker(plugins=[jar], properties=settings, jvm_flags=flags))
        broker.alter_client_metrics("all", ["*"], 500)
        for receiver in receivers:
            wait_until(lambda: "bridge joined" in receiver.log_text(), timeout_s=60, what="the bridge")  # noqa: B023
        first, second = receivers
        names: set[str] = set()
        # Ids of clients are random, and say which receiver a client has.
        while len(names) < 3 or not (_clients(first) and _clients(second)):
            names.add(f"client-{len(names)}")
            client = LibrdkafkaClient(
                Mode.PRODUCER, bootstrap=broker.bootstrap, topic="named", client_id=f"client-{len(names) - 1}"
            )
            stack.enter_context(client)
            wait_until(lambda: _clients(first) | _clients(second) == names, timeout_s=90, what="a client")
        _wait_for_pushes(first, 10)
        _wait_for_pushes(second, 10)
        assert _clients(first).isdisjoint(_clients(second))
        # The name loses an address: its clients have the other receiver, and nothing is lost.
        hosts.write_text(f"{LOOPBACK} {name}\n127.0.0.1 localhost\n")
        wait_until(lambda: "bridge left" in second.log_text(), timeout_s=120, what="the end of a link")
        wait_until(lambda: _clients(first) == names, timeout_s=90, what="all clients at one receiver")
        assert {event: count for event, count in _events(first).items() if "dropped" in event} == {}


@pytest.mark.full
def test_doctor_reads_the_brokers_reporters(bridged: KafkaBroker) -> None:
    settings = ReceiverSettings.model_validate(
        {
            "bridge": {"bind": "127.0.0.1:9714", "token": {"file": "token"}},
            "subscriptions": {"store": "kafka", "kafka": {"bootstrap_servers": bridged.internal_bootstrap}},
        }
    )

    findings: list[Finding] = []

    def has_answered() -> bool:
        findings[:] = asyncio.run(bridge_findings(settings))
        return all(finding.state is not State.FAILED for finding in findings)

    wait_until(has_answered, timeout_s=300, what="an answer of the broker")
    (found,) = findings
    assert (found.state, found.subject) == (State.OK, "metric.reporters of broker 1")
    assert EXPORTER in found.seen
