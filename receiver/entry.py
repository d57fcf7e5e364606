"""The program ``kafka-telemetry``: ends at SIGTERM from its first moment on.

The kernel drops a signal that process 1 has no handler for, and a container's program is process 1.
The imports of the command line take seconds, so the handler comes before them. The images block
SIGTERM while the interpreter starts, and so it arrives then. A command that has something to finish
replaces the handler. As process 1, ``serve`` runs in a child (:mod:`receiver.process_1`).
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import NoReturn

from receiver.importing import import_all


def main() -> None:
    """Run the command line with the arguments of the process, and exit."""
    open_standard_streams()
    signal.signal(signal.SIGTERM, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if os.getpid() == 1 and sys.argv[1:2] == ["serve"]:
        importlib.import_module("receiver.process_1").start_keeper()
    import_all("receiver.cli").main()


def open_standard_streams() -> None:
    """Open the standard streams that the process was started without.

    Otherwise the first file or socket would take the place of standard error, and get the log.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest number that is free, for children too.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - positional only


def _end(number: int, frame: object) -> NoReturn:
    """End with the status that a shell gives a program that the signal has killed."""
    os._exit(128 + number)
