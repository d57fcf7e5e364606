"""The bridge in a real broker: what it hands on, and that nothing it meets harms the broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.wire.uuid import uuid_to_text
from tests.integration.bridge.peer import Peer
from tests.integration.bridge.support import entry_for, properties
from tests.testbed import parts
from tests.testbed.broker import KafkaBroker, Listener
from tests.testbed.clients import FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.process import wait_until
from tests.testbed.security import Login, Security

_SASL = Listener(name="SASL", security_protocol="SASL_PLAINTEXT")
_ALICE = Security(login=Login(mechanism="PLAIN", user="alice", password="alice-secret"))


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with Peer() as started:
        yield started


@pytest.fixture(scope="module")
def bridged(jar: Path, token_file: Path, peer: Peer) -> Iterator[KafkaBroker]:
    """A broker of the newest release, whose bridge leads to the peer."""
    with KafkaBroker(
        listeners=[_SASL], plugins=[jar], properties=properties(token_file, peer.port)
    ) as broker:
        broker.alter_client_metrics("all", ["*"], 500)
        yield broker


def _check_context(broker: KafkaBroker, peer: Peer, *, has_port: bool, has_interval: bool) -> None:
    """Have a Java producer with a login push, and check everything that its pushes say."""
    bootstrap = f"127.0.0.1:{broker.port('SASL')}"
    client_id = f"java-{broker.node_id}"
    with JavaClient(
        Mode.PRODUCER, bootstrap=bootstrap, topic="bridged", client_id=client_id, security=_ALICE
    ) as client:
        first, *_ = peer.wait_for(client_id, 2)
        client.wait_for_records(1)
    assert first.principal == "User:alice"
    assert first.listener == "SASL"
    assert first.security_protocol == "SASL_PLAINTEXT"
    assert first.source_address == "127.0.0.1"
    assert first.client_software_name == "apache-kafka-java"
    assert first.client_software_version == parts.KAFKA_VERSION
    assert (first.source_port >= 1024) is has_port
    assert first.interval_ms == (500 if has_interval else -1)
    assert f":{broker.port('SASL')}-" in first.connection_id
    assert abs(first.received_at_ns - time.time_ns()) < 600e9
    assert len(uuid_to_text(first.client_instance_id)) == 22
    hello = peer.hellos[-1]
    assert (hello.node_id, hello.cluster_id) == (broker.node_id, broker.cluster_id)
    assert hello.software_version


def test_a_push_arrives_with_its_context(bridged: KafkaBroker, peer: Peer) -> None:
    _check_context(bridged, peer, has_port=True, has_interval=True)
    assert not [push for push in peer.pushes if bytes(push.metrics[:1]) != b"\x0a"]


@pytest.mark.full
def test_librdkafka_says_its_last_push(bridged: KafkaBroker, peer: Peer) -> None:
    with LibrdkafkaClient(
        Mode.PRODUCER, bootstrap=bridged.bootstrap, topic="bridged", client_id="rdkafka-é"
    ) as client:
        peer.wait_for("rdkafka-é", 2)
        client.wait_for_records(1)
    wait_until(
        lambda: any(push.terminating for push in peer.of("rdkafka-é")), timeout_s=60, what="the last push"
    )
    assert {push.client_software_name for push in peer.of("rdkafka-é")} == {"confluent-kafka-python"}
    assert {push.principal for push in peer.of("rdkafka-é")} == {"User:ANONYMOUS"}


@pytest.mark.full
def test_franz_go_pushes_by_the_bridge(bridged: KafkaBroker, peer: Peer) -> None:
    with FranzClient(
        Mode.PRODUCER, bootstrap=bridged.bootstrap, topic="bridged", client_id="franz"
    ) as client:
        first, *_ = peer.wait_for("franz", 2)
        client.wait_for_records(1)
    assert first.client_software_name == "kgo"
    assert first.principal == "User:ANONYMOUS"
    assert first.interval_ms == 500


@pytest.mark.full
def test_a_unix_socket(jar: Path, token_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "bridge.sock"
    settings = properties(token_file) | {"kafka.telemetry.bridge.receivers": f"unix:{path}"}
    with Peer(path=path) as first, KafkaBroker(plugins=[jar], properties=settings) as broker:
        broker.alter_client_metrics("all", ["*"], 500)
        with LibrdkafkaClient(Mode.PRODUCER, bootstrap=broker.bootstrap, topic="bridged", client_id="unix"):
            first.wait_for("unix", 2)
            # A receiver that hangs holds nothing up, and what it has not acknowledged comes again.
            first.answers = False
            taken = first.count
            wait_until(lambda: first.count > taken, timeout_s=60, what="a push without an answer")
            first.close()
            with Peer(path=path) as second:
                second.wait_for("unix", 3)
                both = {push.sequence for push in [*first.pushes, *second.pushes]}
                assert both == set(range(1, max(both) + 1))
        broker.stop()


@pytest.mark.full
@pytest.mark.parametrize("version", parts.OLDER_KAFKA_VERSIONS)
def test_every_interface_of_kafka(version: str, jar: Path, token_file: Path) -> None:
    entry = entry_for(version)
    with (
        Peer() as peer,
        KafkaBroker(
            version=version,
            node_id=3,
            listeners=[_SASL],
            plugins=[jar],
            properties=properties(token_file, peer.port, entry=entry),
        ) as broker,
    ):
        broker.alter_client_metrics("all", ["*"], 500)
        is_old = version.startswith("3.7")
        _check_context(broker, peer, has_port=not is_old, has_interval=entry.endswith("Exporter"))
        wait_until(lambda: peer.statistics.get("acknowledged", 0) > 0, timeout_s=60, what="statistics")
        codecs = {bytes(push.metrics[:1]) for push in peer.of("java-3")}
        assert (codecs == {b"\x0a"}) is not is_old
        broker.stop()
