"""Starts Kubernetes on a machine of its own, part by part, and asks it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from tests.testbed import cache, parts
from tests.testbed.kubernetes import Cluster, KubectlError, http_client
from tests.testbed.node import settings
from tests.testbed.node.images import ImageStore
from tests.testbed.node.machine import Machine
from tests.testbed.node.settings import NODE, PAUSE, SERVICES
from tests.testbed.node.volumes import Provisioner
from tests.testbed.process import ChildProcess, WaitTimeoutError, wait_until

_READY_WITHIN_S: Final = 300.0
_ETCD: Final = "http://127.0.0.1:2379"
_PEER: Final = "http://127.0.0.1:2380"

Pod = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """A wait that has ended.

    Attributes:
        seconds: How long it took.
    """

    seconds: float


class Node(Cluster):
    """A single-node cluster: its pods are real.

    Attributes:
        images: containerd's images.
    """

    images: ImageStore

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._programs = parts.NODE.require()
        self._kubernetes = parts.KUBERNETES.require()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def kubeconfig(self) -> Path:
        """How helm and kubectl get there."""
        return self._settings.kubeconfig("admin")

    @property
    def machine(self) -> Machine:
        """What it runs on."""
        return self._machine

    def _start(self) -> None:
        folder = cache.cache_folder() / f"containerd-{parts.NODE.key()}"
        folder.mkdir(exist_ok=True)
        self._stack.enter_context(cache.exclusive("running-node", lambda: None))
        self._machine = self._stack.enter_context(Machine())
        self._settings = settings.write(
            self._machine.folder / "settings",
            images=folder,
            address=self._machine.address,
            cgroup=self._machine.cgroup,
        )
        self._start_store(folder)
        self._start_api_server()
        self.images.forget_containers()
        self._start_others()
        self.kubectl("apply", f"--filename={self._settings.file('base.yaml')}")
        self._stack.enter_context(Provisioner(self._client(), self._machine.folder / "volumes"))
        self._wait_for_node()
        self.images.need(PAUSE)

    def _start_store(self, folder: Path) -> None:
        """Start containerd and etcd."""
        config = self._settings.file("containerd.toml")
        containerd = self._run("containerd", self._programs / "containerd", "--config", config)
        etcd = self._run(
            "etcd",
            self._kubernetes / "etcd",
            f"--data-dir={self._machine.folder / 'etcd'}",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            f"--listen-peer-urls={_PEER}",
            f"--initial-advertise-peer-urls={_PEER}",
            f"--initial-cluster=default={_PEER}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        self.images = ImageStore(self._machine, folder)
        health = "curl --silent --fail --max-time 2 http://127.0.0.1:2379/health"
        etcd.wait_until_ready(lambda: self._works("sh", "-c", health), timeout_s=_READY_WITHIN_S)
        socket = settings.CONTAINERD
        containerd.wait_until_ready(
            lambda: self._works(self._programs / "ctr", "--address", socket, "version"),
            timeout_s=_READY_WITHIN_S,
        )

    def _start_api_server(self) -> None:
        keys = self._settings.file
        server = self._run(
            "kube-apiserver",
            self._kubernetes / "kube-apiserver",
            f"--etcd-servers={_ETCD}",
            "--bind-address=0.0.0.0",
            f"--advertise-address={self._machine.address}",
            "--secure-port=6443",
            f"--tls-cert-file={keys('server.crt')}",
            f"--tls-private-key-file={keys('server.key')}",
            f"--client-ca-file={keys('server-ca.pem')}",
            f"--cert-dir={self._settings.folder}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={keys('accounts.crt')}",
            f"--service-account-signing-key-file={keys('accounts.key')}",
            f"--token-auth-file={keys('tokens.csv')}",
            "--authorization-mode=Node,RBAC",
            f"--service-cluster-ip-range={SERVICES}",
            f"--kubelet-client-certificate={keys('kubelet-client.crt')}",
            f"--kubelet-client-key={keys('kubelet-client.key')}",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
            "--enable-admission-plugins=NodeRestriction",
        )
        self.http = self._stack.enter_context(self._client())
        server.wait_until_ready(self._is_up, timeout_s=_READY_WITHIN_S)

    def _start_others(self) -> None:
        kubeconfig = self._settings.kubeconfig
        self._run(
            "kube-controller-manager",
            self._programs / "kube-controller-manager",
            f"--kubeconfig={kubeconfig('kube-controller-manager')}",
            "--leader-elect=false",
            f"--service-account-private-key-file={self._settings.file('accounts.key')}",
            f"--root-ca-file={self._settings.authority}",
            # Without it nothing is scheduled.
            "--use-service-account-credentials=true",
            "--bind-address=127.0.0.1",
            f"--cluster-cidr={settings.PODS}",
        )
        self._run(
            "kube-scheduler",
            self._programs / "kube-scheduler",
            f"--kubeconfig={kubeconfig('kube-scheduler')}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        )
        self._run(
            "kubelet",
            self._programs / "kubelet",
            f"--config={self._settings.file('kubelet.yaml')}",
            f"--kubeconfig={kubeconfig('kubelet')}",
            f"--hostname-override={NODE}",
            f"--node-ip={self._machine.address}",
            f"--root-dir={self._machine.folder / 'kubelet'}",
        )
        self._run(
            "kube-proxy",
            self._programs / "kube-proxy",
            f"--config={self._settings.file('kube-proxy.yaml')}",
        )
        self._run("coredns", self._programs / "coredns", "-conf", self._settings.file("Corefile"))

    def _run(self, name: str, *words: str | Path) -> ChildProcess:
        return self._machine.start(name, *words, path=self._programs)

    def _works(self, *words: str | Path) -> bool:
        try:
            self._machine.run(*words)
        except Exception:
            return False
        return True

    def _client(self) -> httpx.Client:
        return http_client(self._settings.url, self._settings.token, self._settings.authority)

    def _is_up(self) -> bool:
        try:
            return self.http.get("/readyz").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def _wait_for_node(self) -> None:
        def ready() -> bool:
            nodes = self.get("/api/v1/nodes")["items"]
            conditions = [condition for node in nodes for condition in node["status"].get("conditions", ())]
            return any(
                condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
            )

        self.wait_until(ready, what="the node to be ready")

    # -- what tests ask ----------------------------------------------------------------------------

    def wait_until(
        self, condition: Callable[[], bool], *, what: str, timeout_s: float = 300.0, every_s: float = 0.2
    ) -> Waited:
        """Wait for a condition.

        Raises:
            WaitTimeoutError: It did not come true; shows the pods, and programs of the node that
                have ended.
        """
        begun = time.monotonic()
        try:
            wait_until(condition, timeout_s=timeout_s, what=what, every_s=every_s)
        except WaitTimeoutError as error:
            raise WaitTimeoutError("\n".join([str(error), *self._trouble()])) from None
        return Waited(seconds=time.monotonic() - begun)

    def _trouble(self) -> Iterator[str]:
        yield from self._machine.ended()
        for words in (
            ("get", "pods", "-A", "-o", "wide"),
            ("get", "events", "-A", "--sort-by=.lastTimestamp"),
        ):
            try:
                yield "\n".join(self.kubectl(*words).splitlines()[-40:])
            except KubectlError as error:
                yield str(error)

    def make_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Make a namespace, and wait until pods can be made there.

        Raises:
            httpx.HTTPStatusError: It is there already.
        """
        namespace = {"metadata": {"name": name, "labels": dict(labels or {})}}
        self.http.post("/api/v1/namespaces", json=namespace).raise_for_status()
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        self.wait_until(lambda: self.http.get(account).is_success, what=f"the service account of {name}")

    def remove_namespace(self, name: str) -> None:
        """Remove a namespace, if it is there, and wait until all that was in it is gone."""
        namespace = f"/api/v1/namespaces/{name}"
        if self.http.get(namespace).status_code == httpx.codes.NOT_FOUND:
            return
        self.http.delete(namespace).raise_for_status()
        self.wait_until(
            lambda: self.http.get(namespace).status_code == httpx.codes.NOT_FOUND,
            what=f"the end of the namespace {name}",
            timeout_s=600.0,
        )

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Create or change objects.

        Raises:
            KubectlError: One is refused.
        """
        for manifest in manifests:
            self.kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(manifest))

    def pods(self, namespace: str, selector: str = "") -> list[dict[str, Any]]:
        """The pods of a namespace that have labels."""
        found: list[dict[str, Any]] = self.get(
            f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector
        )["items"]
        return found

    def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """A pod, None if there is none."""
        answer = self.http.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def is_ready(self, namespace: str, name: str) -> bool:
        """Whether a pod is ready."""
        pod = self.pod(namespace, name)
        return pod is not None and ready(pod)

    def wait_for_pods(self, namespace: str, selector: str, count: int, *, timeout_s: float = 600.0) -> Waited:
        """Wait until so many pods with labels are ready, and no other one is there.

        Raises:
            WaitTimeoutError: They are not.
        """

        def are_ready() -> bool:
            found = self.pods(namespace, selector)
            return len(found) == count and all(ready(pod) for pod in found)

        return self.wait_until(are_ready, timeout_s=timeout_s, what=f"{count} ready pods with {selector}")

    def logs(self, namespace: str, pod: str, container: str, *, previous: bool = False) -> str:
        """What a container has logged.

        Raises:
            KubectlError: It has not started yet.
        """
        earlier = ["--previous"] if previous else []
        return self.kubectl("logs", pod, f"--namespace={namespace}", f"--container={container}", *earlier)

    def exec(self, namespace: str, pod: str, container: str, *words: str, stdin: str = "") -> str:
        """What a command prints that runs in a container.

        Raises:
            KubectlError: It fails.
        """
        where = (pod, f"--namespace={namespace}", f"--container={container}", "--stdin")
        return self.kubectl("exec", *where, "--", *words, stdin=stdin)

    def processes(self, namespace: str, pod: str, container: str) -> dict[int, str]:
        """The processes of a container: the name of each, by its id on this machine."""
        found = self.pod(namespace, pod)
        statuses = found["status"] if found is not None else {}
        every = [*statuses.get("initContainerStatuses", ()), *statuses.get("containerStatuses", ())]
        (identity,) = (item["containerID"].rpartition("/")[2] for item in every if item["name"] == container)
        processes = {}
        for cgroup in Path("/proc").glob("[0-9]*/cgroup"):
            try:
                if identity in cgroup.read_text():
                    processes[int(cgroup.parent.name)] = (cgroup.parent / "comm").read_text().strip()
            except OSError:
                continue  # it has ended
        return processes


def ready(pod: Pod) -> bool:
    """Whether a pod is ready, and not about to end."""
    conditions = pod["status"].get("conditions", ())
    return "deletionTimestamp" not in pod["metadata"] and any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


def restarts(pod: Pod, container: str) -> int:
    """How often the kubelet has started a container of a pod again."""
    status = pod["status"]
    every = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return sum(item["restartCount"] for item in every if item["name"] == container)
