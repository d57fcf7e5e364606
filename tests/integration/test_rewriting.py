"""Real clients work through a sidecar in front of a broker that advertises its own address.

Nodes are told apart by their ports, or by the names that clients ask for (SNI).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.gateway.support import TIMEOUT_S, GatewaySidecar, Raw, api_versions, taking_over
from tests.integration.test_clients import ports_of
from tests.testbed.broker import SASL_USERS, KafkaBroker, Listener
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.clients import Client, FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import wait_until
from tests.testbed.security import Login, Security
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


@dataclass(frozen=True)
class Names:
    """A place where host names are known that this machine does not know."""

    hosts: Path

    def command(self, words: Sequence[str | Path]) -> list[str | Path]:
        """The command that runs ``words`` with these names."""
        script = 'mount --bind "$0" /etc/hosts && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, self.hosts, *words]


def test_clients_reach_nodes_by_name(unchanged_broker: KafkaBroker, tmp_path: Path) -> None:
    names = ("bootstrap.gateway.test", f"b{unchanged_broker.node_id}.gateway.test")
    unchanged_broker.create_topic("named")
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{LOOPBACK} localhost {' '.join(names)}\n")
    certificate = CertificateAuthority().issue(dns_names=["*.gateway.test"]).write(tmp_path)
    port = free_port()
    listener = {
        "addresses": "rewrite",
        "rewrite": {"host": "b{node_id}.gateway.test"},
        "security_protocol": "SSL",
        "tls": {"cert_file": str(certificate.chain), "key_file": str(certificate.key)},
    }
    config = config_for(unchanged_broker, client_port=port, listeners={"CLIENT": listener})
    config |= {"gateway": {"relays": 2}, "broker": {"id": "auto"}}
    with GatewaySidecar(config) as sidecar, contextlib.ExitStack() as running:
        fleet = [
            running.enter_context(
                kind(
                    mode,
                    bootstrap=f"bootstrap.gateway.test:{port}",
                    topic="named",
                    security=Security(ca=certificate.ca),
                    host=Names(hosts),  # type: ignore[arg-type]
                )
            )
            for mode in Mode
            for kind in (JavaClient, LibrdkafkaClient, FranzClient)
        ]
        for client in fleet:
            client.wait_for_records(10)
            assert client.errors == []
            assert ports_of(client.pid, port), client.client_id
            assert not ports_of(client.pid, unchanged_broker.client_port), client.client_id
        (shown,) = sidecar.http.get("/v1/listeners").json()["items"]
        (node,) = shown["nodes"]
        assert node["address"] == f"{names[1]}:{port}"
        assert node["broker"]["id"] == unchanged_broker.node_id
        assert node["broker"]["proven"]


def test_node_ports_outlive_a_reload_and_a_take_over(unchanged_broker: KafkaBroker) -> None:
    unchanged_broker.create_topic("reloaded")
    node_id, node_port = unchanged_broker.node_id, free_port()
    rewrite = {"host": LOOPBACK, "first_port": node_port - node_id, "nodes": node_id + 1}
    listener = {"addresses": "rewrite", "rewrite": rewrite}
    config = config_for(unchanged_broker, client_port=free_port(), listeners={"CLIENT": listener})
    config |= {
        "gateway": {"relays": 2, "control": "./control"},
        "broker": {"id": "auto"},
        "drain": {"timeout_s": 2},
    }
    with GatewaySidecar(config) as sidecar, contextlib.ExitStack() as running:
        fleet = [
            running.enter_context(kind(mode, bootstrap=sidecar.bootstrap(), topic="reloaded"))
            for mode in Mode
            for kind in (JavaClient, LibrdkafkaClient)
        ]

        def all_go_on() -> None:
            for client, records in [(client, client.records + 20) for client in fleet]:
                client.wait_for_records(records)

        all_go_on()
        config["listeners"][0]["max_connections"] = 500
        sidecar.reload()
        sidecar.wait_for_log("configuration reloaded")
        all_go_on()
        # A client that connects now reaches the node by the new listener.
        running.enter_context(FranzClient(Mode.CONSUMER, bootstrap=sidecar.bootstrap(), topic="reloaded"))
        with taking_over(sidecar) as new:
            sidecar.wait_for_log("a new version has taken over")
            wait_until(lambda: not sidecar.running, timeout_s=TIMEOUT_S, what="the end of the old version")
            all_go_on()
            assert new.running
            for client in fleet:
                client.stop()
            assert [client.errors for client in fleet if client.language == "java"] == [[], []]


def test_a_reload_and_a_new_version_keep_the_ports_of_nodes() -> None:
    # Behind a listener with SASL the sidecar can't ask for nodes. It knows only those that a
    # response to a client has named, and no client comes after the first one.
    port = free_port()
    security = Security(login=Login(mechanism="PLAIN", user="alice", password=SASL_USERS["alice"]))
    with KafkaBroker(listeners=[Listener(name="SASL", security_protocol="SASL_PLAINTEXT")]) as broker:
        broker.create_topic(TOPIC)
        rewrite = {"host": LOOPBACK, "first_port": port - broker.node_id, "nodes": broker.node_id + 1}
        config = config_for(broker, client_port=free_port())
        config["listeners"] = [
            {
                "name": "SASL",
                "bind": f"{LOOPBACK}:{free_port()}",
                "upstream": f"{LOOPBACK}:{broker.port('SASL')}",
                "security_protocol": "SASL_PLAINTEXT",
                "addresses": "rewrite",
                "rewrite": rewrite,
            }
        ]
        config |= {"gateway": {"relays": 2, "control": "./control"}, "broker": {"id": "auto"}}
        config["drain"] = {"timeout_s": 60}
        with GatewaySidecar(config) as sidecar:
            bootstrap = sidecar.bootstrap("SASL")
            with LibrdkafkaClient(
                Mode.PRODUCER, bootstrap=bootstrap, topic=TOPIC, security=security
            ) as client:
                client.wait_for_records(5)
            answers_at(port)
            config["listeners"][0]["max_connections"] = 77
            sidecar.reload()
            sidecar.wait_for_log("configuration reloaded")
            answers_at(port)
            with taking_over(sidecar):
                sidecar.wait_for_log("a new version has taken over")
                answers_at(port)


def answers_at(port: int) -> None:
    """Check that a broker answers clients at a node's port, in each relay."""
    for _ in range(8):
        with Raw(port) as raw:
            assert raw.exchange(api_versions(3))[4:6] == b"\0\0"
