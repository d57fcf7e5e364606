"""Real clients work through a sidecar in front of a broker that advertises its own address."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.integration.gateway.support import GatewaySidecar
from tests.integration.test_clients import ports_of
from tests.testbed.broker import KafkaBroker
from tests.testbed.clients import Client, FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.sidecar import config_for

pytestmark = pytest.mark.full

TOPIC = "rewritten"


@pytest.fixture(scope="module")
def unchanged_broker() -> Iterator[KafkaBroker]:
    """Return a broker whose clients are told its own port."""
    with KafkaBroker() as broker:
        broker.create_topic(TOPIC)
        yield broker


@pytest.fixture(scope="module")
def node_port() -> int:
    """Return the port at which clients reach the broker's node."""
    return free_port()


@pytest.fixture(scope="module")
def gateway(unchanged_broker: KafkaBroker, node_port: int) -> Iterator[GatewaySidecar]:
    node_id = unchanged_broker.node_id
    rewrite = {"host": LOOPBACK, "first_port": node_port - node_id, "nodes": node_id + 1}
    listener = {"addresses": "rewrite", "rewrite": rewrite}
    config = config_for(unchanged_broker, client_port=free_port(), listeners={"CLIENT": listener})
    config |= {"gateway": {"relays": 2}, "broker": {"id": "auto"}}
    with GatewaySidecar(config) as sidecar:
        yield sidecar


@pytest.fixture(scope="module")
def fleet(gateway: GatewaySidecar) -> Iterator[list[Client]]:
    with contextlib.ExitStack() as running:
        yield [
            running.enter_context(kind(mode, bootstrap=gateway.bootstrap(), topic=TOPIC))
            for mode in Mode
            for kind in (JavaClient, LibrdkafkaClient, FranzClient)
        ]


def test_clients_reach_the_broker_only_through_the_gateway(
    fleet: list[Client], unchanged_broker: KafkaBroker, node_port: int
) -> None:
    for client in fleet:
        client.wait_for_records(10)
        assert client.errors == []
        assert ports_of(client.pid, node_port), client.client_id
        assert not ports_of(client.pid, unchanged_broker.client_port), client.client_id
