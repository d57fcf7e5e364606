"""Each feature's manifests are valid, its pods restricted, its configurations loadable."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from receiver.cli import app
from spark_streaming.load import load as load_rollup
from tests.helm.configurations import configurations
from tests.helm.features import Rendered
from tests.helm.pod_security import violations
from tests.testbed import kubernetes_schemas
from tests.testbed.helm import Helm, Manifest, of_kind, pod_templates

_SECRETS_KEY = re.compile(
    r"password|secret$|token$|authorization|cookie|api.?key|jaas|credential", re.IGNORECASE
)
_URL_WITH_PASSWORD = re.compile(r"\w+://[^/\s:@]+:[^/\s@]+@")

#: Groups of the testbed's custom resources.
_CUSTOM = {"monitoring.coreos.com", "grafana.integreatly.org", "sparkoperator.k8s.io"}

_WRONG = """
apiVersion: v1
kind: Service
metadata: {name: misspelt}
spec: {porst: []}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata: {name: misspelt}
spec: {selector: {}, podMetricsEndpoints: [{prot: rest}]}
---
apiVersion: example.com/v1
kind: Unknown
metadata: {name: unknown}
"""


@pytest.mark.parametrize("release", kubernetes_schemas.RELEASES)
def test_kubernetes_knows_every_field(
    helm: Helm, all_rendered: Mapping[Path, Rendered], release: str, tmp_path: Path
) -> None:
    for item in all_rendered.values():
        (tmp_path / item.name).write_text(item.text)
    assert helm.check(tmp_path, release) == []


def test_a_field_that_kubernetes_does_not_know_is_found(helm: Helm, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(_WRONG)
    found = helm.check(tmp_path, kubernetes_schemas.NEWEST)
    assert len(found) == 3
    assert all(any(word in item for item in found) for word in ("'porst'", "'prot'", "schema for Unknown"))


def test_a_feature_without_its_name_needs_no_custom_resources(rendered: Rendered) -> None:
    groups = {manifest["apiVersion"].rpartition("/")[0] for manifest in rendered.manifests}
    assert bool(groups & _CUSTOM) == rendered.name.startswith("crds-")


def test_no_right_reaches_beyond_the_namespace(rendered: Rendered) -> None:
    assert of_kind(rendered.manifests, "ClusterRole", "ClusterRoleBinding") == []


def test_pods_are_within_the_restricted_standard(rendered: Rendered) -> None:
    pods = {name: template["spec"] for name, template in pod_templates(rendered.manifests).items()}
    pods |= {item["metadata"]["name"]: item["spec"] for item in of_kind(rendered.manifests, "Pod")}
    pods |= dict(_spark_pods(rendered.manifests))
    assert {name: found for name, pod in pods.items() if (found := violations(pod))} == {}


def _spark_pods(manifests: Sequence[Manifest]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pods that the Spark operator creates, as far as the manifest describes them."""
    for item in of_kind(manifests, "SparkApplication"):
        for role in ("driver", "executor"):
            pod = item["spec"][role]
            yield (
                f"{role} of {item['metadata']['name']}",
                {
                    "securityContext": pod["podSecurityContext"],
                    "containers": [{"name": role, "securityContext": pod["securityContext"]}],
                    "volumes": item["spec"]["volumes"],
                },
            )


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(pod: dict[str, Any]) -> None:
        *way, last = path.split(".")
        at: Any = pod
        for name in way:
            at = at[int(name)] if isinstance(at, list) else at[name]
        at[last] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("hostNetwork", True),
        _set("securityContext.sysctls", [{"name": "net.core.somaxconn", "value": "1024"}]),
        _set("volumes", [{"name": "node", "hostPath": {"path": "/"}}]),
        _set("containers.0.securityContext.privileged", True),
        _set("containers.0.securityContext.allowPrivilegeEscalation", True),
        _set("containers.0.securityContext.capabilities", {"drop": ["NET_RAW"]}),
        _set("containers.0.securityContext.capabilities", {"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
        _set("containers.0.securityContext.runAsNonRoot", False),
        _set("containers.0.securityContext.runAsUser", 0),
        _set("containers.0.securityContext.seccompProfile", {"type": "Unconfined"}),
        _set("containers.0.securityContext.procMount", "Unmasked"),
        _set("containers.0.securityContext.readOnlyRootFilesystem", False),
        _set("containers.0.ports.0.hostPort", 9092),
    ],
)
def test_a_pod_outside_of_the_standard_is_found(helm: Helm, change: Callable[[dict[str, Any]], None]) -> None:
    gateway = {"enabled": True, "brokers": [{"id": 1, "upstream": "b:9092", "port": 19092}]}
    values = {"gateway": gateway, "configCheck": {"enabled": False}}
    manifests = [item for item in yaml.safe_load_all(helm.template(values)) if item]
    ((_, template),) = pod_templates(manifests).items()
    pod = copy.deepcopy(template["spec"])
    assert violations(pod) == []
    change(pod)
    assert len(violations(pod)) == 1


def test_the_programs_accept_their_configurations(rendered: Rendered, tmp_path: Path) -> None:
    found = configurations(rendered.manifests)
    assert found
    for item in found:
        file = item.write(tmp_path)
        if item.rollup:
            load_rollup(file, {})
        else:
            done = CliRunner().invoke(app, ["config", "check", str(file)], env=dict(item.environment))
            assert done.exit_code == 0, f"{item.name}: {done.output}"


def test_files_that_a_configuration_names_are_mounted(rendered: Rendered) -> None:
    missing = [
        (configuration.name, path)
        for configuration in configurations(rendered.manifests)
        if configuration.mounts is not None
        for path in configuration.secret_files
        if not any(path.startswith(f"{mount}/") for mount in configuration.mounts)
    ]
    assert missing == []


def test_no_manifest_has_a_secret(rendered: Rendered) -> None:
    assert of_kind(rendered.manifests, "Secret") == []
    assert _URL_WITH_PASSWORD.findall(rendered.text) == []
    for manifest in rendered.manifests:
        assert list(_secrets(manifest)) == [], manifest["metadata"]["name"]
    for configuration in configurations(rendered.manifests):
        assert list(_secrets(yaml.safe_load(configuration.text))) == [], configuration.name


def _secrets(value: Any, name: str = "") -> Iterator[str]:
    """Yield names of keys and container variables whose text looks like a secret."""
    if isinstance(value, dict):
        if isinstance(value.get("name"), str) and isinstance(value.get("value"), str):
            yield from _secrets(value["value"], value["name"])
        for key, item in value.items():
            yield from _secrets(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _secrets(item)
    elif isinstance(value, str) and _SECRETS_KEY.search(name):
        yield name


def test_a_secret_that_stands_as_text_is_found() -> None:
    text = "{containers: [{env: [{name: PGPASSWORD, value: a}]}], plugins: [{headers: {authorization: b}}]}"
    assert list(_secrets(yaml.safe_load(text))) == ["PGPASSWORD", "authorization"]
