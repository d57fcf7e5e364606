"""What makes a change of a folder durable: fsync of the folder itself, which POSIX asks for."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["make_folder", "sync_folder"]


def sync_folder(folder: Path) -> None:
    """Wait until the folder's entries are on disk.

    Raises:
        OSError: The disk refuses.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, durably; one that is there is left as it is.

    Raises:
        OSError: The disk refuses.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)
