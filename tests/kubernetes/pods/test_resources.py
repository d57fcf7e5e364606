"""What a receiver takes of its node: relays by the limits of its container, and memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import pytest

from tests.kubernetes.pods.cluster import MONITORING, NAMESPACE, SIDECAR, BrokerCluster
from tests.kubernetes.pods.figures import note
from tests.kubernetes.pods.test_termination import config_map, pod
from tests.testbed.kubernetes import KubectlError
from tests.testbed.node.settings import NODE

pytestmark = pytest.mark.timeout(900)

_CORES: Final = os.cpu_count() or 1
#: Limits, and the most relays with them.
_LIMITS: Final[Sequence[tuple[dict[str, str], int]]] = (
    ({"cpu": "1"}, 1),
    ({"memory": "768Mi"}, min(_CORES, 16)),
    ({"memory": "128Mi"}, min(_CORES, 4)),
    ({}, min(_CORES, 16)),
)


@pytest.mark.parametrize(("limits", "relays"), _LIMITS, ids=["cpu", "memory", "little-memory", "none"])
def test_relays_follow_the_limits(cluster: BrokerCluster, limits: dict[str, str], relays: int) -> None:
    node = cluster.node
    manifest: dict[str, Any] = pod("relays")
    (container,) = manifest["spec"]["containers"]
    container["resources"] = {"limits": limits, "requests": {"cpu": "10m", "memory": "64Mi"}}
    node.apply(config_map(), manifest)
    try:
        node.wait_until(lambda: has_started(cluster), what="a receiver that has started")
        assert count(cluster) == relays
    finally:
        node.kubectl("delete", "pod", "relays", f"--namespace={MONITORING}")


def has_started(cluster: BrokerCluster) -> bool:
    """Whether all processes of the pod's receiver run."""
    try:
        return '"event": "started"' in cluster.node.logs(MONITORING, "relays", "receiver")
    except KubectlError:  # the container is not there yet
        return False


def count(cluster: BrokerCluster) -> int:
    """The relays of the pod."""
    names = cluster.node.processes(MONITORING, "relays", "receiver").values()
    return sum(name.startswith("kct-relay") for name in names)


def test_the_sidecars_memory_is_below_its_request(cluster: BrokerCluster) -> None:
    pods = cluster.node.get(f"/api/v1/nodes/{NODE}/proxy/stats/summary")["pods"]
    taken = {
        found["podRef"]["name"]: container["memory"]["workingSetBytes"] / 2**20
        for found in pods
        if found["podRef"]["namespace"] == NAMESPACE
        for container in found["containers"]
        if container["name"] == SIDECAR
    }
    assert set(taken) >= set(cluster.pods)
    for name, mib in taken.items():
        note(f"{name}: the sidecar takes {mib:.0f} MiB")
    assert max(taken.values()) < 208
