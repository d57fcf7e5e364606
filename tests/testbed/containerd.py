"""Builds containerd from its module, which the Go proxy has.

This recipe has a file of its own, because a change of the file rebuilds the node's programs.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Final

from tests.testbed.commands import BuildError, CommandError, output, run
from tests.testbed.parts import CONTAINERD_VERSION

_MODULE: Final = "github.com/containerd/containerd/v2"
#: Of the module, as in a go.sum. Its own go.sum has those of its dependencies.
_SUM: Final = "h1:ddw9THGOXhcKnHORjkKoXtazPjwtcPwmqk8AVyRpfZw="
_PROGRAMS: Final = ("containerd", "ctr", "containerd-shim-runc-v2")
#: Static, and without the snapshotters that nobody uses here.
_TAGS: Final = "osusergo netgo static_build no_btrfs no_zfs no_devmapper"
_DOWNLOAD_WITHIN_S: Final = 600.0


def build(folder: Path) -> None:
    """Build containerd, its shim and its client.

    Raises:
        BuildError: The module is not to be had, is another one, or can't be built.
    """
    source = folder / "containerd-source"
    shutil.copytree(_download(folder), source, copy_function=shutil.copy)
    for path in source.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    source.chmod(0o755)
    packages: list[str | Path] = [f"./cmd/{program}" for program in _PROGRAMS]
    flags: list[str | Path] = ["-trimpath", "-ldflags", "-s -w", "-tags", _TAGS, "-o", folder]
    environment = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -buildvcs=false"}
    run(["go", "build", *flags, *packages], cwd=source, env=environment)
    shutil.rmtree(source)


def _download(folder: Path) -> Path:
    """Return the module's folder in Go's cache."""
    wanted = f"{_MODULE}@v{CONTAINERD_VERSION}"
    (folder / "go.mod").write_text("module kafka-client-telemetry/testbed/containerd\n\ngo 1.26.0\n")
    try:
        printed = output(
            ["go", "-C", folder, "mod", "download", "-json", wanted],
            env=dict(os.environ),
            timeout_s=_DOWNLOAD_WITHIN_S,
            error=CommandError,
        )
    except CommandError as error:
        raise BuildError(f"{wanted}: {error}") from None
    (folder / "go.mod").unlink()
    module = json.loads(printed)
    if module["Sum"] != _SUM:
        raise BuildError(f"{wanted}: its checksum is {module['Sum']}, not {_SUM}")
    return Path(module["Dir"])
