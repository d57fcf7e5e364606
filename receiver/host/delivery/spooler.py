"""A plugin's spooler thread: writes pushes from memory to disk.

Only this thread waits for writes. If the disk hangs, the host abandons the thread with it.
"""

from __future__ import annotations

import threading

from receiver.host.delivery.disk_queue import DiskQueue
from receiver.host.failure_log import FailureLog
from receiver.host.redaction import Redaction
from receiver.workers import report


class Spooler:
    """Writes the due pushes of a queue to disk."""

    def __init__(self, queue: DiskQueue, *, log: FailureLog, name: str) -> None:
        self._queue = queue
        self._log = log
        self._thread = threading.Thread(target=self._run, name=f"spool-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread, without waiting."""
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread; return False if the disk hangs.

        Without a thread, it finishes the queue in its place.
        """
        if self._thread.ident is None:
            self._finish()
            return True
        self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._queue.open()
            while self._queue.await_work():
                self._queue.write()
        except BaseException as error:  # a bug of ours must not end the thread silently
            self._log.error(
                "internal error, plugin gets no more pushes", error=Redaction(None).exception(error)
            )
            report(self._thread.name, error, is_logged=True)
        finally:
            self._finish()

    def _finish(self) -> None:
        if lost := self._queue.finish():
            self._log.error("pushes dropped at shutdown", pushes_lost=lost)
