"""Real clients work in front of three brokers that advertise addresses nobody else can reach.

The clients are on a host of their own. The brokers advertise their loopback, and the loopback of
that host is another one. So a client that sees the address of a broker can't use it.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration.gateway.support import GatewaySidecar
from tests.testbed import jvm
from tests.testbed.clients import Client, FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.cluster import KafkaCluster
from tests.testbed.network import Host, Network
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import wait_until

pytestmark = pytest.mark.full

TOPIC = "rewritten"
NODES = 8


class Site:
    """The clients' host, and the sidecar's address there."""

    def __init__(self, host: Host, address: str) -> None:
        self.host = host
        self.address = address
        self.port = free_port()
        self.first_port = free_port()

    @property
    def bootstrap(self) -> str:
        return f"{self.address}:{self.port}"

    def java(self, *words: str, bootstrap: str | None = None) -> list[str]:
        """Run an act of ClusterClients.java on the host; return the lines that it prints."""
        program = str(Path(__file__).parent / "ClusterClients.java")
        command = self.host.command(jvm.command(program, bootstrap or self.bootstrap, *words))
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout.splitlines()


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as brokers:
        yield brokers


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Network() as wires:
        host = wires.host("clients")
        ours, _ = wires.link(None, host)
        yield Site(host, ours.ipv4)


@pytest.fixture(scope="module")
def gateway(cluster: KafkaCluster, site: Site) -> Iterator[GatewaySidecar]:
    config = {
        "gateway": {"relays": 2},
        "listeners": [
            {
                "name": "ALL",
                "bind": f"{site.address}:{site.port}",
                "upstream": cluster.bootstrap,
                "addresses": "rewrite",
                "rewrite": {"host": site.address, "first_port": site.first_port, "nodes": NODES},
            }
        ],
        "subscriptions": {"store": "sqlite", "path": "./subscriptions.db"},
        "rest": {"bind": f"{LOOPBACK}:{free_port()}"},
        "plugins": [{"type": "console"}],
    }
    with GatewaySidecar(config) as sidecar:
        yield sidecar


@pytest.fixture(scope="module")
def topic(gateway: GatewaySidecar, site: Site) -> str:
    assert gateway.running
    site.java("create", TOPIC, "3")
    return TOPIC


@pytest.fixture(scope="module")
def fleet(topic: str, site: Site) -> Iterator[list[Client]]:
    """Return a producer and a consumer of each kind, and consumers of the new group protocol."""
    kinds = (JavaClient, LibrdkafkaClient, FranzClient)
    with contextlib.ExitStack() as running:
        clients: list[Client] = [
            running.enter_context(kind(mode, bootstrap=site.bootstrap, topic=topic, host=site.host))
            for mode in Mode
            for kind in kinds
        ]
        for kind in (JavaClient, LibrdkafkaClient):
            client = kind(
                Mode.CONSUMER,
                bootstrap=site.bootstrap,
                topic=topic,
                client_id=f"{kind.language}-kip-848",
                properties={"group.protocol": "consumer"},
                host=site.host,
            )
            clients.append(running.enter_context(client))
        yield clients


def all_go_on(clients: Sequence[Client], *, records: int = 40) -> None:
    """Wait until each client has written or read more."""
    targets = [(client, client.records + records) for client in clients]
    for client, target in targets:
        client.wait_for_records(target)


def public(site: Site, *node_ids: int) -> set[str]:
    return {f"{node_id} {site.address}:{site.first_port + node_id}" for node_id in node_ids}


def test_an_admin_client_sees_the_gateways_addresses_only(topic: str, site: Site) -> None:
    assert set(site.java("describe", topic)) == public(site, 1, 2, 3)


def test_every_client_writes_and_reads(fleet: list[Client]) -> None:
    all_go_on(fleet)
    assert {client.client_id: client.errors for client in fleet if client.errors} == {}


def test_transactions(gateway: GatewaySidecar, site: Site) -> None:
    assert gateway.running
    site.java("create", "transactions", "3")
    assert site.java("transactions", "transactions") == ["{committed=100}"]


def test_a_share_group(fleet: list[Client], topic: str, site: Site) -> None:
    all_go_on(fleet, records=1)
    assert site.java("share", topic, "50") == ["acknowledged"]


def test_leaders_move(fleet: list[Client], topic: str, site: Site) -> None:
    for node_id in (2, 3, 1):
        site.java("lead", topic, str(node_id))
        all_go_on(fleet)


def test_a_broker_is_added_and_leads(
    fleet: list[Client], cluster: KafkaCluster, topic: str, site: Site, gateway: GatewaySidecar
) -> None:
    broker = cluster.add(4)
    site.java("lead", topic, "4")
    all_go_on(fleet)
    assert "4 " in " ".join(site.java("describe", topic))
    gateway.wait_for_log(f"{LOOPBACK}:{broker.client_port}")


def test_a_killed_broker_leaves_the_others(
    fleet: list[Client], cluster: KafkaCluster, topic: str, site: Site
) -> None:
    site.java("lead", topic, "3")
    all_go_on(fleet)
    cluster.brokers[3].kill()
    all_go_on(fleet)
    wait_until(
        lambda: not set(site.java("describe", topic)) & public(site, 3),
        timeout_s=120,
        what="descriptions without the killed broker",
    )
    cluster.brokers[3].start()
    site.java("lead", topic, "3")
    all_go_on(fleet)


def test_no_client_named_a_brokers_own_address(fleet: list[Client], cluster: KafkaCluster) -> None:
    ports = [str(broker.client_port) for broker in cluster.brokers.values()]
    said = [error for client in fleet for error in client.errors]
    assert [line for line in said if LOOPBACK in line or any(f":{port}" in line for port in ports)] == []
