"""What an operator sets for the spool_files plugin. Opens nothing."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from receiver.plugin import PluginConfig

__all__ = ["SpoolFilesConfig"]


class SpoolFilesConfig(PluginConfig):
    """Settings of the spool_files plugin."""

    path: Path = Field(
        description="The folder; made if it isn't there. Several sidecars may write to the same one."
    )
    roll_seconds: int = Field(
        default=30,
        ge=1,
        le=86_400,
        description="A file is published when its first push has waited so long, also when no other comes.",
    )
    roll_bytes: int = Field(
        default=67_108_864,
        ge=65_536,
        le=1_073_741_824,
        description="A file is published when so many bytes wait for it, not compressed; "
        "the file is about a tenth of it.",
    )
    retain_hours: int | None = Field(
        default=168,
        ge=1,
        le=1_000_000,
        description="Files are deleted so long after the hour they are of; null: never.",
    )
    max_bytes: int | None = Field(
        default=10_737_418_240,
        ge=1_048_576,
        description="Most bytes of published files in the folder, those of other sidecars with them. At the "
        "bound the oldest files go, and first those of sources that push more than their share. Null: no "
        "bound.",
    )
    group_readable: bool = Field(
        default=False,
        description="Whether the group of the folder may read the published files and manifests (modes 0640 "
        "and 0750, else 0600 and 0700), for a roll-up that runs as another user.",
    )

    @field_validator("path")
    @classmethod
    def _its_own(cls, path: Path) -> Path:
        # The empty text is the same path.
        if path == Path():
            raise ValueError("is the working directory: name a folder of its own, for example ./telemetry")
        return path
