"""The disk part of a plugin's delivery log: a spool that may refuse, and is tried again.

Owns what the operator is told of the spool, and the back-off after it refused. Which push is where, and when
something is written, is the delivery log's business. A call may take as long as the disk likes; reading an
attribute never waits.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from receiver.host.delivery.failure_log import FailureLog
from receiver.host.settings import SpoolSettings
from receiver.host.spool import Position, Spool, Spooled, SpoolError, SpoolStatistics
from receiver.plugin import Push

__all__ = ["Disk"]

_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0


class Disk:
    """A spool, with the knowledge whether it can be used.

    Hold :attr:`lock` in every call, and until what came of it is accounted for.

    Args:
        path: The spool's folder.
        settings: Its bounds.
        log: Where its troubles are told.
        clock: Monotonic seconds.

    Attributes:
        lock: For one operation at a time.
        opened: Whether the spool is open.
        problem: Why nothing can be written; None while something can.
        retry_at: With a problem: when to try again, in monotonic seconds.
        max_bytes: Most bytes of the spool's files.
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
        self.retry_at = 0.0
        self.max_bytes = settings.max_bytes
        self._path = path
        self._spool = Spool(path, max_bytes=settings.max_bytes, segment_bytes=settings.segment_bytes)
        self._log = log
        self._clock = clock
        self._failures = 0

    @property
    def statistics(self) -> SpoolStatistics:
        """The spool's own numbers."""
        return self._spool.statistics

    def has_news(self) -> bool:
        """Whether opening it tells something: there is a folder already, or none can be made."""
        try:
            if self._path.exists():
                return True
            above = next(folder for folder in self._path.absolute().parents if folder.exists())
            return not (above.is_dir() and os.access(above, os.W_OK | os.X_OK))
        except OSError:
            return True

    def open(self) -> bool:
        """Open the spool; False when the disk refuses."""
        try:
            found = self._spool.open()
        except SpoolError as error:
            self._failed(error)
            return False
        self.opened = True
        if found.pushes or found.torn_bytes or found.set_aside:
            self._log.info(
                "spool holds pushes from before",
                pushes=found.pushes,
                bytes=found.bytes,
                torn_bytes=found.torn_bytes,
                set_aside=found.set_aside,
                lost_pushes=found.lost_pushes,
            )
        return True

    def append(self, pushes: Sequence[Push]) -> bool:
        """Write pushes behind those that are there; False when the disk refuses, and none is written.

        Without pushes the disk is tried all the same.
        """
        try:
            if pushes:
                self._spool.append(pushes)
            else:
                self._spool.check()
        except (SpoolError, MemoryError) as error:
            self._failed(error)
            return False
        if self.problem is not None:
            self._log.info("spool works again", failures=self._failures)
        self._failures = 0
        self.problem = None
        return True

    def read(self, max_items: int, max_bytes: int) -> list[Spooled]:
        """Read the oldest pushes that were not read yet; see :meth:`Spool.read`."""
        return self._spool.read(max_items, max_bytes)

    def rewind(self) -> None:
        """Read again from the first push that is not committed."""
        self._spool.rewind()

    def commit(self, position: Position) -> None:
        """Take what was read up to a position for delivered, and that with it."""
        self._spool.commit(position)

    def close(self) -> None:
        """Close the spool."""
        self._spool.close()

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        self.problem = str(error) or type(error).__name__
        self.retry_at = self._clock() + min(
            _FIRST_RETRY_S * 2.0 ** min(self._failures - 1, 10), _LONGEST_RETRY_S
        )
        self._log.limited("spool can't be written, memory takes over", problem=self.problem)
