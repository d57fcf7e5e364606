"""Runs a real kube-apiserver and etcd on loopback, without controllers and kubelet.

There is no kubelet, no scheduler and no controller: objects are checked, admitted, stored and
handed out, and nothing comes of them. No pod runs, no Job ends, no Deployment makes pods, no claim
is bound.
"""

from __future__ import annotations

import os
import secrets
import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from tests.testbed import parts
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.commands import CommandError, output
from tests.testbed.kubernetes_schemas import DEFINITIONS
from tests.testbed.ports import LOOPBACK, free_port, is_open
from tests.testbed.process import ChildProcess, wait_until
from tests.testbed.server import Server

_READY_WITHIN_S: Final = 300.0
#: A namespace with this label admits what the strictest pod security standard allows.
RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}
_REQUEST_TIMEOUT_S: Final = 120.0
_COMMAND_TIMEOUT_S: Final = 300.0
#: May do everything.
_ADMINISTRATORS: Final = "system:masters"


class KubectlError(CommandError):
    """kubectl failed; the message is what it said."""


class Cluster(ABC):
    """What tests ask an API server, with every right.

    Attributes:
        http: A client that may do everything.
    """

    http: httpx.Client

    @property
    @abstractmethod
    def kubeconfig(self) -> Path:
        """How helm and kubectl get there."""

    def kubectl(self, *arguments: str | Path, stdin: str = "", may_differ: bool = False) -> str:
        """What ``kubectl ARGUMENTS`` prints on standard output.

        Args:
            arguments: The command.
            stdin: What it reads.
            may_differ: Whether status 1 is no failure, as that of ``diff``.

        Raises:
            KubectlError: It failed, or took too long.
        """
        command = [parts.KUBERNETES.require() / "kubectl", *arguments]
        return output(
            command,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.kubeconfig.parent)},
            stdin=stdin,
            timeout_s=_COMMAND_TIMEOUT_S,
            error=KubectlError,
            highest_status=int(may_differ),
        )

    def get(self, path: str, **parameters: str) -> dict[str, Any]:
        """An object or a list of objects by its path.

        Raises:
            httpx.HTTPStatusError: There is none, or it is refused.
        """
        answer = self.http.get(path, params=parameters)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


def http_client(url: str, token: str, authority: Path) -> httpx.Client:
    """Return a client for an API server.

    Args:
        url: Where it is.
        token: Of the user that asks.
        authority: Whom to trust.
    """
    return httpx.Client(
        base_url=url,
        headers={"authorization": f"Bearer {token}"},
        verify=ssl.create_default_context(cafile=authority),
        timeout=_REQUEST_TIMEOUT_S,
        trust_env=False,
    )


class Etcd(Server):
    """The API server's store.

    Attributes:
        url: Where it is.
    """

    def __init__(self) -> None:
        super().__init__("etcd")
        self.url = f"http://{LOOPBACK}:{free_port()}"
        self._peer_url = f"http://{LOOPBACK}:{free_port()}"

    def start(self) -> None:
        """Start it, also again after its end; what is in its folder stays.

        Raises:
            StartError: It did not come up; shows the tail of its log.
        """
        folder = self._folder()
        self._process = ChildProcess(
            "etcd",
            [
                parts.KUBERNETES.require() / "etcd",
                f"--data-dir={folder / 'data'}",
                f"--listen-client-urls={self.url}",
                f"--advertise-client-urls={self.url}",
                f"--listen-peer-urls={self._peer_url}",
                f"--initial-advertise-peer-urls={self._peer_url}",
                f"--initial-cluster=default={self._peer_url}",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ],
            log=folder / "etcd.log",
        )
        port = int(self.url.rpartition(":")[2])
        self._process.wait_until_ready(lambda: is_open(port), timeout_s=_READY_WITHIN_S)


class ApiServer(Server, Cluster):
    """kube-apiserver with its default admission, pod security among it, and RBAC.

    Args:
        etcd: Its store, which runs already.
    """

    def __init__(self, etcd: Etcd) -> None:
        super().__init__("kube-apiserver")
        self._etcd = etcd
        self._port = free_port()
        self._token = secrets.token_hex(16)

    @property
    def kubeconfig(self) -> Path:
        """How helm and kubectl get there, with every right."""
        return self._folder() / "kubeconfig"

    def start(self) -> None:
        """Start it, also again after its end.

        Raises:
            StartError: It did not come up; shows the tail of its log.
        """
        folder = self._folder()
        self._process = ChildProcess(
            "kube-apiserver",
            [
                parts.KUBERNETES.require() / "kube-apiserver",
                f"--etcd-servers={self._etcd.url}",
                f"--bind-address={LOOPBACK}",
                f"--advertise-address={LOOPBACK}",
                f"--secure-port={self._port}",
                # It would put this address, which is a loopback's, where pods look for it.
                "--endpoint-reconciler-type=none",
                f"--cert-dir={folder}",
                f"--tls-cert-file={folder / 'server.crt'}",
                f"--tls-private-key-file={folder / 'server.key'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={folder / 'accounts.crt'}",
                f"--service-account-signing-key-file={folder / 'accounts.key'}",
                f"--token-auth-file={folder / 'tokens.csv'}",
                "--authorization-mode=RBAC",
                "--service-cluster-ip-range=10.0.0.0/16",
            ],
            log=folder / "kube-apiserver.log",
        )
        self._process.wait_until_ready(self._is_ready, timeout_s=_READY_WITHIN_S)

    def close(self) -> None:
        """End it if it runs, and forget its folder."""
        if hasattr(self, "http"):
            self.http.close()
        super().close()

    def make_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Make a namespace, and the service account that a controller would make there.

        Raises:
            httpx.HTTPStatusError: It is there already.
        """
        namespace = {"metadata": {"name": name, "labels": dict(labels)}}
        self.http.post("/api/v1/namespaces", json=namespace).raise_for_status()
        accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
        self.http.post(accounts, json={"metadata": {"name": "default"}}).raise_for_status()

    def register_custom_resources(self) -> None:
        """Make known the custom resources whose definitions are in the testbed.

        Raises:
            KubectlError: A definition is wrong.
            WaitTimeoutError: The API server does not take one up.
        """
        definitions = parts.KUBERNETES_SCHEMAS.require() / DEFINITIONS
        self.kubectl("apply", "--server-side", f"--filename={definitions}")
        # `kubectl wait` fails at one that has no conditions yet.
        wait_until(self._are_established, timeout_s=_READY_WITHIN_S, what="custom resources to be known")

    def _are_established(self) -> bool:
        found = self.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        return all(
            any(
                condition["type"] == "Established" and condition["status"] == "True"
                for condition in definition.get("status", {}).get("conditions") or ()
            )
            for definition in found["items"]
        )

    def _lay_out(self, folder: Path) -> None:
        authority = CertificateAuthority()
        server = authority.issue().write(folder, "server")
        authority.issue(common_name="service accounts").write(folder, "accounts")
        (folder / "tokens.csv").write_text(f'{self._token},admin,admin,"{_ADMINISTRATORS}"\n')
        url = f"https://{LOOPBACK}:{self._port}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "testbed", "cluster": {"server": url, "certificate-authority": str(server.ca)}}
            ],
            "users": [{"name": "admin", "user": {"token": self._token}}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "admin"}}],
            "current-context": "testbed",
        }
        self.kubeconfig.write_text(yaml.safe_dump(config))
        self.kubeconfig.chmod(0o600)
        self.http = http_client(url, self._token, server.ca)

    def _is_ready(self) -> bool:
        try:
            return self.http.get("/readyz").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False
