"""A gateway that rewrites the brokers' addresses, in pods: rolls, ``helm test``, any user."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.kubernetes.pods import gateways
from tests.kubernetes.pods.clients import LANGUAGES, PodClient, clients
from tests.kubernetes.pods.cluster import BROKERS, NAMESPACE, BrokerCluster
from tests.kubernetes.pods.figures import note
from tests.testbed.clients import Mode
from tests.testbed.helm import CHART

pytestmark = pytest.mark.timeout(1800)

RELEASE: Final = "gateway"
SERVICE: Final = gateways.service(RELEASE)
BOOTSTRAP: Final = gateways.bootstrap(RELEASE)
SELECTOR: Final = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=gateway"
VALUES: Final = gateways.values(RELEASE, {"type": "otlp", "endpoint": "http://collector:4317"})


class Gateway:
    """The release.

    Args:
        cluster: The brokers behind it.
        values: Its values file.
    """

    def __init__(self, cluster: BrokerCluster, values: Path) -> None:
        self.cluster = cluster
        self._values = values

    def upgrade(self, *arguments: str, replicas: int = 2) -> None:
        """Install or upgrade it, and wait until all its pods are new and ready."""
        release = ("upgrade", "--install", RELEASE, CHART, f"--namespace={NAMESPACE}")
        number = f"--set=gateway.replicas={replicas}"
        self.cluster.helm.run(*release, "--values", self._values, number, *arguments)
        self.wait_until_ready(replicas)

    def wait_until_ready(self, replicas: int = 2) -> None:
        """Wait until it has rolled."""
        self.cluster.node.kubectl(
            "rollout", "status", f"statefulset/{SERVICE}", f"--namespace={NAMESPACE}", "--timeout=280s"
        )
        self.cluster.node.wait_for_pods(NAMESPACE, SELECTOR, replicas)


@pytest.fixture(scope="module")
def release(installed: BrokerCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The installed release."""
    values = tmp_path_factory.mktemp("gateway") / "values.yaml"
    values.write_text(yaml.safe_dump(VALUES))
    gateway = Gateway(installed, values)
    gateway.upgrade()
    yield gateway
    installed.helm.run("uninstall", RELEASE, f"--namespace={NAMESPACE}")


@pytest.fixture
def gateway(cluster: BrokerCluster, release: Gateway) -> Gateway:
    """The release, all of whose pods and brokers are ready."""
    release.wait_until_ready()
    return release


@pytest.fixture
def traffic(gateway: Gateway, request: pytest.FixtureRequest) -> Iterator[list[PodClient]]:
    """A producer of each language and a Java consumer."""
    topic = request.node.name.removeprefix("test_").replace("_", "-")[:30]
    wanted = [*((language, Mode.PRODUCER) for language in LANGUAGES), ("java", Mode.CONSUMER)]
    with clients(gateway.cluster.node, *wanted, bootstrap=BOOTSTRAP, topic=topic) as running:
        yield running


def check(what: str, running: list[PodClient], since: float) -> None:
    """Wait for progress, print what each client saw, and check that no record failed."""
    for client in running:
        client.wait_for_progress()
        note(f"{what}: {client.name} stood {client.longest_wait_s(since):.0f} s")
    assert {client.name: client.failed_records for client in running if client.failed_records} == {}


def test_metrics_arrive_through_it(gateway: Gateway, traffic: list[PodClient]) -> None:
    names = {client.name for client in traffic}
    gateway.cluster.node.wait_until(
        lambda: names <= gateway.cluster.collector.client_ids(), what="metrics of all clients", every_s=0.5
    )
    assert [client.errors for client in traffic] == [[]] * len(traffic)


def test_helm_test_proves_the_setup(gateway: Gateway) -> None:
    said = gateway.cluster.helm.run("test", RELEASE, f"--namespace={NAMESPACE}", "--logs")
    assert "Phase:          Succeeded" in said


def test_it_rolls(gateway: Gateway, traffic: list[PodClient]) -> None:
    begun = time.time()
    gateway.cluster.node.kubectl("rollout", "restart", f"statefulset/{SERVICE}", f"--namespace={NAMESPACE}")
    gateway.wait_until_ready()
    check("a roll of the gateway", traffic, begun)


def test_it_rolls_while_the_brokers_do(gateway: Gateway, traffic: list[PodClient]) -> None:
    # Its new pods look for brokers that come and go.
    begun = time.time()
    for name in (BROKERS, SERVICE):
        gateway.cluster.node.kubectl("rollout", "restart", f"statefulset/{name}", f"--namespace={NAMESPACE}")
    gateway.cluster.wait_until_ready()
    gateway.wait_until_ready()
    check("a roll of the gateway and the brokers", traffic, begun)


def test_it_gets_and_loses_a_replica(gateway: Gateway, traffic: list[PodClient]) -> None:
    begun = time.time()
    gateway.upgrade(replicas=3)
    for client in traffic:
        client.wait_for_progress()
    # Clients of the pod that ends reach the others by the same Service.
    gateway.upgrade(replicas=2)
    check("a replica more, and again less", traffic, begun)


def test_an_autoscaler_sets_its_replicas(gateway: Gateway, traffic: list[PodClient]) -> None:
    begun = time.time()
    for client in traffic:
        client.wait_for_progress()
    gateway.upgrade(*scaled(3), replicas=3)
    gateway.upgrade(*scaled(3), "--set=gateway.podAnnotations.changed=yes", replicas=3)
    gateway.upgrade(*scaled(2), replicas=2)
    # The number that the autoscaler has set, which it can't change any more when it is removed.
    gateway.upgrade(replicas=2)
    check("an autoscaler's replica more, and again less", traffic, begun)


def scaled(replicas: int) -> list[str]:
    """Arguments for an autoscaler, which keeps to its bounds without a metrics server too."""
    bounds = [f"--set=gateway.autoscaling.{name}={replicas}" for name in ("minReplicas", "maxReplicas")]
    return ["--set=gateway.autoscaling.enabled=true", *bounds]


def test_it_runs_as_any_user_and_rolls_back(gateway: Gateway, traffic: list[PodClient]) -> None:
    begun = time.time()
    gateway.upgrade(*gateways.AS_ANY_USER)
    for pod in gateway.cluster.node.pods(NAMESPACE, SELECTOR):
        said = gateway.cluster.node.exec(NAMESPACE, pod["metadata"]["name"], "receiver", "id", "-u")
        assert int(said) == gateways.ANY_USER
    gateway.cluster.helm.run("rollback", RELEASE, f"--namespace={NAMESPACE}")
    gateway.wait_until_ready()
    check("an upgrade and a rollback", traffic, begun)
