"""Writes keys, tokens, kubeconfigs and settings of a node's programs."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.testbed.certificates import CertificateAuthority

NODE: Final = "node1"
SERVICES: Final = "10.96.0.0/16"
#: The API server's own Service, and DNS.
API_SERVICE: Final = "10.96.0.1"
DNS_SERVICE: Final = "10.96.0.10"
PODS: Final = "10.244.0.0/16"
DOMAIN: Final = "cluster.local"
PAUSE: Final = "testbed.local/pause:1"
CNI_PROGRAMS: Final = "/usr/lib/cni"
CONTAINERD: Final = "/run/containerd/containerd.sock"

_PORT: Final = 6443
#: Name and group of each program's user. ``system:masters`` may do everything.
_USERS: Final = {
    "admin": ("admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kube-proxy": ("system:kube-proxy", ""),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
}
_COREDNS: Final = """cluster.local:53 in-addr.arpa:53 {
  errors
  kubernetes cluster.local in-addr.arpa {
    kubeconfig KUBECONFIG
    pods insecure
    ttl 30
  }
  cache 30
}
.:53 {
  template ANY ANY . {
    rcode NXDOMAIN
  }
}
"""
_CONTAINERD: Final = """version = 3
root = "ROOT"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.nri.v1.nri",
]
[grpc]
  address = "SOCKET"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "PAUSE"
[plugins.'io.containerd.cri.v1.runtime']
  # Without CAP_SYS_RESOURCE runc can't lower oom_score_adj, and no container would start.
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["CNI_PROGRAMS"]
    conf_dir = "NETWORKS"
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = "/usr/sbin/runc"
        SystemdCgroup = false
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where a node's settings are.

    Attributes:
        folder: All of them.
        address: The node's address.
        token: Of the user that may do everything.
    """

    folder: Path
    address: str
    token: str

    @property
    def url(self) -> str:
        """The API server."""
        return f"https://{self.address}:{_PORT}"

    @property
    def authority(self) -> Path:
        """The certificate authority of the API server."""
        return self.folder / "server-ca.pem"

    def kubeconfig(self, user: str) -> Path:
        """How a user reaches the API server."""
        return self.folder / f"{user}.kubeconfig"

    def file(self, name: str) -> Path:
        """A file by its name."""
        return self.folder / name


def write(folder: Path, *, images: Path, address: str, cgroup: str) -> Settings:
    """Write all settings into a folder.

    Args:
        folder: The folder, which is made.
        images: containerd's own folder.
        address: The node's address.
        cgroup: The name of the control group that the pods' are made in.
    """
    folder.mkdir(parents=True)
    tokens = {name: secrets.token_hex(16) for name in _USERS}
    settings = Settings(folder=folder, address=address, token=tokens["admin"])
    _write_keys(folder, address)
    _write_users(settings, tokens)
    _write(folder / "kubelet.yaml", _kubelet(folder, cgroup))
    _write(folder / "kube-proxy.yaml", _proxy(settings))
    _write(folder / "base.yaml", *_base(address))
    (folder / "resolv.conf").write_text("search .\n")
    network = folder / "networks"
    network.mkdir()
    (network / "10-testbed.conflist").write_text(json.dumps(_network()))
    places = {
        "ROOT": str(images),
        "SOCKET": CONTAINERD,
        "PAUSE": PAUSE,
        "CNI_PROGRAMS": CNI_PROGRAMS,
        "NETWORKS": str(network),
    }
    (folder / "containerd.toml").write_text(_filled(_CONTAINERD, places))
    kubeconfig = {"KUBECONFIG": str(settings.kubeconfig("admin"))}
    (folder / "Corefile").write_text(_filled(_COREDNS, kubeconfig))
    return settings


def _filled(text: str, places: Mapping[str, str]) -> str:
    for place, value in places.items():
        text = text.replace(place, value)
    return text


def _write(file: Path, *documents: Mapping[str, Any]) -> None:
    file.write_text(yaml.safe_dump_all(documents))


def _write_keys(folder: Path, address: str) -> None:
    authority = CertificateAuthority()
    service = "kubernetes.default.svc"
    names = ["localhost", "kubernetes", "kubernetes.default", service, f"{service}.{DOMAIN}"]
    addresses = ["127.0.0.1", address, API_SERVICE]
    authority.issue(dns_names=names, ip_addresses=addresses).write(folder, "server")
    authority.issue(common_name="kubelet-client", organization="system:masters", client=True).write(
        folder, "kubelet-client"
    )
    authority.issue(common_name="service accounts").write(folder, "accounts")
    authority.issue(dns_names=[NODE], ip_addresses=["127.0.0.1", address]).write(folder, "kubelet")


def _write_users(settings: Settings, tokens: Mapping[str, str]) -> None:
    lines = []
    for name, (user, group) in _USERS.items():
        lines.append(f"{tokens[name]},{user},{user}" + (f',"{group}"' if group else ""))
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "testbed",
                    "cluster": {"server": settings.url, "certificate-authority": str(settings.authority)},
                }
            ],
            "users": [{"name": user, "user": {"token": tokens[name]}}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
            "current-context": "testbed",
        }
        _write(settings.kubeconfig(name), config)
        settings.kubeconfig(name).chmod(0o600)
    (settings.folder / "tokens.csv").write_text("\n".join(lines) + "\n")


def _kubelet(folder: Path, cgroup: str) -> Mapping[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": ["pods"],
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(folder / "server-ca.pem")},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [DNS_SERVICE],
        "clusterDomain": DOMAIN,
        "resolvConf": str(folder / "resolv.conf"),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD}",
        "tlsCertFile": str(folder / "kubelet.crt"),
        "tlsPrivateKeyFile": str(folder / "kubelet.key"),
        "failSwapOn": False,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1Gi", "imagefs.available": "1Gi"},
        # Nothing can be pulled again.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "volumeStatsAggPeriod": "15s",
        "nodeStatusUpdateFrequency": "5s",
        "maxPods": 60,
        "localStorageCapacityIsolation": True,
    }


def _proxy(settings: Settings) -> Mapping[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": PODS,
        "hostnameOverride": NODE,
        "bindAddress": "0.0.0.0",
        "clientConnection": {"kubeconfig": str(settings.kubeconfig("kube-proxy"))},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def _network() -> Mapping[str, Any]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": "10.244.0.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/cni-ipam",
    }
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": addresses,
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "testbed", "plugins": [bridge, ports]}


def _base(address: str) -> tuple[Mapping[str, Any], ...]:
    """The objects that a cluster has before anybody uses it: a storage class, and DNS."""
    service = {"name": "kube-dns", "namespace": "kube-system"}
    return (
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {
                "name": "standard",
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "testbed.local/none",
            "volumeBindingMode": "Immediate",
            "reclaimPolicy": "Delete",
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": service,
            "spec": {
                "clusterIP": DNS_SERVICE,
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
                ],
            },
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns-1",
                "namespace": "kube-system",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP"},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
            ],
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        },
    )
