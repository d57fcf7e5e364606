"""The chart's example in pods: three brokers with sidecars, and a collector."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx

from tests.images.engine import TREE
from tests.kubernetes.pods import pages
from tests.testbed import cache, parts
from tests.testbed.collector import ExportedMetric, exported_metrics
from tests.testbed.helm import CHART, RELEASE, Helm
from tests.testbed.kubernetes import KubectlError
from tests.testbed.node.images import KAFKA
from tests.testbed.node.node import Node

NAMESPACE: Final = "kafka"
MONITORING: Final = "monitoring"
SIDECAR: Final = "kafka-telemetry"
NAME: Final = f"{RELEASE}-kafka-client-telemetry"
BROKERS: Final = f"{NAME}-broker"
SELECTOR: Final = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=example-broker"
BOOTSTRAP: Final = f"{NAME}-bootstrap.{NAMESPACE}.svc.cluster.local:19092"
TOKEN: Final = "/run/secrets/kafka-telemetry/tokens/ops"


class Collector:
    """An OpenTelemetry Collector in a pod, whose exports are in a file of the node.

    Args:
        node: Where it runs.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._folder = node.machine.folder / "collector"

    def install(self) -> None:
        """Start it, and wait until it is ready."""
        self._folder.mkdir()
        self._folder.chmod(0o777)
        self._node.make_namespace(MONITORING)
        self._node.apply(_collector_config(), _service("collector"))
        self.start()

    def start(self) -> None:
        """Start it, also after :meth:`stop`; earlier exports stay."""
        self._node.apply(_collector_pod(self._folder))
        self._node.wait_for_pods(MONITORING, "app=collector", 1)

    def stop(self) -> None:
        """End it, and wait until it is gone; what it took is in the file."""
        self._node.kubectl("delete", "pod", "collector", f"--namespace={MONITORING}")

    def exports(self) -> Sequence[ExportedMetric]:
        """Everything that has arrived, in order."""
        file = self._folder / "exports.jsonl"
        if not file.exists():
            return ()
        text = file.read_text()
        lines = text[: text.rfind("\n") + 1].splitlines()
        return [metric for line in lines for metric in exported_metrics(json.loads(line))]

    def client_ids(self) -> set[str]:
        """The clients whose metrics have arrived."""
        return {str(metric.resource.get("client_id")) for metric in self.exports()}


