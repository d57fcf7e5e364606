"""Protects passwords and keys in memory from core dumps and debuggers.

Owns RLIMIT_CORE and PR_SET_DUMPABLE (prctl(2)), for the receiver too. A process that is not
dumpable writes no core file, not even to the program in `core_pattern`. Other processes of its user
can't trace it, nor open `/proc/PID/mem`, `environ` or `fd`; CAP_SYS_PTRACE still allows both.
exec(2) makes a process dumpable again, so each program must call :func:`forbid` itself. Spark's JVM
inherits the limit.
"""

from __future__ import annotations

import ctypes
import os
import resource
from typing import Final

#: From <linux/prctl.h>.
_PR_GET_DUMPABLE: Final = 3
_PR_SET_DUMPABLE: Final = 4


def forbid() -> int:
    """Forbid core files, and access by the user's other processes.

    Returns the former limit of core files in bytes, for :func:`allow`.

    Raises:
        OSError: The kernel refuses.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    _prctl(_PR_SET_DUMPABLE, 0)
    return soft


def allow(core_bytes: int) -> None:
    """Undo :func:`forbid`.

    Args:
        core_bytes: The result of :func:`forbid`.

    Raises:
        OSError: The kernel refuses.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (core_bytes, hard))
    _prctl(_PR_SET_DUMPABLE, 1)


def apply(*, dumpable: bool) -> None:
    """Change what :func:`forbid` or :func:`allow` set, for a setting that has changed."""
    if dumpable != allowed():
        if dumpable:
            _, hard = resource.getrlimit(resource.RLIMIT_CORE)
            allow(hard)
        else:
            forbid()


def allowed() -> bool:
    """Return whether the user's other processes may read this process's memory."""
    return _prctl(_PR_GET_DUMPABLE) == 1


def _prctl(option: int, argument: int = 0) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    # prctl(2) takes unsigned long; an int would leave the upper half of a register undefined.
    result = library.prctl(option, *(ctypes.c_ulong(word) for word in (argument, 0, 0, 0)))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {argument}): {os.strerror(ctypes.get_errno())}")
    return int(result)
