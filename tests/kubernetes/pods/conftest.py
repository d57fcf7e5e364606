"""One node for all tests, and one cluster, which is whole when a test begins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes.pods import figures
from tests.kubernetes.pods.clients import NAMESPACE as CLIENTS
from tests.kubernetes.pods.cluster import BrokerCluster, Collector
from tests.testbed import parts
from tests.testbed.helm import Helm
from tests.testbed.node import machine, policies
from tests.testbed.node.images import KAFKA, RECEIVER
from tests.testbed.node.node import Node
from tests.testbed.parts import NotSetUpError


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was measured."""
    for line in figures.LINES:
        terminalreporter.write_line(f"pods: {line}")


def _problem() -> str | None:
    try:
        parts.NODE.require()
    except NotSetUpError as error:
        return str(error)
    return machine.problem()


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    """A node with the images of the receiver and of Kafka."""
    if (problem := _problem()) is not None:
        pytest.skip(f"no pods on this machine: {problem}")
    with Node() as started:
        started.images.need(KAFKA, RECEIVER)
        started.make_namespace(CLIENTS)
        yield started


@pytest.fixture(scope="session")
def helm(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm, with every right there."""
    return Helm(tmp_path_factory.mktemp("helm"), node.kubeconfig)


@pytest.fixture(scope="session")
def installed(node: Node, helm: Helm) -> BrokerCluster:
    """Three brokers with sidecars that ask for everything, and a collector."""
    collector = Collector(node)
    collector.install()
    cluster = BrokerCluster(node, helm, collector)
    cluster.install()
    cluster.subscribe()
    return cluster


@pytest.fixture(scope="session")
def policies_problem(node: Node) -> str | None:
    """Why the node enforces no network policies; None when it does, from now to its end."""
    try:
        policies.enforce(node)
    except NotSetUpError as error:
        return str(error)
    return None


@pytest.fixture
def cluster(installed: BrokerCluster) -> BrokerCluster:
    """The cluster, all of whose pods are ready."""
    installed.wait_until_ready()
    return installed
