"""Settings of the owners of clients."""

from __future__ import annotations

from pathlib import Path

from receiver.settings.base import Settings


class OwnersSettings(Settings):
    """The teams that clients belong to."""

    path: Path | None = None
    """Folder of YAML files with the owners. The receiver follows changes. All receivers of a
    cluster need the same."""
    file: Path | None = None
    """The file of the owners that are put over REST. Null (default): beside the subscriptions, the
    name of their file with `-owners.json` for its suffix; with the store `file`, none."""
