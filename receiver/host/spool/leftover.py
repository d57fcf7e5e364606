"""Finds spools of an earlier run that no plugin reads any more.

A plugin stops reading its spool if the operator renames it or sets ``delivery: memory``. The search
changes nothing on disk.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from receiver.host.discovery import SPOOLS, HostedPlugin
from receiver.host.spool import holds_segments


def leftover_spools(plugins: Sequence[HostedPlugin]) -> list[Path]:
    """Return folders with segments that no plugin reads; waits for the disk.

    The search covers the default folder of spools and all configured ones.
    """
    folders = {plugin.settings.spool.path for plugin in plugins}
    with suppress(OSError):
        folders.update(SPOOLS.iterdir())
    read = {os.path.realpath(plugin.spool_path) for plugin in plugins if plugin.spool_path is not None}
    return sorted(
        folder
        for folder in folders
        if folder is not None and os.path.realpath(folder) not in read and holds_segments(folder)
    )
