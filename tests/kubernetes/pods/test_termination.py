"""A pod ends in seconds at any moment of its life, and not with its grace period."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from tests.kubernetes.pods.cluster import MONITORING, BrokerCluster
from tests.kubernetes.pods.figures import note
from tests.testbed.node.images import RECEIVER

pytestmark = pytest.mark.timeout(900)

GRACE_S: Final = 120
CONFIG: Final = {
    "listeners": [{"name": "CLIENT", "bind": "0.0.0.0:19092", "upstream": "127.0.0.1:29092"}],
    "subscriptions": {"store": "sqlite", "path": "/tmp/subscriptions.db"},
    "rest": {"bind": "127.0.0.1:8642"},
    "plugins": [{"type": "console"}],
}
ROLLUP_CONFIG: Final = {
    "source": "spool_files",
    "spool_files": {"path": "/tmp"},
    "postgres": "postgresql://nobody@127.0.0.1:1/none",
    "checkpoint": "/tmp/checkpoint",
}
#: The roll-up under spark-submit, as the chart starts it.
SUBMITTED: Final = (
    "spark-submit",
    "--master=local[1]",
    "/opt/kafka-telemetry/rollup.py",
    "run",
    "--config=/etc/kafka-telemetry/rollup.yaml",
)


def config_map() -> dict[str, Any]:
    """What the pod's receiver reads."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "termination", "namespace": MONITORING},
        "data": {"config.yaml": json.dumps(CONFIG), "rollup.yaml": json.dumps(ROLLUP_CONFIG)},
    }


def pod(name: str, image: str = RECEIVER, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """A pod with a receiver alone, as the image starts it, or with another image.

    Args:
        arguments: Those of the image's entry point, instead of its own.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": MONITORING},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": GRACE_S,
            "containers": [
                {
                    "name": "receiver",
                    "image": image,
                    "imagePullPolicy": "Never",
                    **({"args": list(arguments)} if arguments else {}),
                    "volumeMounts": [{"name": "config", "mountPath": "/etc/kafka-telemetry"}],
                }
            ],
            "volumes": [{"name": "config", "configMap": {"name": "termination"}}],
        },
    }


def state(cluster: BrokerCluster, name: str) -> dict[str, Any]:
    """The state of the pod's container: waiting, running or terminated."""
    found = cluster.node.pod(MONITORING, name)
    statuses = (found or {}).get("status", {}).get("containerStatuses", ())
    return next((status["state"] for status in statuses), {})


@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 6.0])
def test_at_any_moment(cluster: BrokerCluster, after_s: float) -> None:
    ends(cluster, f"termination-{after_s:.1f}", after_s, pod)


@pytest.mark.parametrize("after_s", [0.0, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("arguments", [(), SUBMITTED], ids=["rollup", "spark-submit"])
def test_the_roll_up_at_any_moment(
    cluster: BrokerCluster, rollup_image: str, after_s: float, arguments: Sequence[str]
) -> None:
    name = f"{'submitted' if arguments else 'rollup'}-{after_s:.1f}"
    ends(cluster, name, after_s, lambda name: pod(name, rollup_image, arguments))


def ends(
    cluster: BrokerCluster, what: str, after_s: float, manifest: Callable[[str], dict[str, Any]]
) -> None:
    """Delete a pod some time after its start; it does not wait for its grace period."""
    node = cluster.node
    name = what.replace(".", "-")
    node.apply(config_map(), manifest(name))
    node.wait_until(lambda: "running" in state(cluster, name), what="a running container", every_s=0.05)
    time.sleep(after_s)  # what is tested
    assert "running" in state(cluster, name)
    node.http.delete(f"/api/v1/namespaces/{MONITORING}/pods/{name}").raise_for_status()
    gone = node.wait_until(lambda: node.pod(MONITORING, name) is None, what="the pod's end")
    note(f"{what}: SIGTERM {after_s:g} s after the start: the pod is gone in {gone.seconds:.1f} s")
    assert gone.seconds < GRACE_S / 2
