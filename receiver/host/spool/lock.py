"""Owns the lock that makes a folder one spool's. Knows nothing of what else is in it."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from receiver.host.spool.values import SpoolError

__all__ = ["lock_folder"]

_NAME: Final = "lock"


def lock_folder(path: Path) -> int:
    """Make a folder where there is none, and lock it.

    Returns:
        A descriptor; the lock ends when it is closed.

    Raises:
        OSError: The disk refuses.
        SpoolError: Somebody else has the lock.
    """
    _make(path)
    descriptor = os.open(path / _NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            raise
        reason = "another plugin or receiver has this folder as its spool: give each one of its own"
        raise SpoolError(path, reason) from error
    return descriptor


def _make(path: Path) -> None:
    """Make a folder and those above it for this user alone, whatever the umask is."""
    if not path.is_dir():
        _make(path.parent)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
