"""Makes folder changes durable and sets file modes.

POSIX requires an fsync of the folder itself. Modes are set explicitly, because the umask may leave
files readable by every user of the machine.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Access:
    """Modes of new files and folders."""

    file: int
    folder: int

    def open(self, path: Path, flags: int) -> int:
        """Open a file with ``os.open``, and set its mode if it is new or ours."""
        descriptor = os.open(path, flags | os.O_CLOEXEC, self.file)
        with contextlib.suppress(PermissionError):  # it belongs to another user, who chose its mode
            os.fchmod(descriptor, self.file)
        return descriptor


#: Only the user of the process may read.
OWNER = Access(file=0o600, folder=0o700)
#: The group may read too, for a roll-up that runs as another user.
OWNER_AND_GROUP = Access(file=0o640, folder=0o750)


def sync_folder(folder: Path) -> None:
    """Wait until the folder's entries are on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, access: Access = OWNER) -> None:
    """Create a folder and its missing parents durably; keep existing ones."""
    if folder.is_dir():
        return
    make_folder(folder.parent, access)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=access.folder)
        # Set afterwards, because the umask reduces the mode of mkdir. A setgid bit of the parent is
        # kept.
        folder.chmod(access.folder | (folder.stat().st_mode & stat.S_ISGID))
    sync_folder(folder.parent)


def folder_problem(folder: Path) -> str | None:
    """Return why this user can't create files in a folder that exists or can be made.

    Nothing is created. The file system may refuse later all the same, for example at a quota.
    """
    existing = folder.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return f"{existing} is no folder"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"this user can't write to {existing}"
    space = os.statvfs(existing)
    return "the disk is full" if space.f_bavail == 0 else None
