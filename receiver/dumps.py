"""Protects the process's memory, which holds passwords and keys, from core dumps and tracing.

It sets RLIMIT_CORE and PR_SET_DUMPABLE (prctl(2)). A process that is not dumpable writes no core
file, not even to a program in `core_pattern`. Other processes of the same user cannot trace it or
open its `/proc/PID/mem`, `environ` or `fd` without CAP_SYS_PTRACE. exec(2) makes a process dumpable
again, so each program must call this itself.
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
    """Forbid core files, including those of child processes, and access by other processes.

    Returns:
        The previous limit of core files in bytes, for :func:`allow`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    _prctl(_PR_SET_DUMPABLE, 0)
    return soft


def allow(core_bytes: int) -> None:
    """Undo :func:`forbid`, which returned ``core_bytes``."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (core_bytes, hard))
    _prctl(_PR_SET_DUMPABLE, 1)


def allowed() -> bool:
    """Whether other processes of this user may read this one's memory."""
    return _prctl(_PR_GET_DUMPABLE) == 1


def _prctl(option: int, argument: int = 0) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    # prctl(2) takes unsigned long. With int the upper half of the registers would be undefined.
    result = library.prctl(option, *(ctypes.c_ulong(word) for word in (argument, 0, 0, 0)))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {argument}): {os.strerror(ctypes.get_errno())}")
    return int(result)
