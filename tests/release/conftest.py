"""The distributions, built once from this tree, and environments with nothing else in them."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distributions:
    """The distributions of a release.

    Attributes:
        sdist: The source distribution, from the tree.
        wheel: The wheel, from the tree.
        unpacked: The sdist's only folder.
        sdist_again: An sdist made of the unpacked one.
        wheel_again: A wheel made of the unpacked one.
    """

    sdist: Path
    wheel: Path
    unpacked: Path
    sdist_again: Path
    wheel_again: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Both distributions from the tree, and both again from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    sdist, wheel = build(TREE, folder / "first")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    sdist_again, wheel_again = build(unpacked, folder / "second")
    return Distributions(
        sdist=sdist, wheel=wheel, unpacked=unpacked, sdist_again=sdist_again, wheel_again=wheel_again
    )


def build(source: Path, folder: Path, *, compiled: bool = False) -> tuple[Path, Path]:
    """Build the sdist and the wheel of a project, in pure Python unless it is compiled."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", folder],
        cwd=source,
        env={**os.environ, "KAFKA_TELEMETRY_PURE_PYTHON": "" if compiled else "1"},
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=600,
    )
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def install(folder: Path, lock: Path, wheel: Path) -> Path:
    """Create an environment with the packages of ``lock`` and the wheel; return its ``bin``."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=600)
    _pip(environment, "sync", "--require-hashes", lock)
    install_wheel(environment, wheel)
    return environment / "bin"


def install_wheel(environment: Path, wheel: Path) -> None:
    """Add a wheel to an environment that has its dependencies."""
    _pip(environment, "install", "--no-deps", "--offline", wheel)
    _pip(environment, "check")


def _pip(environment: Path, command: str, *arguments: str | Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    subprocess.run(
        [uv, "pip", command, "--quiet", "--python", environment, *arguments], check=True, timeout=300
    )
