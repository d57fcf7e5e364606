"""An OCI archive has the root folder, and how its program runs, by digests that are right."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.images import archive
from tests.images.engine import Image

NAME = "ghcr.io/owner/receiver:1.2.3"


@pytest.fixture
def image(tmp_path: Path) -> Image:
    root = tmp_path / "root"
    for folder in ("bin", "proc", "dev", "tmp"):
        (root / folder).mkdir(parents=True)
    (root / "bin" / "program").write_text("#!/bin/sh\n")
    (root / "bin" / "program").chmod(0o755)
    (root / "bin" / "other").symlink_to("program")
    (root / "proc" / "leftover").write_text("")
    (root / "tmp").chmod(0o1777)
    return Image(
        root=root,
        environment={"PATH": "/bin"},
        labels={"title": "a program"},
        folder="/var/lib/program",
        user="10001:10001",
        entrypoint=["program"],
        command=["serve"],
    )


def blob(opened: tarfile.TarFile, described: dict[str, Any]) -> bytes:
    """A blob that another one describes, checked against its digest and size."""
    extracted = opened.extractfile("blobs/" + described["digest"].replace(":", "/"))
    assert extracted is not None
    data = extracted.read()
    assert described["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert described["size"] == len(data)
    return data


def test_it_has_the_root_folder_and_how_its_program_runs(image: Image, tmp_path: Path) -> None:
    file = tmp_path / "image.tar"
    digest = archive.write(image, NAME, file, architecture="arm64")
    with tarfile.open(file) as opened:
        layout = opened.extractfile("oci-layout")
        index = opened.extractfile("index.json")
        assert layout is not None
        assert index is not None
        assert json.load(layout) == {"imageLayoutVersion": "1.0.0"}
        (described,) = json.load(index)["manifests"]
        assert described["digest"] == digest
        assert described["platform"] == {"architecture": "arm64", "os": "linux"}
        assert described["annotations"]["io.containerd.image.name"] == NAME
        assert described["annotations"]["org.opencontainers.image.ref.name"] == "1.2.3"
        manifest = json.loads(blob(opened, described))
        config = json.loads(blob(opened, manifest["config"]))
        (layer,) = manifest["layers"]
        content = blob(opened, layer)
    assert config == {
        "architecture": "arm64",
        "os": "linux",
        "config": {
            "User": "10001:10001",
            "Env": ["PATH=/bin"],
            "Entrypoint": ["program"],
            "Cmd": ["serve"],
            "WorkingDir": "/var/lib/program",
            "Labels": {"title": "a program"},
        },
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    with tarfile.open(fileobj=io.BytesIO(content)) as root:
        assert root.getnames() == ["bin", "bin/other", "bin/program", "dev", "proc", "tmp"]
        assert root.getmember("bin/program").mode == 0o755
        assert root.getmember("bin/other").linkname == "program"
        assert root.getmember("tmp").mode == 0o1777
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image.tar", "root"]
