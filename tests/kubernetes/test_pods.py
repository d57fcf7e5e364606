"""Each feature's pods on a real API server: admitted as restricted, found, few rights.

The pods are made by the test from what the chart says, as there is no controller, and none of them
runs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.helm.features import Rendered, render
from tests.kubernetes.objects import pods
from tests.testbed.helm import CHART, Helm, of_kind
from tests.testbed.kubernetes import ApiServer

_SPARK = CHART / "ci" / "crds-spark-application.yaml"
#: Features with sidecars in the pods of another chart, beside pods of their own, such as a job's.
_SIDECARS_ELSEWHERE = ("sidecar.yaml", "subscriptions.yaml")

#: The rights that Spark's driver needs to start and end executors, with a ConfigMap and a Service
#: ("RBAC" in Spark's "Running on Kubernetes").
_DRIVER_MAY = [
    *((verb, "pods") for verb in ("create", "get", "list", "watch", "patch", "delete", "deletecollection")),
    *((verb, kind) for kind in ("configmaps", "services") for verb in ("create", "get", "list", "delete")),
]


@pytest.fixture
def applied(server: ApiServer, helm: Helm, namespace: str, feature: Path, tmp_path: Path) -> Rendered:
    """A feature's manifests, which are in the namespace."""
    return _apply(server, helm, namespace, feature, tmp_path)


def _apply(server: ApiServer, helm: Helm, namespace: str, feature: Path, folder: Path) -> Rendered:
    rendered = render(helm, feature, folder, "--namespace", namespace)
    server.kubectl("apply", "--server-side", "--namespace", namespace, "--filename=-", stdin=rendered.text)
    return rendered


def _make(server: ApiServer, namespace: str, pod: Mapping[str, Any]) -> httpx.Response:
    return server.http.post(f"/api/v1/namespaces/{namespace}/pods", json=pod)


def test_pods_are_admitted_and_found(server: ApiServer, namespace: str, applied: Rendered) -> None:
    made = []
    for pod in pods(applied.manifests):
        answer = _make(server, namespace, pod)
        assert answer.status_code == httpx.codes.CREATED, answer.text
        # Warnings of the server: a deprecated field, a variable that is set twice.
        assert answer.headers.get_list("warning") == []
        made.append(answer.json())
    if made:
        assert _unfound(server, namespace, applied) == []


def _unfound(server: ApiServer, namespace: str, applied: Rendered) -> list[str]:
    """Return selectors that match no pod, and ports that no pod has."""
    problems = []
    for item in of_kind(applied.manifests, "Service", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor"):
        spec = item["spec"]
        component = item["metadata"]["labels"]["app.kubernetes.io/component"]
        if component == "sidecar" and applied.name in _SIDECARS_ELSEWHERE:
            continue
        selector = (
            {"matchLabels": spec["selector"]}
            if item["kind"] == "Service"
            else spec["podSelector" if item["kind"] == "NetworkPolicy" else "selector"]
        )
        found = _select(server, f"/api/v1/namespaces/{namespace}/pods", selector)
        name = f"{item['kind']}/{item['metadata']['name']}"
        if not found:
            problems.append(f"{name} selects no pod")
        ports = {
            value for pod in found for port in _ports(pod) for value in (port["name"], port["containerPort"])
        }
        problems += [f"{name}: no pod has port {port}" for port in _asked(item) if port not in ports]
    for item in of_kind(applied.manifests, "ServiceMonitor"):
        found = _select(server, f"/api/v1/namespaces/{namespace}/services", item["spec"]["selector"])
        ports = {port["name"] for service in found for port in service["spec"]["ports"]}
        problems += [
            f"ServiceMonitor: no Service has port {endpoint['port']}"
            for endpoint in item["spec"]["endpoints"]
            if endpoint["port"] not in ports
        ]
    return problems


def _select(server: ApiServer, path: str, selector: Mapping[str, Any]) -> list[dict[str, Any]]:
    wanted = [f"{key}={value}" for key, value in selector.get("matchLabels", {}).items()]
    wanted += [
        f"{expression['key']} {expression['operator'].lower()} ({','.join(expression['values'])})"
        for expression in selector.get("matchExpressions", ())
    ]
    found: list[dict[str, Any]] = server.get(path, labelSelector=",".join(wanted))["items"]
    return found


def _ports(pod: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    containers = (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"])
    return [port for container in containers for port in container.get("ports", ())]


def _asked(one: Mapping[str, Any]) -> list[str | int]:
    """The pods' ports that an object names."""
    spec = one["spec"]
    if one["kind"] == "Service":
        return [port.get("targetPort", port["port"]) for port in spec["ports"]]
    if one["kind"] == "NetworkPolicy":
        return [port["port"] for rule in spec.get("ingress") or () for port in rule.get("ports", ())]
    return [endpoint["port"] for endpoint in spec.get("podMetricsEndpoints", ())]


def test_a_pod_outside_of_the_standard_is_refused(
    server: ApiServer, helm: Helm, namespace: str, tmp_path: Path
) -> None:
    applied = _apply(server, helm, namespace, CHART / "ci" / "gateway.yaml", tmp_path)
    pod = copy.deepcopy(next(pods(applied.manifests)))
    pod["spec"]["containers"][0]["securityContext"]["runAsNonRoot"] = False
    answer = _make(server, namespace, pod)
    assert answer.status_code == httpx.codes.FORBIDDEN
    assert 'violates PodSecurity "restricted' in answer.json()["message"]


def _rights(server: ApiServer, namespace: str, account: str) -> set[tuple[str, str, str]]:
    """Group, kind and verb of all that a service account may do in the namespace."""
    answer = server.http.post(
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        json={"spec": {"namespace": namespace}},
        headers={"impersonate-user": f"system:serviceaccount:{namespace}:{account}"},
    )
    answer.raise_for_status()
    return {
        (group, kind, verb)
        for rule in answer.json()["status"]["resourceRules"]
        for group in rule["apiGroups"]
        for kind in rule["resources"]
        for verb in rule["verbs"]
    }


def test_service_accounts_have_no_rights_but_the_drivers(
    server: ApiServer, namespace: str, applied: Rendered
) -> None:
    nobodys = _rights(server, namespace, "default")
    for item in of_kind(applied.manifests, "ServiceAccount"):
        name = item["metadata"]["name"]
        more = _rights(server, namespace, name) - nobodys
        if name.endswith("-rollup-driver"):
            assert more >= {("", kind, verb) for verb, kind in _DRIVER_MAY}
            assert {(group, kind) for group, kind, _ in more} == {("", kind) for _, kind in _DRIVER_MAY}
        else:
            assert more == set()
            assert item["automountServiceAccountToken"] is False


def test_the_drivers_rights_end_at_its_namespace_and_before_secrets(
    server: ApiServer, helm: Helm, namespace: str, tmp_path: Path
) -> None:
    applied = _apply(server, helm, namespace, _SPARK, tmp_path)
    (account,) = (
        item["spec"]["driver"]["serviceAccount"] for item in of_kind(applied.manifests, "SparkApplication")
    )
    user = f"--as=system:serviceaccount:{namespace}:{account}"

    def may(*what: str, where: str = namespace) -> bool:
        asked = ("auth", "can-i", *what, user, "--namespace", where)
        return server.kubectl(*asked, may_differ=True).strip() == "yes"

    assert may("create", "pods")
    assert not may("create", "pods", "--subresource=exec")
    assert not may("get", "secrets")
    assert not may("create", "roles")
    assert not may("create", "deployments")
    assert not may("create", "pods", where="default")
    assert not may("list", "pods", where="kube-system")
