"""Releases of a gateway that rewrites the brokers' addresses, in front of their own listener."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.kubernetes.pods.cluster import NAME, NAMESPACE
from tests.testbed.helm import CHART

#: The brokers' own listener, which has no sidecar.
UPSTREAM: Final = f"{NAME}-brokers.{NAMESPACE}.svc.cluster.local:9094"

#: OpenShift's restricted-v2: any user, the group 0, and the volume's group as the user.
ANY_USER: Final = 1000680000
_CONTEXTS: Final = ("containerSecurityContext", "podSecurityContext")
AS_ANY_USER: Final[Sequence[str]] = (
    *(f"--set={context}.runAsUser={ANY_USER}" for context in _CONTEXTS),
    *(f"--set={context}.runAsGroup=0" for context in _CONTEXTS),
    f"--set=podSecurityContext.fsGroup={ANY_USER}",
)


def service(release: str) -> str:
    """The name of a gateway's Service, and of its StatefulSet."""
    return f"{release}-{CHART.name}-gateway"


def host(release: str) -> str:
    """The name by which clients reach a gateway."""
    return f"{service(release)}.{NAMESPACE}.svc.cluster.local"


def bootstrap(release: str) -> str:
    """Where clients begin."""
    return f"{host(release)}:29092"


def values(release: str, plugin: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    """The values of a release that asks clients for everything and has one destination.

    Args:
        release: Its name.
        plugin: The destination.
        others: Further values; those of ``gateway`` are added.
    """
    rewrite = {"upstream": UPSTREAM, "host": host(release), "firstPort": 29100, "nodes": 5}
    return {
        "sidecar": {"enabled": False},
        "tokens": [{"name": "ops", "role": "editor", "secretName": "kafka-telemetry-tokens", "key": "ops"}],
        "subscriptions": [{"name": "all", "metrics": ["*"], "interval_ms": 1000}],
        # Beside the brokers, and other pods of the tests, on a node of two cores.
        "resources": {"requests": {"cpu": "10m"}},
        "config": {"plugins": [plugin]},
        **others,
        "gateway": {"enabled": True, "rewrite": rewrite, **others.get("gateway", {})},
    }
