"""Starts the threads of plugins, so that a defect ends none of them for good."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Final

#: Seconds from the end of a thread by an exception until it is started again.
PAUSE_S: Final = 1.0


def start_thread(name: str, run: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread that runs a function until it returns.

    An exception is reported as the end of a thread, which the host shows in ``/readyz`` and counts.

    Args:
        run: Called again after an exception, with a pause before. It must return to stop.
    """

    def run_again() -> None:
        while True:
            try:
                run()
            except Exception:  # a defect, whatever it is
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
            else:
                return
            time.sleep(PAUSE_S)

    thread = threading.Thread(target=run_again, name=name, daemon=True)
    thread.start()
    return thread
