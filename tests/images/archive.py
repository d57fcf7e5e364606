"""Writes a root folder as an OCI image archive, which engines and containerd load.

One uncompressed layer. Nothing runs, so it needs no engine and no daemon. Source: OCI image format
specification 1.1 (image layout, manifest, configuration).
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.images.engine import Image

_PREFIX: Final = "application/vnd.oci.image"
_PIECE: Final = 1 << 20
#: Mount points, whose contents are the engine's.
_ENGINES: Final = ("dev/", "proc/", "sys/")
#: Linux's names of processors in Go's words, which the format uses.
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def write(image: Image, name: str, file: Path, *, architecture: str) -> str:
    """Write an archive.

    Args:
        image: A built image.
        name: With its tag: ``ghcr.io/owner/receiver:1.0.0``.
        file: Where the archive goes.
        architecture: The processor, in Go's word.

    Returns:
        The manifest's digest, ``sha256:...``.
    """
    layer = file.with_name(f"{file.name}.layer")
    try:
        _write_layer(image.root, layer)
        digest = _digest(layer)
        config = _json(_config(image, digest, architecture))
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": f"{_PREFIX}.manifest.v1+json",
                "config": _described("config.v1+json", config),
                "layers": [
                    {
                        "mediaType": f"{_PREFIX}.layer.v1.tar",
                        "digest": digest,
                        "size": layer.stat().st_size,
                    }
                ],
            }
        )
        described = _described("manifest.v1+json", manifest) | {
            "platform": {"architecture": architecture, "os": "linux"},
            "annotations": {
                "io.containerd.image.name": name,
                "org.opencontainers.image.ref.name": name.rpartition(":")[2],
            },
        }
        with tarfile.open(file, "w") as archive:
            _put(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
            _put(archive, "index.json", _json({"schemaVersion": 2, "manifests": [described]}))
            for blob in (config, manifest):
                _put(archive, _blob(f"sha256:{hashlib.sha256(blob).hexdigest()}"), blob)
            archive.add(layer, arcname=_blob(digest))
    finally:
        layer.unlink(missing_ok=True)
    return str(described["digest"])


def _write_layer(root: Path, layer: Path) -> None:
    with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as archive:
        for entry in sorted(root.iterdir()):
            archive.add(entry, arcname=entry.name, filter=_kept)


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.isdev() or entry.name.startswith(_ENGINES) else entry


def _config(image: Image, layer: str, architecture: str) -> Mapping[str, Any]:
    runs = {
        "User": image.user,
        "Env": [f"{key}={value}" for key, value in image.environment.items()],
        "Entrypoint": image.entrypoint,
        "Cmd": image.command,
        "WorkingDir": image.folder,
        "Labels": image.labels,
    }
    return {
        "architecture": architecture,
        "os": "linux",
        "config": {key: value for key, value in runs.items() if value},
        "rootfs": {"type": "layers", "diff_ids": [layer]},
    }


def _described(kind: str, blob: bytes) -> dict[str, Any]:
    digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    return {"mediaType": f"{_PREFIX}.{kind}", "digest": digest, "size": len(blob)}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while piece := opened.read(_PIECE):
            digest.update(piece)
    return f"sha256:{digest.hexdigest()}"


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _put(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))
