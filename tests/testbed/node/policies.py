"""Lets a node enforce network policies: kube-router, with its firewall alone."""

from __future__ import annotations

from tests.testbed import parts
from tests.testbed.node.node import Node
from tests.testbed.node.settings import NODE, SERVICES


def enforce(node: Node) -> None:
    """Start kube-router, which ends with the node. Pods that no policy selects notice nothing.

    Raises:
        NotSetUpError: It is not built.
    """
    folder = parts.NETWORK_POLICIES.require()
    node.machine.start(
        "kube-router",
        folder / "kube-router",
        "--run-router=false",
        "--run-service-proxy=false",
        "--run-firewall=true",
        f"--kubeconfig={node.kubeconfig}",
        f"--hostname-override={NODE}",
        f"--service-cluster-ip-range={SERVICES}",
        path=folder,
    )
