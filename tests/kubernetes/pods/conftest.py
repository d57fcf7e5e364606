"""One node for all tests, and one cluster, which is whole when a test begins."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Final

import pytest

from tests.kubernetes.pods import figures
from tests.kubernetes.pods.clients import NAMESPACE as CLIENTS
from tests.kubernetes.pods.cluster import BrokerCluster, Collector
from tests.kubernetes.pods.postgres import Postgres
from tests.testbed import parts
from tests.testbed.commands import BuildError
from tests.testbed.helm import Helm
from tests.testbed.node import images, machine, policies
from tests.testbed.node.images import KAFKA, RECEIVER, ROLLUP
from tests.testbed.node.node import Node
from tests.testbed.parts import NotSetUpError

#: The images that tests with a fixture need.
_IMAGES: Final[Mapping[str, tuple[str, ...]]] = {"node": (KAFKA, RECEIVER), "rollup_image": (ROLLUP,)}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the images of the chosen tests, because a build would use up the first test's time."""
    fixtures = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    wanted = [image for fixture, names in _IMAGES.items() if fixture in fixtures for image in names]
    if not wanted or session.config.option.collectonly or _problem() is not None:
        return
    # One that can't be built fails the tests that need it, with its reason.
    with contextlib.suppress(BuildError, NotSetUpError):
        images.build(*wanted)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was measured."""
    for line in figures.LINES:
        terminalreporter.write_line(f"pods: {line}")


@functools.cache
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
def rollup_image(node: Node) -> str:
    """The roll-up's image, which the node has."""
    node.images.need(ROLLUP)
    return ROLLUP


@pytest.fixture(scope="session")
def helm(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm, with every right there."""
    return Helm(tmp_path_factory.mktemp("helm"), node.kubeconfig)


@pytest.fixture(scope="session")
def installed(node: Node, helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> BrokerCluster:
    """Three brokers with sidecars that ask for everything, and a collector."""
    collector = Collector(node)
    collector.install()
    cluster = BrokerCluster(node, helm, collector)
    cluster.install(tmp_path_factory.mktemp("checkout"))
    cluster.subscribe()
    return cluster


@pytest.fixture(scope="session")
def postgres(node: Node, rollup_image: str) -> Postgres:
    """The server of roll-ups, whose image is there."""
    del rollup_image
    server = Postgres(node)
    server.install()
    return server


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
