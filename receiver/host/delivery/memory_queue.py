"""One plugin's pushes in one sequence, from the offer to the acknowledgement; here in memory alone.

::

    offer ──▶ memory ──▶ read ──▶ acknowledge

Owns the order, and the account of every push: it is in memory, in flight, acknowledged, or dropped.
:class:`receiver.host.delivery.disk_queue.DiskQueue` puts a disk in between. Called by the event loop
(:meth:`MemoryQueue.offer`), by the sender's thread (``read``, ``acknowledge``, ``leave``), and by whoever
stops the plugin or asks for statistics. Knows nothing of plugins, retries or logs.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable

from receiver.host.delivery.fair_queue import FairQueue, Queued
from receiver.host.delivery.statistics import DropReason, QueueStatistics
from receiver.plugin import Push

__all__ = ["ALL", "MemoryQueue"]

#: Greater than any number of pushes or bytes.
ALL = 2**62


class MemoryQueue:
    """The log without a disk.

    Args:
        queue: Its memory, empty.
        clock: Monotonic seconds.
    """

    def __init__(self, queue: FairQueue, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.queue = queue
        self._clock = clock
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        # In flight.
        self._taken: deque[Queued] = deque()
        self._closed = False
        self._deadline = math.inf
        self._ended = False
        # What the sender sleeps for; 0 pushes: it doesn't sleep, and nobody need wake it.
        self._awaited_items = 0
        self._awaited_bytes = 0
        self._offered = 0
        self._exported = 0
        self._dropped = dict.fromkeys(DropReason, 0)

    def offer(self, push: Push, stored: Callable[[], None] | None = None) -> bool:
        """Add a push; never waits and never fails: what doesn't fit is dropped and counted.

        Args:
            push: The push.
            stored: What to call when it is on disk.

        Returns:
            Whether ``stored`` will be called, once, by any thread: not by a log without a disk.
        """
        queued = Queued(push, len(push.payload.data), self._clock())
        with self._lock:
            self._offered += 1
            if self._closed:
                self._dropped[DropReason.SHUTDOWN] += 1
            else:
                if gone := self.queue.add(queued):
                    self._dropped[DropReason.QUEUE_FULL] += len(gone)
                if self._awaited_items:
                    self._wake_sender()
        return False

    def close(self, deadline: float) -> None:
        """Take no more pushes; hand out what is left until a time (on the clock), without lingering."""
        with self._lock:
            self._closed = True
            self._deadline = deadline
            self._ready.notify()

    def read(self, *, max_items: int, max_bytes: int, linger_s: float) -> list[Push]:
        """Wait for pushes and read a batch, the oldest first; the one before must be acknowledged.

        Args:
            max_items: Most pushes in the batch.
            max_bytes: Most OTLP bytes in the batch; a single push may be larger.
            linger_s: How long to wait for more once there is one push, in seconds.

        Returns:
            At least one push; an empty list means that the log is closed, and nothing is left or no time.
        """
        with self._lock:
            if self._await_pushes(max_items, max_bytes, linger_s):
                self._taken.extend(self.queue.take(max_items, max_bytes))
            return [queued.push for queued in self._taken]

    def acknowledge(self, count: int, dropped: DropReason | None = None) -> bool:
        """Have done with the oldest so many pushes in flight, at least 1.

        Args:
            count: How many.
            dropped: Why they are given up; None: they are delivered.

        Returns:
            Whether they were in flight; False after the end, when somebody else has seen to them.
        """
        with self._lock:
            if self._ended:
                return False
            self._count(count, dropped)
            for _ in range(count):
                self._taken.popleft()
        return True

    def leave(self) -> int:
        """Read no more, and drop what is left.

        Returns:
            How many pushes are dropped.
        """
        return self.abandon()

    def abandon(self) -> int:
        """Drop what is left in memory, and take no more acknowledgements: whoever owes them hangs.

        Returns:
            How many pushes are dropped.
        """
        with self._lock:
            self._retire()
            dropped = len(self.queue.take(ALL, ALL))
            self._dropped[DropReason.SHUTDOWN] += dropped
        return dropped

    def statistics(self) -> QueueStatistics:
        """One consistent look at the log; never waits for a disk."""
        with self._lock:
            return self._statistics()

    # -- under the lock ----------------------------------------------------------------------------

    def _statistics(self) -> QueueStatistics:
        return QueueStatistics(
            offered=self._offered,
            memory=len(self.queue),
            memory_bytes=self.queue.bytes,
            in_flight=len(self._taken),
            exported=self._exported,
            dropped=dict(self._dropped),
            oldest_received_at_ns=min(self._received_at_ns(), default=None),
        )

    def _count(self, count: int, dropped: DropReason | None) -> None:
        if dropped is None:
            self._exported += count
        else:
            self._dropped[dropped] += count

    def _readable(self) -> int:
        """How many pushes could be read now."""
        return len(self.queue)

    def _coming(self) -> bool:
        """Whether there will be something to read, though nothing new is taken."""
        return False

    def _await_pushes(self, max_items: int, max_bytes: int, linger_s: float) -> bool:
        # A batch as large as the queue would never fill: the oldest pushes would go while we linger.
        enough_items = min(max_items, (self.queue.max_items + 1) // 2)
        enough_bytes = min(max_bytes, (self.queue.max_bytes + 1) // 2)
        linger_until: float | None = None
        while not self._ended:
            now = self._clock()
            if readable := self._readable():
                linger_until = now + linger_s if linger_until is None else linger_until
                enough = readable >= enough_items or self.queue.bytes >= enough_bytes
                if enough or self._closed or now >= linger_until:
                    return True
                self._sleep(enough_items, enough_bytes, linger_until - now)
            elif self._closed and (now >= self._deadline or not self._coming()):
                return False
            else:
                self._sleep(1, 1, None if self._deadline == math.inf else self._deadline - now)
        return False

    def _sleep(self, items: int, bytes_: int, timeout_s: float | None) -> None:
        self._awaited_items = items
        self._awaited_bytes = bytes_
        self._ready.wait(timeout_s)
        self._awaited_items = 0

    def _wake_sender(self) -> None:
        """Wake the sender if it sleeps and what it sleeps for is there."""
        if not self._awaited_items:
            return
        readable = self._readable()
        if readable >= self._awaited_items or (readable and self.queue.bytes >= self._awaited_bytes):
            self._awaited_items = 0
            self._ready.notify()

    def _retire(self) -> None:
        """Nobody reads or acknowledges any more: what is in flight is the log's again."""
        self._closed = self._ended = True
        self.queue.put_back(self._taken)
        self._taken.clear()
        self._ready.notify()

    def _received_at_ns(self) -> list[int]:
        """When the oldest push of each place was received."""
        oldest = (self._taken[0] if self._taken else None, self.queue.oldest)
        return [queued.push.context.received_at_ns for queued in oldest if queued is not None]
