"""Checks pods against the restricted pod security standard, and the project's own rules.

Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/ ("Restricted", which
includes "Baseline"), for pods on Linux. tests/kubernetes asks the admission of a real API server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_VOLUMES: Final = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
_SECCOMP: Final = frozenset({"RuntimeDefault", "Localhost"})

Spec = Mapping[str, Any]


def violations(pod: Spec) -> list[str]:
    """Return the violations in a pod's ``spec``; each names the field."""
    return [
        *_of_pod(pod),
        *(problem for container in _containers(pod) for problem in _of_container(container, pod)),
    ]


def _containers(pod: Spec) -> Iterator[Spec]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from pod.get(field, ())


def _of_pod(pod: Spec) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield f"{field} is true"
    for volume in pod.get("volumes", ()):
        kinds = volume.keys() - {"name"}
        if kinds - _VOLUMES:
            yield f"volume {volume['name']} is {', '.join(sorted(kinds))}"
    if pod.get("securityContext", {}).get("sysctls"):
        yield "sysctls are set"


def _of_container(container: Spec, pod: Spec) -> Iterator[str]:
    name = container["name"]
    own = container.get("securityContext", {})
    # What a container does not say is as the pod says.
    context = {**pod.get("securityContext", {}), **own}
    if own.get("privileged"):
        yield f"{name}: privileged is true"
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: allowPrivilegeEscalation is not false"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", ()):
        yield f"{name}: capabilities.drop lacks ALL"
    if set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield f"{name}: capabilities.add has {capabilities['add']}"
    if context.get("runAsNonRoot") is not True:
        yield f"{name}: runAsNonRoot is not true"
    if context.get("runAsUser") == 0:
        yield f"{name}: runAsUser is 0"
    if context.get("seccompProfile", {}).get("type") not in _SECCOMP:
        yield f"{name}: seccompProfile is none"
    if own.get("procMount", "Default") != "Default":
        yield f"{name}: procMount is {own['procMount']}"
    if any(port.get("hostPort") for port in container.get("ports", ())):
        yield f"{name}: a port is a hostPort"
    if own.get("readOnlyRootFilesystem") is not True:
        yield f"{name}: readOnlyRootFilesystem is not true, which the project asks for"
