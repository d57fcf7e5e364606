"""Keeps the process's memory, which holds passwords and keys, from core files and other processes.

Owns RLIMIT_CORE and PR_SET_DUMPABLE (prctl(2)). A process that is not dumpable writes no core file, not even
to a program that `core_pattern` names. Other processes of its user can't trace it, nor open `/proc/PID/mem`,
`environ` or `fd`; CAP_SYS_PTRACE still allows both. exec(2) makes a process dumpable again, so each program
calls this for itself.
"""

from __future__ import annotations

import ctypes
import os
import resource
from typing import Final

__all__ = ["allow", "allowed", "forbid"]

#: From <linux/prctl.h>.
_PR_GET_DUMPABLE: Final = 3
_PR_SET_DUMPABLE: Final = 4


def forbid() -> int:
    """Forbid core files, also of child processes, and access by other processes of this user.

    Returns:
        The limit of core files until now, in bytes, for :func:`allow`.

    Raises:
        OSError: The kernel refuses.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    _prctl(_PR_SET_DUMPABLE, 0)
    return soft


def allow(core_bytes: int) -> None:
    """Allow again what :func:`forbid` forbids.

    Args:
        core_bytes: The limit of core files, as :func:`forbid` returned it.

    Raises:
        OSError: The kernel refuses.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (core_bytes, hard))
    _prctl(_PR_SET_DUMPABLE, 1)


def allowed() -> bool:
    """Whether other processes of this user may read this one's memory."""
    return _prctl(_PR_GET_DUMPABLE) == 1


def _prctl(option: int, argument: int = 0) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    # prctl(2) takes unsigned long: as int, the upper half of a register would be undefined.
    result = library.prctl(option, *(ctypes.c_ulong(word) for word in (argument, 0, 0, 0)))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {argument}): {os.strerror(ctypes.get_errno())}")
    return int(result)
