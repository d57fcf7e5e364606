"""``make images`` without an engine: builds the images as OCI archives, for this processor.

    python -m tests.images OUT

It needs root and debootstrap. ``docker load``, ``podman load``, ``ctr image import`` and
``kind load image-archive`` take the files.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from deploy.project import PROJECT
from tests.images import archive, engine
from tests.images.test_files import PUBLISHED
from tests.testbed.commands import BuildError


def _filled(label: str) -> str:
    """Put the build's arguments into a label, as an engine does."""
    revision = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=engine.TREE, capture_output=True, text=True, check=True
    ).stdout.strip()
    return label.replace("${VERSION}", PROJECT["version"]).replace("${REVISION}", revision)


def main() -> int:
    """Run the command line; the result is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.images")
    parser.add_argument("out", type=Path, help="the folder for the archives")
    out: Path = parser.parse_args().out
    if shutil.which("debootstrap") is None:
        sys.stderr.write("images: debootstrap is missing (Debian: apt-get install debootstrap)\n")
        return 1
    architecture = archive.ARCHITECTURES[platform.machine()]
    out.mkdir(parents=True, exist_ok=True)
    for name in PUBLISHED:
        reference = f"ghcr.io/kafka-client-telemetry/{name}:{PROJECT['version']}"
        file = out / f"{name}-{PROJECT['version']}-{architecture}.tar"
        try:
            image = engine.built(name)
            image.labels = {key: _filled(value) for key, value in image.labels.items()}
            digest = archive.write(image, reference, file, architecture=architecture)
        except BuildError as error:
            sys.stderr.write(f"images: {error}\n")
            return 1
        sys.stdout.write(f"{file}: {reference}@{digest}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
