"""What makes a change of a folder durable, and who may read what is written.

POSIX asks for an fsync of the folder itself. Modes are set explicitly, because the umask of the
process may leave files readable by every user of the machine.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

__all__ = ["OWNER", "OWNER_AND_GROUP", "Access", "make_folder", "sync_folder"]


@dataclass(frozen=True, slots=True)
class Access:
    """Modes of what is made.

    Attributes:
        file: Of files.
        folder: Of folders.
    """

    file: int
    folder: int

    def open(self, path: Path, flags: int) -> int:
        """Open a file with ``os.open``; one that this makes, or that is ours, gets the mode of files.

        Raises:
            OSError: The disk refuses.
        """
        descriptor = os.open(path, flags | os.O_CLOEXEC, self.file)
        with contextlib.suppress(PermissionError):  # another user's, who has set what it may be
            os.fchmod(descriptor, self.file)
        return descriptor


#: The user of the process alone.
OWNER = Access(file=0o600, folder=0o700)
#: The group may read, too: for a roll-up that runs as another user.
OWNER_AND_GROUP = Access(file=0o640, folder=0o750)


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


def make_folder(folder: Path, access: Access = OWNER) -> None:
    """Make a folder, and those above it, durably; one that is there is left as it is.

    Args:
        folder: The folder.
        access: Its mode, and that of those above it that are made.

    Raises:
        OSError: The disk refuses.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent, access)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=access.folder)
        # Only a mode that is set afterwards is sure: the umask takes from the other. The file
        # system may give the group of the parent (setgid), which is kept.
        folder.chmod(access.folder | (folder.stat().st_mode & stat.S_ISGID))
    sync_folder(folder.parent)
