"""Builds the JSON schemas of Kubernetes and of custom resources for kubeconform.

Those of the releases are in a package on PyPI, which is read and not installed. All are made
strict: a field that a schema does not know is a mistake, as it is to a real API server that is
asked to be strict.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any, Final

import yaml

from tests.testbed.commands import run
from tests.testbed.shorten_crd import without_descriptions

HERE: Final = Path(__file__).parent / "kubernetes"
REQUIREMENTS: Final = HERE / "schemas" / "requirements.txt"
CRDS: Final = HERE / "crds"

#: The oldest release that the chart is for, and the newest that there are schemas of.
OLDEST: Final = "1.29.0"
NEWEST: Final = "1.37.0"
RELEASES: Final = (OLDEST, NEWEST)
#: Names of files, in kubeconform's words; a release's folder comes first.
TEMPLATES: Final = tuple(
    f"{folder}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    for folder in ("{{.NormalizedKubernetesVersion}}", "crds")
)

_IN_PACKAGE: Final = "kubernetes_validate/kubernetes-json-schema/v{}-local/"
_DEFINITIONS: Final = "_definitions.json"


def build(folder: Path) -> None:
    """Fill ``folder`` with ``v1.29.0/deployment-apps-v1.json`` and the like, and ``crds/...``.

    Raises:
        BuildError: The package could not be downloaded, or is not what its hash says.
    """
    download = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    run([*download, "--no-deps", "--require-hashes", "--requirement", REQUIREMENTS, "--dest", folder])
    (package,) = folder.glob("*.whl")
    with zipfile.ZipFile(package) as archive:
        for release in RELEASES:
            _extract(archive, _IN_PACKAGE.format(release), folder / f"v{release}")
    package.unlink()
    (folder / "crds").mkdir()
    for file in CRDS.glob("*.yaml"):
        _convert(yaml.load(file.read_text(), yaml.CSafeLoader)["spec"], folder / "crds")


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


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {
        key: {name: _strict(one) for name, one in value.items()}
        if key in {"properties", "$defs"}
        else _strict(value)
        for key, value in schema.items()
    }
    if "properties" in strict and not strict.get("x-kubernetes-preserve-unknown-fields"):
        strict.setdefault("additionalProperties", False)
    return strict
