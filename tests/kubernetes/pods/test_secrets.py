"""A destination's password is changed: the plugin follows its Secret without a restart."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import bcrypt
import pytest
import yaml

from tests.kubernetes.pods import gateways
from tests.kubernetes.pods.clients import clients
from tests.kubernetes.pods.cluster import MONITORING, NAMESPACE, BrokerCluster, secret
from tests.kubernetes.pods.figures import note
from tests.testbed import cache, parts
from tests.testbed.clients import Mode
from tests.testbed.helm import CHART
from tests.testbed.node.images import KAFKA
from tests.testbed.node.node import Node, restarts

pytestmark = pytest.mark.timeout(1800)

RELEASE: Final = "rotated"
POD: Final = f"{gateways.service(RELEASE)}-0"
USER: Final = "sidecar"
OLD, NEW = "an-old-password-of-the-tests", "a-new-password-of-the-tests"
_PORT: Final = 9090
_FILE: Final = "/run/secrets/prometheus/authorization"


def header(password: str) -> str:
    """What a client of Prometheus sends as ``Authorization``."""
    return "Basic " + base64.b64encode(f"{USER}:{password}".encode()).decode()


class Prometheus:
    """Prometheus in a pod, which takes remote write from one user.

    Args:
        node: Where it runs.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._folder = node.machine.folder / "prometheus"

    def install(self) -> None:
        """Start it with the password :data:`OLD`, and wait until it answers."""
        self._folder.mkdir()
        self._folder.chmod(0o755)
        (self._folder / "prometheus.yaml").write_text("{}\n")
        self.set_password(OLD)
        self._node.apply(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "prometheus", "namespace": MONITORING},
                "spec": {"selector": {"app": "prometheus"}, "ports": [{"port": _PORT}]},
            },
            self._pod(),
        )
        self._node.wait_for_pods(MONITORING, "app=prometheus", 1)

    def set_password(self, password: str) -> None:
        """Change the user's password; Prometheus reads the file for each request."""
        hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()
        written = self._folder / "web.yaml.new"
        written.write_text(yaml.safe_dump({"basic_auth_users": {USER: hashed}}))
        written.replace(self._folder / "web.yaml")

    def ask(self, password: str, promql: str) -> float | None:
        """The value of a query's only series; None if it has none or the password is refused."""
        pod = self._node.pod(MONITORING, "prometheus")
        assert pod is not None
        said = self._node.machine.run(
            *(
                "curl",
                "--silent",
                "--noproxy",
                "*",
                "--get",
                "--header",
                f"Authorization: {header(password)}",
            ),
            *("--data-urlencode", f"query={promql}", f"http://{pod['status']['podIP']}:{_PORT}/api/v1/query"),
        )
        if said.strip() == "Unauthorized":
            return None
        result = json.loads(said)["data"]["result"]
        return float(result[0]["value"][1]) if result else None

    def _pod(self) -> dict[str, Any]:
        container = {
            "name": "prometheus",
            "image": KAFKA,
            "imagePullPolicy": "Never",
            # This machine's folders may be below a folder of root's.
            "securityContext": {"runAsUser": 0},
            "command": [
                str(parts.PROMETHEUS.require() / "prometheus"),
                "--config.file=/config/prometheus.yaml",
                "--web.config.file=/config/web.yaml",
                "--storage.tsdb.path=/tmp/data",
                f"--web.listen-address=0.0.0.0:{_PORT}",
                "--web.enable-remote-write-receiver",
            ],
            "readinessProbe": {"tcpSocket": {"port": _PORT}, "periodSeconds": 1},
            "volumeMounts": [
                {"name": "cache", "mountPath": str(cache.cache_folder()), "readOnly": True},
                {"name": "config", "mountPath": "/config"},
            ],
        }
        volumes = [
            {"name": "cache", "hostPath": {"path": str(cache.cache_folder())}},
            {"name": "config", "hostPath": {"path": str(self._folder)}},
        ]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "prometheus", "namespace": MONITORING, "labels": {"app": "prometheus"}},
            "spec": {"containers": [container], "volumes": volumes},
        }


@pytest.fixture
def prometheus(cluster: BrokerCluster) -> Prometheus:
    """The server."""
    server = Prometheus(cluster.node)
    server.install()
    return server


@pytest.fixture
def release(cluster: BrokerCluster, prometheus: Prometheus, tmp_path: Path) -> Iterator[BrokerCluster]:
    """A gateway that writes to it, with the password of a Secret."""
    del prometheus  # it is there first
    remote_write = {
        "url": f"http://prometheus.{MONITORING}.svc.cluster.local:{_PORT}/api/v1/write",
        "headers": {"authorization": {"file": _FILE}},
    }
    values = gateways.values(
        RELEASE,
        {"type": "prometheus", "remote_write": remote_write},
        gateway={"replicas": 1},
        secretMounts=[{"secretName": "prometheus", "mountPath": str(Path(_FILE).parent)}],
    )
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    cluster.node.apply(secret("prometheus", NAMESPACE, authorization=header(OLD)))
    install = ("upgrade", "--install", RELEASE, CHART, f"--namespace={NAMESPACE}", "--values", file)
    cluster.helm.run(*install)
    cluster.node.wait_for_pods(NAMESPACE, f"app.kubernetes.io/instance={RELEASE}", 1)
    yield cluster
    cluster.helm.run("uninstall", RELEASE, f"--namespace={NAMESPACE}")


def test_a_plugin_follows_its_password(release: BrokerCluster, prometheus: Prometheus) -> None:
    node = release.node
    bootstrap = gateways.bootstrap(RELEASE)
    with clients(node, ("java", Mode.PRODUCER), bootstrap=bootstrap, topic="rotated") as (client,):
        # Of one metric: timestamp() drops names, and two alike series are an error.
        newest = f'max(timestamp({{__name__=~".+record_send_total", client_id="{client.name}"}}))'
        node.wait_until(lambda: prometheus.ask(OLD, newest) is not None, what="samples of the client")
        prometheus.set_password(NEW)
        changed = time.time()
        assert prometheus.ask(OLD, newest) is None
        node.apply(secret("prometheus", NAMESPACE, authorization=header(NEW)))
        # The kubelet brings it into the pod within a minute and a half.
        waited = node.wait_until(
            lambda: (prometheus.ask(NEW, newest) or 0.0) > changed + 5,
            what="samples that came with the new password",
            every_s=1.0,
        )
        note(f"a plugin's password: samples come again {waited.seconds:.0f} s after the Secret's change")
        assert client.errors == []
    pod = node.pod(NAMESPACE, POD)
    assert pod is not None
    assert restarts(pod, "receiver") == 0
