"""The roll-up in pods: from a push to PostgreSQL, which is away for a while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.kubernetes.pods import gateways
from tests.kubernetes.pods.clients import clients
from tests.kubernetes.pods.cluster import NAMESPACE, BrokerCluster, namespace_peer, secret
from tests.kubernetes.pods.figures import note
from tests.kubernetes.pods.postgres import HOST, PASSWORD, Postgres
from tests.kubernetes.pods.postgres import NAMESPACE as DATABASE
from tests.testbed.clients import Mode
from tests.testbed.helm import CHART, HelmError

pytestmark = pytest.mark.timeout(3000)

RELEASE: Final = "rollup"
RECORDS: Final = 400
_PORT: Final = {"protocol": "TCP"}
VALUES: Final = gateways.values(
    RELEASE,
    {"type": "kafka_topic", "bootstrap_servers": gateways.UPSTREAM, "topic": "client-telemetry"},
    gateway={"replicas": 1},
    networkPolicy={
        "enabled": True,
        "egress": {
            "enabled": True,
            "to": [
                {"to": [namespace_peer(NAMESPACE)], "ports": [_PORT | {"port": 9094}]},
                {"to": [namespace_peer(DATABASE)], "ports": [_PORT | {"port": 5432}]},
            ],
        },
    },
    rollup={
        "enabled": True,
        "config": {"kafka": {"bootstrap_servers": gateways.UPSTREAM, "topic": "client-telemetry"}},
        "postgres": {"secretName": "postgres"},
        "migrate": {"backoffLimit": 0, "resources": {"requests": {"cpu": "10m"}}},
        "resources": {"requests": {"cpu": "10m", "memory": "512Mi"}},
    },
)


def use(cluster: BrokerCluster, database: str) -> None:
    """Write the Secret with a database's URL."""
    url = f"postgresql://postgres:{PASSWORD}@{HOST}/{database}"
    cluster.node.apply(secret("postgres", NAMESPACE, url=url))


@pytest.fixture
def values(tmp_path: Path) -> Path:
    """The release's values file."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(VALUES))
    return file


@pytest.fixture
def release(
    cluster: BrokerCluster, postgres: Postgres, values: Path, policies_problem: str | None
) -> Iterator[BrokerCluster]:
    """The roll-up, and a gateway that writes its topic; nothing else lets their pods out."""
    note(f"the roll-up's network policies: {policies_problem or 'enforced'}")
    use(cluster, "telemetry")
    _install(cluster, values)
    components = "app.kubernetes.io/component in (gateway, rollup)"
    cluster.node.wait_for_pods(NAMESPACE, f"app.kubernetes.io/instance={RELEASE},{components}", 2)
    yield cluster
    cluster.helm.run("uninstall", RELEASE, f"--namespace={NAMESPACE}")


def _install(cluster: BrokerCluster, values: Path, *arguments: str) -> None:
    release = ("upgrade", "--install", RELEASE, CHART, f"--namespace={NAMESPACE}")
    cluster.helm.run(*release, "--values", values, "--timeout=280s", *arguments)


def test_a_database_of_another_encoding_is_refused_before_anything_changes(
    cluster: BrokerCluster, postgres: Postgres, values: Path
) -> None:
    use(cluster, "bytes")
    with pytest.raises(HelmError, match="pre-install"):
        _install(cluster, values)
    job = f"job/{RELEASE}-{CHART.name}-rollup-migrate"
    said = cluster.node.kubectl("logs", job, f"--namespace={NAMESPACE}", "--all-containers")
    assert "SQL_ASCII" in said
    assert "Traceback" not in said
    schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'telemetry'"
    assert postgres.query(schemas, database="bytes") == "0"


def test_every_record_is_counted_although_postgresql_was_away(
    release: BrokerCluster, postgres: Postgres
) -> None:
    node = release.node
    selector = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=rollup"
    (pod,) = node.pods(NAMESPACE, selector)
    producer = ("java", Mode.PRODUCER)
    bootstrap = gateways.bootstrap(RELEASE)
    with clients(node, producer, bootstrap=bootstrap, topic="before") as (client,):
        first = node.wait_until(
            lambda: postgres.counted(client.name) > 0, what="a first batch", timeout_s=900.0
        )
        note(f"the roll-up counts the first records {first.seconds:.0f} s after the client's start")
    postgres.stop()
    with clients(node, producer, bootstrap=bootstrap, topic="meanwhile", count=RECORDS) as (client,):
        # It goes on pushing when it has sent them all.
        node.wait_until(lambda: client.records >= RECORDS, what="the client's records", timeout_s=900.0)
        postgres.start()
        waited = node.wait_until(
            lambda: postgres.counted(client.name) >= RECORDS, what="all records", timeout_s=900.0
        )
        note(f"PostgreSQL was away: all records are counted {waited.seconds:.0f} s after its return")
        assert postgres.counted(client.name) == RECORDS
    now = node.pod(NAMESPACE, pod["metadata"]["name"])
    assert now is not None
    assert [container["restartCount"] for container in now["status"]["containerStatuses"]] == [0]
    said = node.logs(NAMESPACE, pod["metadata"]["name"], pod["spec"]["containers"][0]["name"])
    # The plugin makes the topic when it starts, so the roll-up finds it before the first push.
    assert "UnknownTopicOrPartition" not in said


def test_it_goes_on_as_a_user_without_a_name(
    release: BrokerCluster, postgres: Postgres, values: Path
) -> None:
    node = release.node
    # Its checkpoint is that of the image's own user.
    _install(release, values, *gateways.AS_ANY_USER)
    workload = f"{RELEASE}-{CHART.name}-rollup"
    for name in (f"deployment/{workload}", f"statefulset/{gateways.service(RELEASE)}"):
        node.kubectl("rollout", "status", name, f"--namespace={NAMESPACE}", "--timeout=280s")
    selector = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=rollup"
    node.wait_for_pods(NAMESPACE, selector, 1)
    (pod,) = node.pods(NAMESPACE, selector)
    said = node.exec(NAMESPACE, pod["metadata"]["name"], pod["spec"]["containers"][0]["name"], "id", "-u")
    assert int(said) == gateways.ANY_USER
    bootstrap = gateways.bootstrap(RELEASE)
    with clients(node, ("java", Mode.PRODUCER), bootstrap=bootstrap, topic="any-user") as (client,):
        node.wait_until(lambda: postgres.counted(client.name) > 0, what="a batch", timeout_s=900.0)
    now = node.pod(NAMESPACE, pod["metadata"]["name"])
    assert now is not None
    assert [container["restartCount"] for container in now["status"]["containerStatuses"]] == [0]
