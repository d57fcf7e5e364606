"""Settings of the owners of clients."""

from __future__ import annotations

from pathlib import Path

from receiver.settings.base import Settings


class OwnersSettings(Settings):
    """The teams that clients belong to."""

    path: Path
    """Folder of YAML files with the owners. The receiver follows changes. All receivers of a
    cluster need the same."""
