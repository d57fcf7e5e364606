"""A StatefulSet with the lines of the chart's page, also as the users of OpenShift."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.helm.features import BROKER_CHART, chart_of
from tests.kubernetes.pods.clients import LANGUAGES, clients
from tests.kubernetes.pods.cluster import MONITORING, SIDECAR, TOKEN, BrokerCluster, secret
from tests.kubernetes.pods.gateways import ANY_USER
from tests.testbed.clients import Mode
from tests.testbed.helm import CHART
from tests.testbed.kubernetes import RESTRICTED, KubectlError
from tests.testbed.node.node import Node

pytestmark = pytest.mark.timeout(1800)

NAMESPACE: Final = "own"
RELEASE: Final = "own"
POD: Final = f"{RELEASE}-kafka-0"
BOOTSTRAP: Final = f"{POD}.{NAMESPACE}.svc.cluster.local:19092"


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart of a broker, with this one in it."""
    folder, _ = chart_of(BROKER_CHART, tmp_path_factory.mktemp("own"))
    return folder


@pytest.fixture(params=["own-users", "any-user"])
def release(request: pytest.FixtureRequest, installed: BrokerCluster, chart: Path) -> Iterator[Node]:
    """One broker with its sidecar, each as its own user, or both as one that no image knows."""
    node = installed.node
    node.make_namespace(NAMESPACE, RESTRICTED)
    collector = f"http://collector.{MONITORING}.svc.cluster.local:4317"
    ours = {
        "config.plugins[0].type": "otlp",
        "config.plugins[0].endpoint": collector,
        # Beside the brokers of other tests, on a node of two cores.
        "resources.requests.cpu": "10m",
    }
    theirs = {"replicas": "1"}
    if request.param == "any-user":
        theirs |= {"user": str(ANY_USER), "group": "0"}
        # The pod's, which is the only one that OpenShift lets in.
        ours |= {"containerSecurityContext.runAsUser": "null", "containerSecurityContext.runAsGroup": "null"}
    values = theirs | {f"{CHART.name}.{name}": value for name, value in ours.items()}
    node.apply(secret("kafka-telemetry-tokens", NAMESPACE, ops="a-token-of-the-own-statefulset-0123456789"))
    installed.helm.run(
        *("install", RELEASE, chart, f"--namespace={NAMESPACE}"),
        *(f"--set={name}={value}" for name, value in values.items()),
    )
    try:
        node.wait_for_pods(NAMESPACE, "app.kubernetes.io/name=kafka", 1)
        yield node
    finally:
        node.remove_namespace(NAMESPACE)


def user(node: Node, container: str) -> int:
    """The user of a container of the broker's pod."""
    return int(node.exec(NAMESPACE, POD, container, "id", "-u"))


def test_clients_push_through_the_sidecar(release: Node, cluster: BrokerCluster) -> None:
    users = {name: user(release, name) for name in (SIDECAR, "kafka")}
    assert users in ({SIDECAR: 10001, "kafka": 1000}, dict.fromkeys((SIDECAR, "kafka"), ANY_USER))
    if users[SIDECAR] == ANY_USER:
        with pytest.raises(KubectlError, match="cannot find name"):
            release.exec(NAMESPACE, POD, SIDECAR, "id", "-un")
    put = ("kafka-telemetry", "subscriptions", "put", "all", "--metric", "*", "--interval-ms=1000")
    release.exec(NAMESPACE, POD, SIDECAR, *put, f"--token-file={TOKEN}")
    wanted = [(language, Mode.PRODUCER) for language in LANGUAGES]
    topic = f"own-{users[SIDECAR]}"
    with clients(release, *wanted, bootstrap=BOOTSTRAP, topic=topic) as running:
        names = {client.name for client in running}
        release.wait_until(
            lambda: names <= cluster.collector.client_ids(), what="metrics of all clients", every_s=0.5
        )
        assert [client.errors for client in running] == [[]] * len(running)
        doctor = ("kafka-telemetry", "doctor", "--config", "/etc/kafka-telemetry/config.yaml")
        release.exec(NAMESPACE, POD, SIDECAR, *doctor, f"--token-file={TOKEN}")
