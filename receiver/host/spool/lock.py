"""Locks a folder, so that only one spool uses it."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from receiver.host.spool.values import SpoolError

_NAME: Final = "lock"


def lock_folder(path: Path) -> int:
    """Lock a folder until the returned descriptor is closed; create it if necessary.

    Raises:
        OSError: The disk fails.
        SpoolError: Another spool has the lock.
    """
    _make(path)
    descriptor = os.open(path / _NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            raise
        reason = "another plugin or receiver uses this folder as its spool: give each its own"
        raise SpoolError(path, reason) from error
    return descriptor


def _make(path: Path) -> None:
    """Create a folder and its parents for this user alone, whatever the umask is."""
    if not path.is_dir():
        _make(path.parent)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