class BrokerCluster:
    """A release of the chart's example, as the chart's page installs it.

    Args:
        node: Where it runs.
        helm: Installs it.
        collector: Takes what its sidecars export.
    """

    def __init__(self, node: Node, helm: Helm, collector: Collector) -> None:
        self.node = node
        self.helm = helm
        self.collector = collector

    @property
    def pods(self) -> list[str]:
        """The brokers' pods."""
        return [f"{BROKERS}-{number}" for number in range(3)]

    def install(self, folder: Path) -> None:
        """Install it by the commands of the chart's page, and wait until all brokers are ready.

        Args:
            folder: Where the commands run, in place of a checkout.
        """
        (folder / "deploy").symlink_to(TREE / "deploy")
        pages.run(pages.script(CHART / "README.md", "Try it"), self.helm, folder)
        self.node.apply(_alias("collector", f"collector.{MONITORING}.svc.cluster.local"))
        self.wait_until_ready()

    def remove(self) -> None:
        """Remove it, with its namespace."""
        self.node.remove_namespace(NAMESPACE)

    def upgrade(self, *arguments: str | Path, chart: Path = CHART) -> None:
        """Install or upgrade the release with the chart's own example and other values."""
        self.helm.run(
            *("upgrade", "--install", RELEASE, chart, f"--namespace={NAMESPACE}"),
            *("--values", chart / "ci" / "example-broker.yaml", *arguments),
        )

    def wait_until_ready(self) -> None:
        """Wait until the StatefulSet has rolled and all its pods are ready."""

        def rolled() -> bool:
            found = self.node.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{BROKERS}")
            status = found["status"]
            return bool(
                status.get("observedGeneration", 0) >= found["metadata"]["generation"]
                and status.get("updateRevision") == status.get("currentRevision")
                and status.get("readyReplicas", 0) == found["spec"]["replicas"]
            )

        self.node.wait_until(rolled, what="the brokers to be rolled and ready", timeout_s=900.0)
        self.node.wait_for_pods(NAMESPACE, SELECTOR, len(self.pods))

    def evict(self, pod: str) -> int:
        """Ask for a pod's eviction, as a drain does, and return the HTTP status."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": NAMESPACE},
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
        return self.node.http.post(path, json=eviction).status_code

    def lists_clients(self, pod: str) -> bool:
        """Whether a sidecar's REST API accepts the token in its pod."""
        try:
            self.command(pod, "clients", "list", f"--token-file={TOKEN}")
        except KubectlError:
            return False
        return True

    def answers(self, pod: str) -> bool:
        """Whether a sidecar's REST API answers, asked from the node."""
        try:
            return self._get(pod, "/readyz").is_success
        except httpx.TransportError:
            return False

    def metric(self, pod: str, series: str) -> float:
        """The value of one of a sidecar's own metrics.

        Raises:
            LookupError: It has none.
        """
        for line in self._get(pod, "/metrics").text.splitlines():
            if line.startswith(f"{series} "):
                return float(line.rpartition(" ")[2])
        raise LookupError(f"{series} of {pod}")

    def _get(self, pod: str, path: str) -> httpx.Response:
        return self.node.http.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}:8642/proxy{path}")

    def process(self, pod: str, container: str, name: str) -> int:
        """Wait for the process of a container with a name, and return its id on this machine.

        Args:
            pod: The pod.
            container: The container.
            name: As the kernel has it: ``java``; or ``supervisor``, or ``process 1``.
        """
        found: list[int] = []

        def is_there() -> bool:
            processes = self.node.processes(NAMESPACE, pod, container)
            if name == "supervisor":
                found[:] = [_parent(pid) for pid, comm in processes.items() if comm == "kct-core"]
            elif name == "process 1":
                found[:] = [pid for pid in processes if _namespace_ids(pid)[-1] == 1]
            else:
                found[:] = [pid for pid, comm in processes.items() if comm == name]
            return len(found) == 1

        self.node.wait_until(is_there, what=f"the process {name} of {pod}/{container}")
        return found[0]

    def command(self, pod: str, *words: str, stdin: str = "") -> str:
        """What ``kafka-telemetry WORDS`` prints in a pod's sidecar."""
        return self.node.exec(NAMESPACE, pod, SIDECAR, "kafka-telemetry", *words, stdin=stdin)

    def subscribe(self) -> None:
        """Ask all clients for all metrics, at all three sidecars."""
        for pod in self.pods:
            self.command(
                pod,
                *("subscriptions", "put", "all", "--metric", "*"),
                "--interval-ms=1000",
                f"--token-file={TOKEN}",
            )


def secret(name: str, namespace: str, **values: str) -> dict[str, Any]:
    """A Secret; ``_`` of a key stands for a dot."""
    data = {key.replace("_", "."): base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def namespace_peer(name: str) -> dict[str, Any]:
    """All pods of a namespace, as a peer of a network policy."""
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def _parent(pid: int) -> int:
    return int(_status(pid).get("PPid", "0"))


def _namespace_ids(pid: int) -> list[int]:
    """A process's ids from this machine's namespace to its own."""
    return [int(number) for number in _status(pid).get("NSpid", "0").split()]


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has ended
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _alias(name: str, target: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": target},
    }


def _service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": MONITORING},
        "spec": {"selector": {"app": name}, "ports": [{"name": "otlp", "port": 4317}]},
    }


def _collector_config() -> dict[str, Any]:
    pipeline = {"receivers": ["otlp"], "exporters": ["file"]}
    config = {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "0.0.0.0:4317"}}}},
        "exporters": {"file": {"path": "/exports/exports.jsonl", "flush_interval": "200ms", "append": True}},
        "service": {"telemetry": {"metrics": {"level": "none"}}, "pipelines": {"metrics": pipeline}},
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "collector", "namespace": MONITORING},
        "data": {"collector.yaml": json.dumps(config)},
    }


def _collector_pod(folder: Path) -> dict[str, Any]:
    container = {
        "name": "collector",
        "image": KAFKA,
        "imagePullPolicy": "Never",
        "securityContext": {"runAsUser": 0},
        "command": [str(parts.COLLECTOR.require() / "otelcol"), "--config", "/config/collector.yaml"],
        "readinessProbe": {"tcpSocket": {"port": 4317}, "periodSeconds": 1},
        "volumeMounts": [
            {"name": "cache", "mountPath": str(cache.cache_folder()), "readOnly": True},
            {"name": "exports", "mountPath": "/exports"},
            {"name": "config", "mountPath": "/config"},
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "collector", "namespace": MONITORING, "labels": {"app": "collector"}},
        "spec": {
            "containers": [container],
            "volumes": [
                {"name": "cache", "hostPath": {"path": str(cache.cache_folder())}},
                {"name": "exports", "hostPath": {"path": str(folder)}},
                {"name": "config", "configMap": {"name": "collector"}},
            ],
        },
    }
