"""One plugin's second thread, where there is a spool: memory -> disk.

Owns the thread. It waits for the disk so that nobody else need, and a disk that hangs is left behind with it.
"""

from __future__ import annotations

import threading

from receiver.host.delivery.disk_queue import DiskQueue
from receiver.host.delivery.failure_log import FailureLog, Redaction

__all__ = ["Spooler"]


class Spooler:
    """Writes what a delivery log wants to have on disk.

    Args:
        pushes: The log.
        log: Where a failure is told.
        name: The plugin's name.
    """

    def __init__(self, pushes: DiskQueue, *, log: FailureLog, name: str) -> None:
        self._pushes = pushes
        self._log = log
        self._thread = threading.Thread(target=self._run, name=f"spool-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait until the log is ended, which it is here when the thread was never started.

        Returns:
            Whether it is; False when the disk hangs.
        """
        if self._thread.ident is None:
            self._end()
            return True
        self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._pushes.open()
            while self._pushes.await_work():
                self._pushes.write()
        except BaseException as error:  # a fault of ours must not end in a silent dead thread
            self._log.error(
                "spooler failed; the plugin takes no more", error=Redaction(None).exception(error)
            )
        finally:
            self._end()

    def _end(self) -> None:
        if lost := self._pushes.end():
            self._log.error("pushes dropped at shutdown", pushes_lost=lost)
