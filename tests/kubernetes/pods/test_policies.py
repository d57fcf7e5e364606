"""The chart's network policies, enforced: who reaches the brokers' ports, and what they reach."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.kubernetes.pods.clients import LANGUAGES, clients
from tests.kubernetes.pods.clients import NAMESPACE as CLIENTS
from tests.kubernetes.pods.cluster import (
    BOOTSTRAP,
    MONITORING,
    NAMESPACE,
    SIDECAR,
    BrokerCluster,
    namespace_peer,
)
from tests.testbed.clients import Mode
from tests.testbed.kubernetes import KubectlError
from tests.testbed.node.images import KAFKA
from tests.testbed.node.node import Node

pytestmark = pytest.mark.timeout(1800)

STRANGERS: Final = "strangers"
#: Namespaces with a pod that connects to the brokers, and has a port of its own.
PEERS: Final = (CLIENTS, MONITORING, STRANGERS)
KAFKA_PORT, BROKERS_PORT, REST_PORT, OTLP_PORT = 19092, 9094, 8642, 4317
PEER_PORT: Final = 8000
VALUES: Final[dict[str, Any]] = {
    "networkPolicy": {
        "enabled": True,
        "clients": [namespace_peer(CLIENTS)],
        "monitoring": [namespace_peer(MONITORING)],
        "egress": {
            "enabled": True,
            "to": [{"to": [namespace_peer(MONITORING)], "ports": [{"protocol": "TCP", "port": OTLP_PORT}]}],
        },
    }
}
#: Ends with status 0 if a port answers within five seconds.
_CONNECT: Final = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"


def _peer(namespace: str) -> dict[str, Any]:
    container = {
        "name": "peer",
        "image": KAFKA,
        "imagePullPolicy": "Never",
        "command": ["python3", "-m", "http.server", "--directory=/mnt", str(PEER_PORT)],
        "readinessProbe": {"tcpSocket": {"port": PEER_PORT}, "periodSeconds": 1},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "peer", "namespace": namespace, "labels": {"app": "peer"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }


@pytest.fixture(scope="module")
def peers(installed: BrokerCluster, policies_problem: str | None) -> Iterator[Node]:
    """A node that enforces policies, with a pod in each namespace of :data:`PEERS`."""
    if policies_problem is not None:
        pytest.skip(f"network policies are not enforced: {policies_problem}")
    node = installed.node
    node.make_namespace(STRANGERS)
    for namespace in PEERS:
        node.apply(_peer(namespace))
    for namespace in PEERS:
        node.wait_for_pods(namespace, "app=peer", 1)
    yield node
    for namespace in PEERS:
        node.kubectl("delete", "pod", "peer", f"--namespace={namespace}", "--wait=false")


def _address(node: Node, namespace: str, pod: str) -> str:
    found = node.pod(namespace, pod)
    assert found is not None
    return str(found["status"]["podIP"])


def _connects(node: Node, source: tuple[str, str, str], address: str, port: int) -> bool:
    """Whether a port answers a container: namespace, pod and its own name."""
    try:
        node.exec(*source, "python3", "-c", _CONNECT, address, str(port))
    except KubectlError:
        return False
    return True


def _let_in(node: Node, broker: str) -> dict[str, tuple[int, ...]]:
    """The ports of a broker that each peer reaches."""
    ports = (KAFKA_PORT, BROKERS_PORT, REST_PORT)
    return {
        namespace: tuple(port for port in ports if _connects(node, (namespace, "peer", "peer"), broker, port))
        for namespace in PEERS
    }


def _let_out(node: Node, pod: str) -> dict[str, bool]:
    """Which pods of another namespace a sidecar reaches."""
    ports = {"collector": OTLP_PORT, "peer": PEER_PORT}
    return {
        name: _connects(node, (NAMESPACE, pod, SIDECAR), _address(node, MONITORING, name), port)
        for name, port in ports.items()
    }


def test_only_those_reach_the_brokers_who_need_to(
    cluster: BrokerCluster, peers: Node, tmp_path: Path
) -> None:
    pod = cluster.pods[0]
    broker = _address(peers, NAMESPACE, pod)
    assert _let_in(peers, broker) == dict.fromkeys(PEERS, (KAFKA_PORT, BROKERS_PORT, REST_PORT))
    assert _let_out(peers, pod) == {"collector": True, "peer": True}
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(VALUES))
    cluster.upgrade("--values", values)
    try:
        wanted = {CLIENTS: (KAFKA_PORT,), MONITORING: (REST_PORT,), STRANGERS: ()}
        peers.wait_until(lambda: _let_in(peers, broker) == wanted, what=f"who is let in to be {wanted}")
        assert _let_out(peers, pod) == {"collector": True, "peer": False}
        producers = [(language, Mode.PRODUCER) for language in LANGUAGES]
        with clients(peers, *producers, bootstrap=BOOTSTRAP, topic="policies") as running:
            names = {client.name for client in running}
            peers.wait_until(
                lambda: names <= cluster.collector.client_ids(), what="metrics of all clients", every_s=0.5
            )
            # What they met before is not judged: rules follow a moment after a pod starts.
        assert all(peers.is_ready(NAMESPACE, name) for name in cluster.pods)
    finally:
        cluster.upgrade()
