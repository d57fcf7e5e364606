"""Starts threads that a defect does not end for good.

Plugins and scrape endpoints use it. The roll-up, whose package has it, runs without the receiver.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Final

#: Seconds from the end of a thread by an exception until it is started again.
PAUSE_S: Final = 1.0


def start_thread(name: str, run: Callable[[], None], *, pause_s: float = PAUSE_S) -> threading.Thread:
    """Start a daemon thread that runs a function until it returns.

    Args:
        run: Called again after an exception, which is reported, with a pause before. It must return
            to stop.
    """

    def run_again() -> None:
        while True:
            try:
                run()
            except Exception:  # a defect, whatever it is
                report_defect()
            else:
                return
            time.sleep(pause_s)

    thread = threading.Thread(target=run_again, name=name, daemon=True)
    thread.start()
    return thread


def report_defect() -> None:
    """Report the current exception as the end of a thread, though the thread goes on.

    The receiver logs and counts it and shows it in ``/readyz``. The roll-up, which has no hook,
    writes it to standard error.
    """
    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
