"""Runs Helm, helm-unittest and kubeconform, by default on this project's chart.

No setting, plugin or cache of the machine's Helm takes part: its folders are of the caller's
choice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.testbed import kubernetes_schemas, parts
from tests.testbed.commands import CommandError, output

CHART: Final = Path(__file__).parents[2] / "deploy" / "helm" / "kafka-client-telemetry"
#: What the chart is tried with: a file for each of its features.
CI_VALUES: Final = tuple(sorted((CHART / "ci").glob("*.yaml")))
RELEASE: Final = "telemetry"
NAMESPACE: Final = "kafka"

_TIMEOUT_S: Final = 300.0

Manifest = Mapping[str, Any]


class HelmError(CommandError):
    """Helm or one of its companions failed; the message is what it said."""


class Helm:
    """Helm with folders of its own.

    Args:
        folder: Where it may write.
        kubeconfig: The cluster that it talks to; None: it reaches none.
    """

    def __init__(self, folder: Path, kubeconfig: Path | None = None) -> None:
        folders = {f"HELM_{kind}_HOME": str(folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        #: Of Helm, and of what runs it.
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE"))},
            **folders,
            "KUBECONFIG": str(kubeconfig or folder / "none"),
        }

    def run(self, *arguments: str | Path, program: str = "helm", stdin: str = "") -> str:
        """What ``helm ARGUMENTS`` prints on standard output, or another program of the part.

        Raises:
            HelmError: It failed, or took too long.
        """
        command = [parts.HELM.require() / program, *arguments]
        return output(command, env=self.environment, stdin=stdin, timeout_s=_TIMEOUT_S, error=HelmError)

    def template(self, values: Path | Mapping[str, Any], *arguments: str, chart: Path = CHART) -> str:
        """The chart's manifests with ``values`` over its own, as one text.

        Raises:
            HelmError: The values or the templates are wrong.
        """
        file, text = (values, "") if isinstance(values, Path) else ("-", yaml.safe_dump(dict(values)))
        return self.run(
            "template", RELEASE, chart, "--namespace", NAMESPACE, "--values", file, *arguments, stdin=text
        )

    def check(self, folder: Path, release: str) -> list[str]:
        """Check a folder's manifests with kubeconform by a Kubernetes release's schemas.

        Strictly: a field or a kind that there is no schema of is a complaint too.

        Raises:
            HelmError: There is nothing to check.
        """
        schemas = parts.KUBERNETES_SCHEMAS.require()
        locations = [f"-schema-location={schemas}/{template}" for template in kubernetes_schemas.TEMPLATES]
        options = ("-strict", "-output=json", "-verbose", f"-kubernetes-version={release}")
        try:
            printed = self.run(*options, *locations, folder, program="kubeconform")
        except HelmError as error:
            printed = str(error)
        if not printed.startswith("{"):
            raise HelmError(printed)
        resources = json.loads(printed)["resources"]
        if not resources:
            raise HelmError(f"kubeconform found no manifests in {folder}")
        return [
            f"{Path(resource['filename']).name}: {resource['kind']} {resource['name']}: "
            f"{resource['msg'] or resource['status']}"
            for resource in resources
            if resource["status"] != "statusValid"
        ]


def parse(manifests: str) -> list[Manifest]:
    """The objects of a text of manifests."""
    return [item for item in yaml.load_all(manifests, yaml.CSafeLoader) if item]


def of_kind(manifests: Sequence[Manifest], *kinds: str) -> list[Manifest]:
    """The objects of some kinds."""
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def pod_templates(manifests: Sequence[Manifest]) -> dict[str, dict[str, Any]]:
    """The pods that workloads make, by ``Kind/name``: each a pod's ``metadata`` and ``spec``."""
    found = {}
    for item in of_kind(manifests, "Deployment", "StatefulSet", "Job", "CronJob"):
        spec = item["spec"]["jobTemplate"]["spec"] if item["kind"] == "CronJob" else item["spec"]
        found[f"{item['kind']}/{item['metadata']['name']}"] = spec["template"]
    return found
