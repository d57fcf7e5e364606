"""Each release of Kafka with each client: a bridge's labels are those of the gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.bridge.support import entry_for, properties
from tests.testbed import parts
from tests.testbed.broker import KafkaBroker, Listener
from tests.testbed.clients import Client, FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector, ExportedMetric
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.security import Login, Security
from tests.testbed.sidecar import Sidecar, config_for

pytestmark = pytest.mark.full

_ALICE: Final = Security(login=Login(mechanism="PLAIN", user="alice", password="alice-secret"))
_CLIENTS: Final[Mapping[str, type[Client]]] = {
    "java": JavaClient,
    "librdkafka": LibrdkafkaClient,
    "franz": FranzClient,
}
_WAYS: Final = ("DIRECT", "GATED")
#: Of one connection. No broker tells a plugin of the mechanism.
_OWN: Final = {"client_id", "client_instance_id", "client_source_port", "listener", "sasl_mechanism"}


def _resources(exports: Sequence[ExportedMetric]) -> dict[str, dict[str, Any]]:
    return {str(export.resource.get("client_id")): dict(export.resource) for export in exports}


@pytest.mark.parametrize("version", [*parts.OLDER_KAFKA_VERSIONS, parts.KAFKA_VERSION])
def test_labels_are_those_of_the_gateway(version: str, jar: Path, token_file: Path) -> None:
    port = free_port()
    listeners = [
        Listener(name="DIRECT", security_protocol="SASL_PLAINTEXT"),
        Listener(name="GATED", security_protocol="SASL_PLAINTEXT", advertised_port=free_port()),
    ]
    settings = properties(token_file, port, entry=entry_for(version))
    with ExitStack() as stack:
        collector = stack.enter_context(Collector())
        broker = stack.enter_context(
            KafkaBroker(version=version, listeners=listeners, plugins=[jar], properties=settings)
        )
        # Not "*", which franz-go does not know from a broker of 3.7.
        broker.alter_client_metrics("all", ["org.apache.kafka."], 1000)
        bridge = {"bind": f"{LOOPBACK}:{port}", "token": {"file": str(token_file)}}
        receiver = stack.enter_context(Sidecar(config_for(broker, collector=collector) | {"bridge": bridge}))
        receiver.put_subscription("all", ["org.apache.kafka."], 1000)
        places = {"DIRECT": f"{LOOPBACK}:{broker.port('DIRECT')}", "GATED": receiver.bootstrap("GATED")}
        names = {f"{kind}-{way}" for kind in _CLIENTS for way in _WAYS}
        for kind, client in _CLIENTS.items():
            for way, bootstrap in places.items():
                stack.enter_context(
                    client(
                        Mode.PRODUCER,
                        bootstrap=bootstrap,
                        topic="releases",
                        client_id=f"{kind}-{way}",
                        security=_ALICE,
                    )
                )
        collector.wait_for(lambda exports: names <= _resources(exports).keys())
        found = _resources(collector.exports())
    for kind in _CLIENTS:
        direct, gated = ({**found[f"{kind}-{way}"]} for way in _WAYS)
        assert {name: value for name, value in direct.items() if name not in _OWN} == {
            name: value for name, value in gated.items() if name not in _OWN
        }
        assert (direct["principal"], direct["listener"]) == ("User:alice", "DIRECT")
        # Kafka 3.7 has no port of a client.
        assert ("client_source_port" in direct) is not version.startswith("3.7")
