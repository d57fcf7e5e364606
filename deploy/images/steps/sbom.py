"""Writes the SBOM of an image as CycloneDX 1.6 JSON: Debian's packages, Python's and jars.

It reads what is installed (dpkg's status, ``.dist-info`` folders, Maven's records in jars), and no
lock or list. It uses the standard library only, because it runs inside the image. The same files
give the same bytes. Sources: ECMA-424 (CycloneDX) and the package URL specification.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

Component = dict[str, Any]

_PROJECT: Final = "kafka-client-telemetry"
_JAR: Final = re.compile(r"(?P<name>.+?)-(?P<version>\d[\w.\-]*)\.jar")


def bill_of_materials(root: Path, environment: Path) -> Mapping[str, Any]:
    """Return the document for an image's root folder and its Python environment."""
    python = {package["name"]: package for package in _python(environment)}
    if _PROJECT not in python:
        raise ValueError(f"{environment}: {_PROJECT} is not installed there")
    project = {**python.pop(_PROJECT), "type": "application"}
    components = [*python.values(), *_debian(root), *_jars(environment)]
    # The same jar may be in the environment and among the additional jars of Spark.
    by_reference = {component["bom-ref"]: component for component in components}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": project},
        "components": [by_reference[reference] for reference in sorted(by_reference)],
    }


def _component(purl: str, name: str, version: str, **more: Any) -> Component:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, **more}


def _python(environment: Path) -> Iterator[Component]:
    for folder in environment.glob("lib/python3*/site-packages"):
        for found in distributions(path=[str(folder)]):
            name = re.sub(r"[-_.]+", "-", found.name).lower()
            purl = f"pkg:pypi/{quote(name)}@{quote(found.version, safe='')}"
            yield _component(purl, name, found.version, **_licence(found))


def _licence(found: Distribution) -> Component:
    for expression in found.metadata.get_all("License-Expression", []):
        return {"licenses": [{"expression": expression}]}
    # Some packages have the whole text of the licence there.
    named = [text for text in found.metadata.get_all("License", []) if text and "\n" not in text]
    return {"licenses": [{"license": {"name": text}} for text in named]} if named else {}


def _debian(root: Path) -> Iterator[Component]:
    release = _fields(root / "etc/os-release", "=")
    distribution = f"{release['ID']}-{release['VERSION_ID']}"
    for paragraph in (root / "var/lib/dpkg/status").read_text("utf-8").strip().split("\n\n"):
        found = dict(re.findall(r"^(Package|Status|Version|Architecture): (.+)$", paragraph, re.MULTILINE))
        if found["Status"].endswith(" installed"):
            name, version = found["Package"], found["Version"]
            purl = (
                f"pkg:deb/{release['ID']}/{quote(name)}@{quote(version, safe='')}"
                f"?arch={found['Architecture']}&distro={distribution}"
            )
            yield _component(purl, name, version)


def _fields(file: Path, separator: str) -> dict[str, str]:
    lines = (line.partition(separator) for line in file.read_text("utf-8").splitlines())
    return {name: value.strip('"') for name, _, value in lines}


def _jars(environment: Path) -> Iterator[Component]:
    for jar in environment.rglob("*.jar"):
        digest = hashlib.sha256(jar.read_bytes()).hexdigest()
        name, version, group = _coordinates(jar)
        number = f"@{quote(version, safe='')}" if version else ""
        kind = f"maven/{quote(group)}" if group else "generic"
        purl = f"pkg:{kind}/{quote(name)}{number}?checksum=sha256:{digest}"
        yield _component(purl, name, version, hashes=[{"alg": "SHA-256", "content": digest}])


def _coordinates(jar: Path) -> tuple[str, str, str]:
    """Return name, version and group from Maven's record or the file name; unknown: empty."""
    named = _JAR.fullmatch(jar.name)
    name, version = (str(named["name"]), str(named["version"])) if named else (jar.stem, "")
    with zipfile.ZipFile(jar) as archive:
        for entry in archive.namelist():
            # A jar with other jars in it has their records too.
            if entry.startswith("META-INF/maven/") and entry.endswith(f"/{name}/pom.properties"):
                found = dict(re.findall(r"^(\w+)=(\S+)", archive.read(entry).decode(), re.MULTILINE))
                return name, str(found.get("version", version)), str(found.get("groupId", ""))
    return name, version, ""


def _main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    found = bill_of_materials(given.root, given.python)
    given.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    _main()
