"""Settings of the spool_files plugin."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from receiver.plugin import PluginConfig


class SpoolFilesConfig(PluginConfig):
    """Settings of the spool_files plugin."""

    path: Path
    """The folder; created if it is missing. Several sidecars may share it."""
    roll_seconds: int = Field(default=30, ge=1, le=86_400)
    """A file is published this long after its first push."""
    roll_bytes: int = Field(default=67_108_864, ge=65_536, le=1_073_741_824)
    """A file is published when it has this many uncompressed bytes. Compressed, it is about a tenth
    of that."""
    retain_hours: int | None = Field(default=168, ge=1, le=1_000_000)
    """Files are deleted this long after their hour; null: never."""
    max_bytes: int | None = Field(default=10_737_418_240, ge=1_048_576)
    """Bound on the bytes of all published files in the folder, with those of other sidecars. At the
    bound the oldest files are deleted, first those of sources that push more than their share.
    null: no bound."""
    group_readable: bool = False
    """Whether the folder's group may read the published files and manifests (modes 0640 and 0750,
    else 0600 and 0700), for a roll-up that runs as another user."""

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: Path) -> Path:
        # An empty text is the same path.
        if path == Path():
            raise ValueError("is the working directory: name a folder of its own, for example ./telemetry")
        return path
