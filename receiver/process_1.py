"""Process 1 of the receiver: starts ``serve`` again at once when it dies.

A container ends with its process 1. The kubelet starts it again, after delays that grow to five
minutes. Meanwhile the broker leads its partitions, and no client reaches it. So process 1 is no
part of the receiver (:mod:`spark_streaming.process_1`). It starts the keeper again whenever that is
killed.

The keeper imports the receiver once, which takes two seconds of CPU, and starts the supervisor as
its child. It starts the supervisor again without imports, so clients wait a second. Its memory is
what the supervisor's processes share with it.

Both pass signals on and reap orphans. The keeper ends with the supervisor's status when another
start does not help: after a drain, when the configuration is wrong, and after ten starts in a row
that each ended within ten seconds. Process 1 ends with it, and the kubelet sees that the container
has failed.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

from spark_streaming import dumps, process_1

#: The status of ``serve`` for a wrong configuration, as it is at each start.
_WRONG_CONFIGURATION: Final = 2

#: From <linux/prctl.h>.
_PR_SET_CHILD_SUBREAPER: Final = 36

_in_keeper = False


def start_keeper() -> None:
    """Return in the keeper, and in a new one whenever it is killed.

    Process 1 never returns. Call it as process 1, before anything else is imported.
    """
    global _in_keeper
    core_bytes = dumps.forbid()  # the environment may hold secrets
    process_1.keep("the keeper", lambda status: status < 0)
    dumps.allow(core_bytes)  # serve decides for itself
    _in_keeper = True


def in_keeper() -> bool:
    """Whether this process is the keeper."""
    return _in_keeper


def start_supervisor() -> None:
    """Return in the supervisor, and in a new one whenever it dies.

    The keeper never returns. Call it in the keeper, when all is imported and no thread runs.
    """
    global _in_keeper
    # What is there is no garbage, and a search would copy the memory that the processes share.
    gc.freeze()
    # The kernel gives it the supervisor's orphans, which hold the sockets.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    process_1.keep("the supervisor", lambda status: status not in {0, _WRONG_CONFIGURATION})
    _in_keeper = False
