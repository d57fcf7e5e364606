"""The contents of the distributions: programs and their data, without tests and benchmarks."""

from __future__ import annotations

import re
import shutil
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.release.conftest import TREE, Distributions, build

PACKAGES = ("receiver", "plugins", "spark_streaming")
#: Packages in this folder of the tree are at the top level of the wheel.
PUBLIC_API = Path("receiver/public-api")
#: Read by programs at run time, so that a package without one starts and then fails.
DATA = (
    "receiver/api/console/assets/index.html",
    "receiver/api/console/vendor/modules.json",
    "receiver/cli/presets/dashboards.json",
    "spark_streaming/standard_metrics.json",
    "spark_streaming/log4j2.properties",
    "spark_streaming/decoder/pom.xml",
    "spark_streaming/decoder/jars.sha256",
    "spark_streaming/findings/software_versions.json",
    *(f"{package}/py.typed" for package in (*PACKAGES, "kafka_client_telemetry")),
    "kafka_client_telemetry/plugin.py",
)
IGNORED = {"__pycache__"}
#: What the extension is built from and with; the wheel has what was built, or nothing.
ONLY_IN_THE_SDIST = {".so", ".c"}
BUILD = Path("receiver/native/build.py")
#: A jar of its own, for brokers.
BRIDGE = TREE / "plugins/broker_bridge"


def content_of(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def version_of_the_project() -> str:
    version: str = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]["version"]
    return version


def test_the_wheel_has_each_file_of_the_packages_and_nothing_else(built: Distributions) -> None:
    shipped = {name for name in content_of(built.wheel) if ".dist-info/" not in name}
    in_the_tree = {
        file.relative_to(TREE)
        for package in PACKAGES
        for file in (TREE / package).rglob("*")
        if file.is_file()
        and IGNORED.isdisjoint(file.parts)
        and file.suffix not in ONLY_IN_THE_SDIST
        and not file.is_relative_to(BRIDGE)
    } - {BUILD}
    assert shipped == {
        str(file.relative_to(PUBLIC_API) if file.is_relative_to(PUBLIC_API) else file) for file in in_the_tree
    }
    assert shipped.issuperset(DATA)
    assert any(name.startswith("spark_streaming/postgres/schema/") for name in shipped)
    assert any(name.startswith("spark_streaming/findings/sql/") for name in shipped)
    assert any(name.endswith(".java") for name in shipped)


def test_the_sdist_gives_the_same_wheel_and_the_same_sdist(built: Distributions) -> None:
    assert content_of(built.wheel_again) == content_of(built.wheel)
    with tarfile.open(built.sdist) as first, tarfile.open(built.sdist_again) as second:
        assert second.getnames() == first.getnames()


def test_the_sdist_has_no_tests_and_no_benchmarks(built: Distributions) -> None:
    beside = {entry.name for entry in built.unpacked.iterdir()}.difference(PACKAGES)
    assert beside == {
        ".gitignore",
        "CHANGELOG.md",
        "LICENSE",
        "NOTICE",
        "PKG-INFO",
        "README.md",
        "SECURITY.md",
        "pyproject.toml",
        "requirements.lock",
    }


@pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler")
def test_a_wheel_from_the_sdist_has_the_compiled_data_path_for_every_later_python(
    built: Distributions, tmp_path: Path
) -> None:
    _, wheel = build(built.unpacked, tmp_path, compiled=True)
    assert "-cp311-abi3-linux_" in wheel.name
    content = content_of(wheel)
    assert content.pop("receiver/native/_speedups.abi3.so").startswith(b"\x7fELF")
    assert set(content) - {name for name in content if ".dist-info/" in name} == {
        name for name in content_of(built.wheel) if ".dist-info/" not in name
    }


def test_the_version_heads_the_changelog_or_has_fragments(built: Distributions) -> None:
    version = version_of_the_project()
    assert built.wheel.name == f"kafka_client_telemetry-{version}-py3-none-any.whl"
    assert built.sdist.name == f"kafka_client_telemetry-{version}.tar.gz"
    released = re.findall(r"^## \[(.+?)\] - \d{4}-\d\d-\d\d$", (TREE / "CHANGELOG.md").read_text(), re.M)
    fragments = list((TREE / "docs/changes").glob("+*.md"))
    # Until the release the changes are fragments; the release turns them into the first heading.
    assert (version in released[:1]) != bool(fragments)


def test_the_metadata_name_the_command_the_plugins_and_the_extras(built: Distributions) -> None:
    content = content_of(built.wheel)
    folder = f"kafka_client_telemetry-{version_of_the_project()}.dist-info"
    entry_points = content[f"{folder}/entry_points.txt"].decode()
    assert "kafka-telemetry = receiver.entry:main" in entry_points
    project = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
    metadata = Parser().parsestr(content[f"{folder}/METADATA"].decode())
    assert metadata.get_all("Provides-Extra") == sorted(project["optional-dependencies"])
    assert metadata["Requires-Python"] == project["requires-python"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"] == "The Kafka Client Telemetry authors"
    assert {f"{folder}/licenses/LICENSE", f"{folder}/licenses/NOTICE"} <= set(content)
    assert len(metadata.get_all("Project-URL", [])) == len(project["urls"])
