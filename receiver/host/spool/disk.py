"""Retries a failing spool, and reports its problems to the operator.

Owns the log events of the spool, and the back-off after a failure. The disk queue decides what is
written and when. A call may take as long as the disk does; reading an attribute never waits.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from receiver.host.failure_log import FailureLog
from receiver.host.settings import SpoolSettings
from receiver.host.spool import Spool, SpoolError, SpoolStatistics
from receiver.plugin import Push

_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0


class Disk:
    """A spool with its current problem and the time of the next retry.

    Callers hold :attr:`lock` during every call, and until they have accounted for its result.

    Attributes:
        spool: The spool, for calls that can't fail.
        problem: Why the spool can't be written; None while it can.
        retry_at: If there is a problem, the time of the next retry, in monotonic seconds.
    """

    def __init__(
        self,
        path: Path,
        settings: SpoolSettings,
        *,
        log: FailureLog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lock = threading.Lock()
        self.opened = False
        self.problem: str | None = None
        self.left_out: Sequence[Push] = ()
        self.retry_at = 0.0
        self.max_bytes = settings.max_bytes
        self._path = path
        self.spool = Spool(path, max_bytes=settings.max_bytes, segment_bytes=settings.segment_bytes)
        self._log = log
        self._clock = clock
        self._failures = 0

    @property
    def statistics(self) -> SpoolStatistics:
        """The spool's statistics."""
        return self.spool.statistics

    def exists_or_fails(self) -> bool:
        """Return whether the folder exists already, or can't be created."""
        try:
            if self._path.exists():
                return True
            above = next(folder for folder in self._path.absolute().parents if folder.exists())
            return not (above.is_dir() and os.access(above, os.W_OK | os.X_OK))
        except OSError:
            return True

    def open(self) -> bool:
        """Open the spool; return False if the disk fails."""
        try:
            found = self.spool.open()
        except SpoolError as error:
            self._failed(error)
            return False
        self.opened = True
        if found.pushes or found.torn_bytes or found.set_aside:
            self._log.info(
                "spool holds pushes of an earlier run",
                pushes=found.pushes,
                bytes=found.bytes,
                torn_bytes=found.torn_bytes,
                set_aside=found.set_aside,
                lost_pushes=found.lost_pushes,
            )
        return True

    def append(self, pushes: Sequence[Push]) -> bool:
        """Append pushes; return False if the disk fails, and then none is written.

        Those that the disk's bound has no room for are in :attr:`left_out`. Without pushes it only
        checks whether the disk can be written.
        """
        self.left_out = ()
        try:
            if pushes:
                self.left_out = self.spool.append(pushes)
            else:
                self.spool.check()
        except (SpoolError, MemoryError) as error:
            self._failed(error)
            return False
        if self.problem is not None:
            self._log.info("spool works again", failures=self._failures)
        self._failures = 0
        self.problem = None
        return True

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        self.problem = str(error) or type(error).__name__
        self.retry_at = self._clock() + min(
            _FIRST_RETRY_S * 2.0 ** min(self._failures - 1, 10), _LONGEST_RETRY_S
        )
        self._log.limited("spool can't be written, pushes stay in memory", problem=self.problem)
