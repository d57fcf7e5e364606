"""Reads a namespace's objects, and makes the pods that controllers would make of them."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tests.testbed.helm import Manifest, of_kind, pod_templates
from tests.testbed.kubernetes import ApiServer

_WORKLOADS: Final = frozenset({"Deployment", "StatefulSet", "Job", "CronJob", "SparkApplication"})
#: Objects not made by Helm: the server's reports, and what a controller would make in each
#: namespace.
_OTHERS: Final = frozenset({"ServiceAccount/default"})


def names(manifests: Sequence[Manifest]) -> frozenset[str]:
    """Objects by ``Kind/name``."""
    return frozenset(f"{manifest['kind']}/{manifest['metadata']['name']}" for manifest in manifests)


@functools.cache
def _kinds(server: ApiServer) -> str:
    printed = server.kubectl("api-resources", "--namespaced", "--verbs=list,delete", "--output=name")
    return ",".join(kind for kind in printed.split() if not kind.startswith("events"))


def objects(server: ApiServer, namespace: str) -> frozenset[str]:
    """Return a namespace's objects by name, without Helm's records and deleted ones."""
    found = json.loads(server.kubectl("get", _kinds(server), "--namespace", namespace, "--output=json"))[
        "items"
    ]
    return (
        names(
            [
                item
                for item in found
                if "deletionTimestamp" not in item["metadata"]
                and item["metadata"].get("labels", {}).get("owner") != "helm"
            ]
        )
        - _OTHERS
    )


def workloads(server: ApiServer, namespace: str) -> frozenset[str]:
    """Return the objects of a namespace that make pods."""
    return frozenset(
        object_ for object_ in objects(server, namespace) if object_.partition("/")[0] in _WORKLOADS
    )


def pods(manifests: Sequence[Manifest]) -> Iterator[dict[str, Any]]:
    """A pod of each workload, and all of a StatefulSet, as its controller would make them."""
    sets = {
        f"StatefulSet/{item['metadata']['name']}": item["spec"] for item in of_kind(manifests, "StatefulSet")
    }
    for name, template in pod_templates(manifests).items():
        volumes = [
            {"name": claim["metadata"]["name"], "persistentVolumeClaim": {"claimName": "claim-0"}}
            for claim in sets.get(name, {}).get("volumeClaimTemplates", ())
        ]
        for number in range(sets[name].get("replicas", 1) if name in sets else 1):
            index = {"apps.kubernetes.io/pod-index": str(number)} if name in sets else {}
            yield _pod(
                template["metadata"].get("labels", {}) | index,
                {**template["spec"], "volumes": template["spec"].get("volumes", []) + volumes},
            )
    for item in of_kind(manifests, "SparkApplication"):
        yield _spark_pod(item["spec"], "driver")
        yield _spark_pod(item["spec"], "executor")


def _pod(labels: Mapping[str, str], spec: Mapping[str, Any]) -> dict[str, Any]:
    # A CronJob's and a Job's template say it themselves; the others' pods are never at an end.
    return {"metadata": {"generateName": "pod-", "labels": dict(labels)}, "spec": dict(spec)}


def _spark_pod(application: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Return the pods that the operator and Spark make."""
    told = application[role]
    container = {
        "name": f"spark-kubernetes-{role}",
        "image": application["image"],
        "securityContext": told["securityContext"],
        "volumeMounts": told["volumeMounts"],
        "ports": told.get("ports", []),
    }
    spec = {
        "restartPolicy": "Never",
        "securityContext": told["podSecurityContext"],
        "containers": [container],
        "volumes": application["volumes"],
    }
    return _pod(
        told["labels"], spec | ({"serviceAccountName": told["serviceAccount"]} if role == "driver" else {})
    )
