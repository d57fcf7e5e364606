"""What a broker has of its own beside the bridge: MBeans, and metrics of each client instance."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from benchmarks.captured import LIBRDKAFKA_PRODUCER
from benchmarks.load_generator import load, push_flags
from benchmarks.processes import allow_files
from tests.integration.bridge.beans import Jmx
from tests.integration.bridge.peer import Peer
from tests.integration.bridge.support import EXPORTER, JMX, properties
from tests.testbed.broker import KafkaBroker
from tests.testbed.process import wait_until

pytestmark = pytest.mark.full

_BRIDGE: Final = "kafka.telemetry.bridge:type=Bridge"
#: What docs/bridge.md says to leave out.
_OF_CLIENTS: Final = "kafka.server:type=client-metrics,client_instance_id=*"
_CLIENTS: Final = 10_000
_SECONDS: Final = 300.0


def test_the_page_names_the_mbeans_of_clients() -> None:
    page = (Path(__file__).parents[3] / "docs" / "bridge.md").read_text()
    assert f'excludeObjectNames: ["{_OF_CLIENTS}"]' in page
    assert _BRIDGE in page


def _instances(peer: Peer) -> set[bytes]:
    return {bytes(push.client_instance_id) for push in list(peer.pushes)}


def test_ten_thousand_client_instances(jar: Path, token_file: Path, tmp_path: Path) -> None:
    allow_files()
    payload = tmp_path / "payload"
    payload.write_bytes(LIBRDKAFKA_PRODUCER.zstd())
    jmx = Jmx()
    with (
        Peer() as peer,
        KafkaBroker(
            plugins=[jar], properties=properties(token_file, peer.port), jvm_flags=jmx.flags
        ) as broker,
    ):
        broker.alter_client_metrics("all", ["*"], 2000)
        flags = {"connections": _CLIENTS, "count": _CLIENTS, "warmup": 0, "hold": _SECONDS}
        with load("push", {**push_flags(broker.bootstrap, payload, []), **flags}) as clients:
            clients.line()
            wait_until(lambda: len(_instances(peer)) == _CLIENTS, timeout_s=_SECONDS, what="all clients")
            found = jmx.read(_OF_CLIENTS, most=3)
            assert found.count >= _CLIENTS
            assert {len(attributes) for attributes in found.values.values()} == {8}
            (own,) = jmx.read(_BRIDGE).values.values()
        assert own["Received"] >= _CLIENTS
        assert {name: value for name, value in own.items() if "Dropped" in name and value} == {}
        assert own["Connected"] == 1
        # Kafka takes them away when the clients are gone.
        wait_until(lambda: jmx.read(_OF_CLIENTS, most=0).count == 0, timeout_s=_SECONDS, what="no client")


def test_without_jmx_reporter_the_broker_has_the_bridges_mbean_alone(jar: Path, token_file: Path) -> None:
    jmx = Jmx()
    settings = properties(token_file, 9714) | {"metric.reporters": EXPORTER}
    with KafkaBroker(plugins=[jar], properties=settings, jvm_flags=jmx.flags) as broker:
        wait_until(lambda: jmx.read(_BRIDGE).count == 1, timeout_s=60, what="the bridge's MBean")
        assert jmx.read("kafka.server:type=app-info,*").count > 0
        assert jmx.read("kafka.server:type=socket-server-metrics,*").count == 0
        broker.alter_properties({"metric.reporters": f"{JMX},{EXPORTER}"})
        wait_until(
            lambda: jmx.read("kafka.server:type=socket-server-metrics,*").count > 0,
            timeout_s=60,
            what="the broker's own MBeans",
        )
