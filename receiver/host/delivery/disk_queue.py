"""The delivery log with a disk: the oldest part of a plugin's pushes is there, the newest in memory.

::

    offer ──▶ memory ──────────────▶ read ──▶ acknowledge
                └──▶ write ──▶ disk ──┘

Owns what goes to disk and when, and the order. What is in flight stays in the log until it is acknowledged,
so that it can still go to disk. To the callers of a log without a disk comes the spooler's thread (``open``,
``await_work``, ``write``, ``end``). No lock that the event loop takes is held during I/O.

What is on disk is always older than what is in memory. Two things could break that, and are kept from it:

* The sender takes nothing out of memory while a part of it is being written, or something unread is on disk.
* Pushes that go to disk while they are in flight come to lie at the disk's head, as nothing else is unread
  then. They are *copies*: passed over once they are acknowledged, and never read for the sender.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from receiver.host.delivery.cpu_account import CpuAccount
from receiver.host.delivery.fair_queue import FairQueue, Queued
from receiver.host.delivery.memory_queue import ALL, MemoryQueue
from receiver.host.delivery.statistics import DropReason, QueueStatistics
from receiver.host.spool import Position, Spooled
from receiver.host.spool.disk import Disk
from receiver.host.spool.disk_account import DiskAccount
from receiver.plugin import Push
from receiver.plugin.shares import RecentShares

__all__ = ["DiskQueue"]

#: Bounds of what is written at once.
_WRITE_ITEMS = 1000
_WRITE_BYTES = 1_048_576
#: How long the sender waits when there is something on disk and the system has nothing to read it with.
_SHORTAGE_S = 1.0


class DiskQueue(MemoryQueue):
    """The log; the module says who calls what.

    Args:
        queue: Its memory part, empty.
        disk: Its disk part, not open.
        after_s: How long a push is in memory before it is written, in seconds. None: every push is written,
            and nothing is read that was not.
        clock: Monotonic seconds.
        cpu: Where the CPU time of writing is charged.
    """

    def __init__(
        self,
        queue: FairQueue,
        disk: Disk,
        *,
        after_s: float | None,
        clock: Callable[[], float] = time.monotonic,
        cpu: CpuAccount | None = None,
    ) -> None:
        super().__init__(queue, clock=clock)
        self._disk = disk
        self._always = after_s is None
        self._after_s = after_s or 0.0
        self._work = threading.Condition(self._lock)
        # In flight off the disk; never at once with what is in flight out of memory.
        self._spooled: deque[Spooled] = deque()
        self._account = DiskAccount()
        self._passed_to: Position | None = None
        # Before the disk was looked at nobody knows whether something older is there.
        self._unknown = True
        self._writing_since: float | None = None
        # The spooler sleeps for any push where it is idle, else for a time or until memory is half full.
        self._idle = False
        self._left = False
        self._abandoned = False
        # Pushes that were not written at the disk's bound, and who wrote how much lately.
        self._refused = 0
        self._cpu = CpuAccount() if cpu is None else cpu
        self._shares: RecentShares[str] = RecentShares(disk.max_bytes)

    def offer(self, push: Push, stored: Callable[[], None] | None = None) -> bool:
        """Add a push; see :meth:`MemoryQueue.offer`.

        Returns:
            Whether ``stored`` will be called, once, by any thread: when the push is on disk, or can't be.
            Only where every push goes there, and the disk does what it is asked.
        """
        now = self._clock()
        with self._lock:
            self._offered += 1
            if self._closed:
                self._dropped[DropReason.SHUTDOWN] += 1
                return False
            waits = stored is not None and not self._direct
            queued = Queued(push, len(push.payload.data), now, stored if waits else None)
            gone = self.queue.add(queued)
            self._dropped[DropReason.QUEUE_FULL] += len(gone)
            if gone and gone[-1] is queued:
                queued.stored, waits = None, False
            told = _waiting(gone)
            if self._awaited_items:
                self._wake_sender()
            if self._idle or self._hurries:
                self._idle = False
                self._work.notify()
        _tell(told)
        return waits

    def close(self, deadline: float) -> None:
        """Take no more pushes; see :meth:`MemoryQueue.close`."""
        super().close(deadline)
        with self._lock:
            self._work.notify()

    def read(self, *, max_items: int, max_bytes: int, linger_s: float) -> list[Push]:
        """Read a batch, off the disk or out of memory; see :meth:`MemoryQueue.read`."""
        while True:
            with self._lock:
                if not self._await_pushes(max_items, max_bytes, linger_s):
                    return []
                if not self._account.unread:
                    self._taken.extend(self.queue.take(max_items, max_bytes))
                    return [queued.push for queued in self._taken]
            if pushes := self._read_disk(max_items, max_bytes):
                return pushes
            with self._lock:
                if self._account.unread and not self._ended:
                    self._ready.wait(_SHORTAGE_S)

    def acknowledge(self, count: int, dropped: DropReason | None = None) -> bool:
        """Have done with pushes, also on disk; see :meth:`MemoryQueue.acknowledge`."""
        with self._lock:
            if self._ended:
                return False
            self._count(count, dropped)
            position: Position | None = None
            for _ in range(count):
                if self._spooled:
                    position = self._spooled.popleft().position
                    self._account.acknowledged(1)
                elif self._taken.popleft().copied:
                    self._account.acknowledged(1)
            passed = self._account.passed
            self._passed_to = position if passed else None
        if passed:
            with self._disk.lock:
                self._pass_over()
        return True

    def leave(self) -> int:
        """Read no more, and leave to the spooler what is left."""
        with self._lock:
            self._left = True
            self._work.notify()
        return 0

    def abandon(self) -> int:
        """Drop what is left in memory, and have nothing to do with the disk any more.

        Returns:
            How many pushes are dropped.
        """
        with self._lock:
            self._retire()
            self._abandoned = True
            left = self.queue.take(ALL, ALL)
            dropped = len(left) + self.queue.reserved_items
            self.queue.reserve(())
            self._dropped[DropReason.SHUTDOWN] += dropped
            self._work.notify()
            told = _waiting(left)
        _tell(told)
        return dropped

    # -- the spooler -------------------------------------------------------------------------------

    def open(self) -> None:
        """Find out what is on disk from before; makes no folder unless every push is written.

        One that could not be made later is told now: then the destination is away.
        """
        with self._disk.lock:
            if self._always or self._disk.has_news():
                self._open()
            with self._lock:
                self._unknown = False
                self._wake_sender()

    def await_work(self) -> bool:
        """Wait until something is to be written; False when the log is to be ended."""
        with self._lock:
            while True:
                now = self._clock()
                if self._closed and (self._left or now >= self._deadline):
                    return False
                due_at = self._due_at()
                if due_at <= now:
                    return True
                wake_at = min(due_at, self._deadline)
                self._idle = due_at == math.inf
                self._work.wait(None if wake_at == math.inf else wake_at - now)
                self._idle = False

    def write(self) -> bool:
        """Write what is in memory to disk, up to a bound; False when the disk refuses."""
        with self._disk.lock:
            return self._open() and self._write()

    def end(self) -> int:
        """Write what is left to disk, and have nothing more to do with it.

        Returns:
            How many pushes are dropped, because the disk refuses.
        """
        with self._lock:
            self._retire()
        with self._disk.lock:
            while len(self.queue) and self._open() and self._write():
                pass
            dropped = self.abandon()
            self._disk.close()
        return dropped

    # -- under the lock ----------------------------------------------------------------------------

    @property
    def _direct(self) -> bool:
        """Whether pushes may be read out of memory: where not every push is written, or none can be."""
        return not self._always or self._disk.problem is not None

    @property
    def _hurries(self) -> bool:
        """Whether memory is to be emptied onto the disk, however young the pushes are."""
        return self.queue.more_than_half_full and self._disk.problem is None

    def _statistics(self) -> QueueStatistics:
        account = self._account
        statistics = super()._statistics()
        return replace(
            statistics,
            recovered=account.recovered,
            memory=statistics.memory + self.queue.reserved_items,
            memory_bytes=statistics.memory_bytes + self.queue.reserved_bytes,
            in_flight=statistics.in_flight + len(self._spooled),
            disk=account.unread,
            dropped={
                **statistics.dropped,
                DropReason.SPOOL_FULL: account.dropped_full + self._refused,
                DropReason.SPOOL_DAMAGED: account.dropped_damaged,
            },
            writing_since=self._writing_since,
        )

    def _readable(self) -> int:
        if self._unknown:
            return 0
        if unread := self._account.unread:
            return unread
        return len(self.queue) if self._writing_since is None and self._direct else 0

    def _coming(self) -> bool:
        return self._unknown or self._writing_since is not None or len(self.queue) > 0

    def _due_at(self) -> float:
        """When something is to be written, in monotonic seconds."""
        if self._disk.problem is not None:
            # With nothing to be written as well: pushes from before may be there, and somebody is alarmed.
            return self._disk.retry_at
        oldest = self.queue.oldest
        if self._taken and not self._taken[0].copied and not self._account.unread:
            oldest = self._taken[0]
        if oldest is None:
            return math.inf
        return -math.inf if self._always or self._hurries else oldest.since + self._after_s

    def _retire(self) -> None:
        self._taken = deque(queued for queued in self._taken if not queued.copied)
        self._spooled.clear()
        self._account.retired()
        super()._retire()

    def _received_at_ns(self) -> list[int]:
        oldest = super()._received_at_ns()
        if self._spooled:
            oldest.append(self._spooled[0].push.context.received_at_ns)
        on_disk = self._disk.statistics.oldest_received_at_ns
        if self._account.unread and on_disk is not None:
            oldest.append(on_disk)
        return oldest

    # -- under the disk's lock ---------------------------------------------------------------------

    def _open(self) -> bool:
        if self._disk.opened:
            return True
        opened = self._disk.open()
        with self._lock:
            if opened:
                self._account.opened(self._disk.statistics)
            told = [] if opened else _waiting(self.queue)
            self._wake_sender()
        _tell(told)
        return opened

    def _write(self) -> bool:
        queue = self.queue
        with self._lock:
            copies = [] if self._account.unread else [one for one in self._taken if not one.copied]
            chunk = queue.take(
                min(_WRITE_ITEMS, (queue.max_items + 1) // 2), min(_WRITE_BYTES, queue.max_bytes // 2)
            )
            queue.reserve(chunk)
            self._writing_since = self._clock()
        kept, refused = self._share_disk(chunk)
        pushes_written = [queued.push for queued in (*copies, *kept)]
        cpu_began = time.thread_time()
        written = self._disk.append(pushes_written)
        if written:
            self._cpu.add(pushes_written, time.thread_time() - cpu_began)
        with self._lock:
            self._writing_since = None
            told = _waiting(chunk)
            if not self._abandoned:
                queue.reserve(())
                if written:
                    for queued in copies:
                        queued.copied = True
                    # The sender read nothing new meanwhile.
                    acknowledged = len(copies) - len(self._taken) if copies else 0
                    pushes = len(copies) + len(kept)
                    self._refused += len(refused)
                    for queued in kept:
                        self._shares.wrote(queued.site, queued.size)
                    self._account.wrote(pushes, len(copies), acknowledged, self._disk.statistics)
                else:
                    queue.put_back(chunk)
                    told += _waiting(self.queue)
            self._wake_sender()
        _tell(told)
        self._pass_over()
        return written

    def _share_disk(self, chunk: Sequence[Queued]) -> tuple[list[Queued], list[Queued]]:
        """Say what is written and what is not: at the bound a write deletes what others have on disk.

        Then a site that wrote more than its share lately (:class:`RecentShares`) writes no more, so that it
        deletes no more than its share of the others' pushes.
        """
        disk = self._disk.statistics
        if disk.bytes + sum(queued.size for queued in chunk) <= self._disk.max_bytes:
            return list(chunk), []
        kept: list[Queued] = []
        refused: list[Queued] = []
        for queued in chunk:
            (refused if self._shares.is_over(queued.site) else kept).append(queued)
        return kept, refused

    def _read_disk(self, max_items: int, max_bytes: int) -> list[Push]:
        with self._disk.lock:
            self._pass_over()
            if self._account.passed:
                return []  # what is acknowledged can't be read now, and would come again
            spooled = self._disk.read(max_items, max_bytes)
            with self._lock:
                if self._ended:
                    return []
                self._account.read(len(spooled), self._disk.statistics)
                self._spooled.extend(spooled)
        return [one.push for one in spooled]

    def _pass_over(self) -> None:
        """Commit on disk what is acknowledged."""
        with self._lock:
            passed = self._account.passed
            position, self._passed_to = self._passed_to, None
        if not passed:
            return
        if position is None:
            # Copies of what was in flight out of memory: they were never read.
            copies = self._disk.read(passed, ALL)
            with self._lock:
                self._account.looked(self._disk.statistics)
                passed = min(len(copies), self._account.passed)
            if passed < len(copies):
                self._disk.rewind()
            if not passed:
                return
            position = copies[passed - 1].position
        self._disk.commit(position)
        with self._lock:
            self._account.committed(passed, self._disk.statistics)


def _waiting(pushes: Iterable[Queued]) -> list[Callable[[], None]]:
    """Take from pushes what is to be called when they are stored, or can't be."""
    told = []
    for queued in pushes:
        if queued.stored is not None:
            told.append(queued.stored)
            queued.stored = None
    return told


def _tell(told: Iterable[Callable[[], None]]) -> None:
    for stored in told:
        stored()
