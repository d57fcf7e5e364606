"""Protects the database password in memory from core files and processes.

Sets RLIMIT_CORE and PR_SET_DUMPABLE (prctl(2)). Spark's JVM inherits the limit.
"""

from __future__ import annotations

import ctypes
import os
import resource
from typing import Final

#: From <linux/prctl.h>.
_PR_SET_DUMPABLE: Final = 4


def forbid() -> None:
    """Forbid core files, and access by other processes of this user.

    Raises:
        OSError: The kernel refuses.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_DUMPABLE, *(ctypes.c_ulong(0) for _ in range(4))) < 0:
        raise OSError(ctypes.get_errno(), f"PR_SET_DUMPABLE: {os.strerror(ctypes.get_errno())}")
