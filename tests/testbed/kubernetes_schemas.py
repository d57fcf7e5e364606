"""Builds the JSON schemas of Kubernetes and of custom resources for kubeconform.

Those of the releases are in a package on PyPI, which is read and not installed. All are made
strict: a field that a schema does not know is a mistake, as it is to a real API server that is
asked to be strict.
"""

from __future__ import annotations

import json
import os
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.testbed.commands import BuildError, CommandError, output, run

HERE: Final = Path(__file__).parent / "kubernetes"
REQUIREMENTS: Final = HERE / "schemas" / "requirements.txt"

#: The folder of the definitions of custom resources.
DEFINITIONS: Final = "definitions"

#: The oldest release that the chart is for, and the newest that there are schemas of.
OLDEST: Final = "1.29.0"
NEWEST: Final = "1.37.0"
RELEASES: Final = (OLDEST, NEWEST)
#: Names of files, in kubeconform's words; a release's folder comes first.
TEMPLATES: Final = tuple(
    f"{folder}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    for folder in ("{{.NormalizedKubernetesVersion}}", "crds")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CustomResources:
    """Files of a Go module with custom resources that the chart makes.

    Attributes:
        module: Its path and version.
        checksum: As in go.sum.
        folder: The files' folder.
        files: Their names.
    """

    module: str
    checksum: str
    folder: str
    files: tuple[str, ...]


_CUSTOM_RESOURCES: Final = (
    _CustomResources(
        module="github.com/prometheus-operator/prometheus-operator@v0.93.0",
        checksum="h1:AohlYJT+En8TmNpAcEUJ3GsaJTAqfEBwHmGTVpRm/Io=",
        folder="example/prometheus-operator-crd",
        files=(
            "monitoring.coreos.com_podmonitors.yaml",
            "monitoring.coreos.com_prometheusrules.yaml",
            "monitoring.coreos.com_servicemonitors.yaml",
        ),
    ),
    _CustomResources(
        module="github.com/grafana/grafana-operator/v5@v5.24.0",
        checksum="h1:7NvVn7J7hknBBWte99giWEK4TV5qYfZdvDIW8WeU3oU=",
        folder="config/crd/bases",
        files=("grafana.integreatly.org_grafanadashboards.yaml",),
    ),
    _CustomResources(
        module="github.com/kubeflow/spark-operator/v2@v2.5.2",
        checksum="h1:6nX2UhwSfnYi1mtwczgFfJTMeLSL/1ajTvkFe8R7Vdc=",
        folder="config/crd/bases",
        files=("sparkoperator.k8s.io_sparkapplications.yaml",),
    ),
)

_IN_PACKAGE: Final = "kubernetes_validate/kubernetes-json-schema/v{}-local/"
_DEFINITIONS: Final = "_definitions.json"
_TIMEOUT_S: Final = 600.0


def build(folder: Path) -> None:
    """Fill ``folder`` with ``v1.29.0/deployment-apps-v1.json`` and the like, and ``crds/...``.

    The definitions of custom resources, for an API server, go into :data:`DEFINITIONS`.

    Raises:
        BuildError: A package or module could not be downloaded, or is not what its hash says.
    """
    download = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    run([*download, "--no-deps", "--require-hashes", "--requirement", REQUIREMENTS, "--dest", folder])
    (package,) = folder.glob("*.whl")
    with zipfile.ZipFile(package) as archive:
        for release in RELEASES:
            _extract(archive, _IN_PACKAGE.format(release), folder / f"v{release}")
    package.unlink()
    (folder / "crds").mkdir()
    (folder / DEFINITIONS).mkdir()
    for source in _CUSTOM_RESOURCES:
        for file in _downloaded(source):
            definition = without_descriptions(yaml.load(file.read_text(), yaml.CSafeLoader))
            (folder / DEFINITIONS / file.name).write_text(yaml.dump(definition, Dumper=yaml.CSafeDumper))
            _convert(definition["spec"], folder / "crds")


def _downloaded(source: _CustomResources) -> list[Path]:
    command = ["go", "mod", "download", "-json", source.module]
    try:
        said = json.loads(output(command, env=os.environ, timeout_s=_TIMEOUT_S, error=CommandError))
    except CommandError as error:
        raise BuildError(f"{source.module} could not be downloaded: {error}") from None
    if said["Sum"] != source.checksum:
        raise BuildError(f"{source.module} has the checksum {said['Sum']} instead of {source.checksum}")
    return [Path(said["Dir"]) / source.folder / name for name in source.files]


def _extract(archive: zipfile.ZipFile, prefix: str, folder: Path) -> None:
    folder.mkdir()
    for name in archive.namelist():
        if name.startswith(prefix) and name.endswith(".json"):
            text = archive.read(name).decode().replace(f'"/api/{_DEFINITIONS}#', f'"{_DEFINITIONS}#')
            schema = json.loads(text)
            # The schema's address, which relative references would otherwise start at.
            schema.pop("$id", None)
            (folder / name.removeprefix(prefix)).write_text(json.dumps(_strict(without_descriptions(schema))))


def _convert(crd: dict[str, Any], folder: Path) -> None:
    for version in crd["versions"]:
        suffix = f"{crd['group'].split('.')[0]}-{version['name']}"
        schema = _strict(version["schema"]["openAPIV3Schema"])
        (folder / f"{crd['names']['kind'].lower()}-{suffix}.json").write_text(json.dumps(schema))


def without_descriptions(schema: Any) -> Any:
    """Return a JSON or OpenAPI schema without descriptions, which check nothing."""
    if isinstance(schema, list):
        return [without_descriptions(column) for column in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: without_descriptions(item) for name, item in value.items()}
        if key in {"properties", "$defs"}
        else without_descriptions(value)
        for key, value in schema.items()
        if key != "description"
    }


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(column) for column in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {
        key: {name: _strict(item) for name, item in value.items()}
        if key in {"properties", "$defs"}
        else _strict(value)
        for key, value in schema.items()
    }
    if "properties" in strict and not strict.get("x-kubernetes-preserve-unknown-fields"):
        strict.setdefault("additionalProperties", False)
    return strict
