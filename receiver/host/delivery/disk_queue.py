"""Queue of one plugin's pushes: the oldest part on disk, the newest in memory.

::

    offer ──▶ memory ──────────────▶ read ──▶ acknowledge
                └──▶ write ──▶ disk ──┘

Owns the order, and which pushes go to disk and when. Pushes in flight stay in the queue until they
are acknowledged, so that they can still go to disk. Besides the callers of a :class:`MemoryQueue`,
the spooler's thread calls ``open``, ``await_work``, ``write`` and ``finish``. No lock that the
event loop takes is held during I/O.

Pushes on disk are always older than pushes in memory. Two rules ensure that:

* The sender takes nothing out of memory while a part of it is being written, or unread pushes are
  on disk.
* Pushes that are written while they are in flight lie at the head of the disk, because nothing else
  on it is unread then. They are *copies*: skipped once they are acknowledged, and never read for
  the sender.
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
from receiver.peers.shares import RecentShares
from receiver.plugin import Push

#: The most pushes and bytes of one write.
_WRITE_ITEMS = 1000
_WRITE_BYTES = 1_048_576
#: Seconds that the sender waits if the system lacks files or memory to read the disk.
_SHORTAGE_S = 1.0


class DiskQueue(MemoryQueue):
    """Queue of one plugin's pushes, in memory and on disk.

    Args:
        after_s: Seconds that a push stays in memory before it is written. None: every push is
            written before it is read.
        cpu: Charged with the CPU time of writing.
    """

    def __init__(
        self,
        memory: FairQueue,
        disk: Disk,
        *,
        after_s: float | None,
        clock: Callable[[], float] = time.monotonic,
        cpu: CpuAccount | None = None,
    ) -> None:
        super().__init__(memory, clock=clock)
        self._disk = disk
        self._always = after_s is None
        self._after_s = after_s or 0.0
        self._work = threading.Condition(self._lock)
        # In flight from the disk; never at the same time as pushes in flight from memory.
        self._spooled: deque[Spooled] = deque()
        self._account = DiskAccount()
        self._commit_position: Position | None = None
        # Until the disk is examined it may hold older pushes.
        self._unexamined = True
        self._writing_since: float | None = None
        # An idle spooler waits for any push; otherwise it waits for a time or for half-full memory.
        self._idle = False
        self._sender_left = False
        self._abandoned = False
        # Pushes that were not written at the disk's bound.
        self._refused = 0
        self._cpu = CpuAccount() if cpu is None else cpu
        self._shares: RecentShares[str] = RecentShares(disk.max_bytes)

    def offer(self, push: Push, stored: Callable[[bool], None] | None = None) -> bool:
        """Add a push; see :meth:`MemoryQueue.offer`.

        Returns:
            Whether ``stored`` will be called, once, by any thread: with True when the push is on
            disk or delivered, with False when it is dropped. True only if every push is written.
        """
        now = self._clock()
        waits = stored is not None and self._always
        queued = Queued(push, len(push.payload.data), now, stored if waits else None)
        with self._lock:
            self._offered += 1
            if self._closed:
                self._dropped[DropReason.SHUTDOWN] += 1
                dropped = [queued]
            else:
                dropped = self.memory.add(queued)
                self._dropped[DropReason.QUEUE_FULL] += len(dropped)
            callbacks = _take_callbacks(dropped)
            if self._awaited_items:
                self._wake_sender()
            if self._idle or self._writes_early:
                self._idle = False
                self._work.notify()
        _call_all(callbacks, safe=False)
        return waits

    def close(self, deadline: float) -> None:
        """Accept no more pushes; see :meth:`MemoryQueue.close`."""
        super().close(deadline)
        with self._lock:
            self._work.notify()

    def read(self, *, max_items: int, max_bytes: int, linger_s: float) -> list[Push]:
        """Return a batch from the disk or from memory; see :meth:`MemoryQueue.read`."""
        while True:
            with self._lock:
                if not self._await_pushes(max_items, max_bytes, linger_s):
                    return []
                if not self._account.unread:
                    self._in_flight.extend(self.memory.take(max_items, max_bytes))
                    return [queued.push for queued in self._in_flight]
            if pushes := self._read_disk(max_items, max_bytes):
                return pushes
            with self._lock:
                if self._account.unread and not self._ended:
                    self._ready.wait(_SHORTAGE_S)

    def read_more(self, *, max_items: int, max_bytes: int) -> list[Push]:
        """Return pushes that follow those in flight; see :meth:`MemoryQueue.read_more`."""
        with self._lock:
            if self._ended or self._writing_since is not None:
                return []
            if not self._account.unread:
                return self._take_more(max_items, max_bytes) if self._readable_unwritten else []
        with self._disk.lock:
            adopted = self._adopt_copies()
        return self._read_disk(max_items, max_bytes) if adopted else []

    def acknowledge(self, count: int, dropped: DropReason | None = None) -> bool:
        """Finish with pushes, also on disk; see :meth:`MemoryQueue.acknowledge`."""
        with self._lock:
            if self._ended:
                return False
            self._count(count, dropped)
            position: Position | None = None
            finished: list[Queued] = []
            for _ in range(count):
                if self._spooled:
                    position = self._spooled.popleft().position
                    self._account.acknowledged(1)
                    continue
                finished.append(self._in_flight.popleft())
                if finished[-1].copied:
                    self._account.acknowledged(1)
            uncommitted = self._account.uncommitted
            self._commit_position = position if uncommitted else None
            # While the disk fails, they are read without being written.
            callbacks = _take_callbacks(finished)
        _call_all(callbacks, safe=dropped is None)
        if uncommitted:
            with self._disk.lock:
                self._commit()
        return True

    def leave(self) -> int:
        """End reading by the sender; the spooler writes the rest."""
        with self._lock:
            self._sender_left = True
            self._work.notify()
        return 0

    def abandon(self) -> int:
        """Drop the memory without another use of the disk; return how many pushes."""
        with self._lock:
            self._end()
            self._abandoned = True
            rest = self.memory.take(ALL, ALL)
            dropped = len(rest) + self.memory.reserved_items
            self.memory.reserve(())
            self._dropped[DropReason.SHUTDOWN] += dropped
            self._work.notify()
            callbacks = _take_callbacks(rest)
        _call_all(callbacks, safe=False)
        return dropped

    # -- the spooler -------------------------------------------------------------------------------

    def open(self) -> None:
        """Find the pushes of an earlier run on disk.

        It creates the folder only if every push is written. It reports a folder that can't be
        created, because otherwise the operator would learn of it only when the destination fails.
        """
        with self._disk.lock:
            if self._always or self._disk.exists_or_fails():
                self._open()
            with self._lock:
                self._unexamined = False
                self._wake_sender()

    def await_work(self) -> bool:
        """Wait until there is something to write; return False when the queue must end."""
        with self._lock:
            while True:
                now = self._clock()
                if self._closed and (self._sender_left or now >= self._deadline):
                    return False
                due_at = self._due_at()
                if due_at <= now:
                    return True
                wake_at = min(due_at, self._deadline)
                self._idle = due_at == math.inf
                self._work.wait(None if wake_at == math.inf else wake_at - now)
                self._idle = False

    def write(self) -> bool:
        """Write one chunk of memory to disk; return False if the disk fails."""
        with self._disk.lock:
            return self._open() and self._write()

    def finish(self) -> int:
        """Write the memory to disk, and close it; return how many pushes it refused."""
        with self._lock:
            self._end()
        with self._disk.lock:
            while len(self.memory) and self._open() and self._write():
                pass
            dropped = self.abandon()
            self._disk.spool.close()
        return dropped

    # -- under the lock ----------------------------------------------------------------------------

    @property
    def _readable_unwritten(self) -> bool:
        """Whether pushes may be read from memory before they are written."""
        return not self._always or self._disk.problem is not None

    @property
    def _writes_early(self) -> bool:
        """Whether to write pushes before ``after_s``, because memory fills up."""
        return self.memory.more_than_half_full and self._disk.problem is None

    def _statistics(self) -> QueueStatistics:
        account = self._account
        statistics = super()._statistics()
        return replace(
            statistics,
            recovered=account.recovered,
            memory=statistics.memory + self.memory.reserved_items,
            memory_bytes=statistics.memory_bytes + self.memory.reserved_bytes,
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
        if self._unexamined:
            return 0
        if unread := self._account.unread:
            return unread
        return len(self.memory) if self._writing_since is None and self._readable_unwritten else 0

    def _becomes_readable(self) -> bool:
        return self._unexamined or self._writing_since is not None or len(self.memory) > 0

    def _due_at(self) -> float:
        """Return the time of the next write, in monotonic seconds."""
        if self._disk.problem is not None:
            # Retry even with nothing to write: the disk may hold old pushes, and its problem is
            # alerted on.
            return self._disk.retry_at
        oldest = self.memory.oldest
        if self._in_flight and not self._in_flight[0].copied and not self._account.unread:
            oldest = self._in_flight[0]
        if oldest is None:
            return math.inf
        return -math.inf if self._always or self._writes_early else oldest.since + self._after_s

    def _end(self) -> None:
        self._in_flight = deque(queued for queued in self._in_flight if not queued.copied)
        self._spooled.clear()
        self._account.ended()
        super()._end()

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
            self._wake_sender()
        return opened

    def _write(self) -> bool:
        memory = self.memory
        with self._lock:
            copies = [] if self._account.unread else [entry for entry in self._in_flight if not entry.copied]
            chunk = memory.take(
                min(_WRITE_ITEMS, (memory.max_items + 1) // 2), min(_WRITE_BYTES, memory.max_bytes // 2)
            )
            memory.reserve(chunk)
            self._writing_since = self._clock()
        kept, refused = self._share_disk(chunk)
        pushes_written = [queued.push for queued in (*copies, *kept)]
        cpu_began = time.thread_time()
        written = self._disk.append(pushes_written)
        if written:
            self._cpu.add(pushes_written, time.thread_time() - cpu_began)
        with self._lock:
            self._writing_since = None
            callbacks, unsafe = [], _take_callbacks(refused)
            if written:
                left_out = set(map(id, self._disk.left_out))
                unsafe += _take_callbacks(queued for queued in kept if id(queued.push) in left_out)
                # A copy that was left out is in flight. What becomes of it is known later.
                on_disk = (queued for queued in (*copies, *kept) if id(queued.push) not in left_out)
                callbacks = _take_callbacks(on_disk)
            if self._abandoned:
                unsafe += _take_callbacks(chunk)
            else:
                memory.reserve(())
                if written:
                    for queued in copies:
                        queued.copied = True
                    # The sender has read nothing new meanwhile.
                    in_flight = {id(queued) for queued in self._in_flight}
                    acknowledged = sum(id(queued) not in in_flight for queued in copies)
                    pushes = len(copies) + len(kept)
                    self._refused += len(refused)
                    for queued in kept:
                        self._shares.wrote(queued.block, queued.size)
                    self._account.wrote(pushes, len(copies), acknowledged, self._disk.statistics)
                else:
                    memory.put_back(chunk)
            self._wake_sender()
        _call_all(callbacks, safe=True)
        _call_all(unsafe, safe=False)
        self._commit()
        return written

    def _share_disk(self, chunk: Sequence[Queued]) -> tuple[list[Queued], list[Queued]]:
        """Split a chunk into pushes to write and pushes to refuse.

        At the disk's bound a write deletes the oldest pushes, which may be another block's. Then a
        block that recently wrote more than its share (:class:`RecentShares`) writes no more. So it
        deletes no more than its share of the others' pushes.
        """
        disk = self._disk.statistics
        if disk.bytes + sum(queued.size for queued in chunk) <= self._disk.max_bytes:
            return list(chunk), []
        kept: list[Queued] = []
        refused: list[Queued] = []
        for queued in chunk:
            (refused if self._shares.is_over(queued.block) else kept).append(queued)
        return kept, refused

    def _read_disk(self, max_items: int, max_bytes: int) -> list[Push]:
        with self._disk.lock:
            self._commit()
            if self._account.uncommitted:
                return []  # acknowledged copies can't be skipped now, and would be delivered again
            spooled = self._disk.spool.read(max_items, max_bytes)
            with self._lock:
                if self._ended:
                    return []
                self._account.read(len(spooled), self._disk.statistics)
                self._spooled.extend(spooled)
        return [entry.push for entry in spooled]

    def _adopt_copies(self) -> bool:
        """Take pushes in flight from the disk, not from memory; return if all are there."""
        with self._lock:
            in_flight, before = list(self._in_flight), len(self._spooled)
            if not in_flight:
                return True
            if self._account.uncommitted or not all(queued.copied for queued in in_flight):
                return False
        copies = self._disk.spool.read(len(in_flight), ALL)
        if [copy.push.identity for copy in copies] != [queued.push.identity for queued in in_flight]:
            self._disk.spool.rewind()
            self._disk.spool.read(before, ALL)
            return False
        with self._lock:
            if self._ended:
                return False
            self._spooled.extend(copies)
            self._in_flight.clear()
        return True

    def _commit(self) -> None:
        with self._lock:
            count = self._account.uncommitted
            position, self._commit_position = self._commit_position, None
        if not count:
            return
        if position is None:
            # They are copies of pushes in flight from memory, which were never read from the disk.
            copies = self._disk.spool.read(count, ALL)
            with self._lock:
                self._account.reconcile(self._disk.statistics)
                count = min(len(copies), self._account.uncommitted)
            if count < len(copies):
                self._disk.spool.rewind()
            if not count:
                return
            position = copies[count - 1].position
        self._disk.spool.commit(position)
        with self._lock:
            self._account.committed(count, self._disk.statistics)


def _take_callbacks(pushes: Iterable[Queued]) -> list[Callable[[bool], None]]:
    """Remove and return the callbacks that wait for pushes to be safe."""
    callbacks: list[Callable[[bool], None]] = []
    for queued in pushes:
        if queued.stored is not None:
            callbacks.append(queued.stored)
            queued.stored = None
    return callbacks


def _call_all(callbacks: Iterable[Callable[[bool], None]], *, safe: bool) -> None:
    for stored in callbacks:
        stored(safe)
