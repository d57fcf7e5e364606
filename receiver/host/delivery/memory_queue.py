"""Queue of one plugin's pushes, in memory.

::

    offer ──▶ memory ──▶ read ──▶ acknowledge

Owns the order, and the state of every push: in memory, in flight, acknowledged, or dropped.
:class:`receiver.host.delivery.disk_queue.DiskQueue` adds a disk. The event loop calls ``offer``;
the sender's thread calls ``read``, ``acknowledge`` and ``leave``; any thread may stop the queue or
ask for statistics. Knows nothing of plugins, retries or logs.
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

#: Greater than any number of pushes or bytes.
ALL = 2**62


class MemoryQueue:
    """Queue of one plugin's pushes, without a disk."""

    def __init__(self, memory: FairQueue, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.memory = memory
        self._clock = clock
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._in_flight: deque[Queued] = deque()
        self._closed = False
        self._deadline = math.inf
        self._ended = False
        # The amounts for which the sleeping sender waits; 0 items while it does not sleep.
        self._awaited_items = 0
        self._awaited_bytes = 0
        self._offered = 0
        self._exported = 0
        self._dropped = dict.fromkeys(DropReason, 0)

    def offer(self, push: Push, stored: Callable[[bool], None] | None = None) -> bool:
        """Add a push without waiting; drop and count pushes over the bound.

        Args:
            stored: Called when the push is on disk.

        Returns:
            Whether ``stored`` will be called, once, by any thread. False for a queue without a
            disk.
        """
        queued = Queued(push, len(push.payload.data), self._clock())
        with self._lock:
            self._offered += 1
            if self._closed:
                self._dropped[DropReason.SHUTDOWN] += 1
            else:
                self._dropped[DropReason.QUEUE_FULL] += len(self.memory.add(queued))
                if self._awaited_items:
                    self._wake_sender()
        return False

    def close(self, deadline: float) -> None:
        """Accept no more pushes; hand out the rest at once, until a time on the clock."""
        with self._lock:
            self._closed = True
            self._deadline = deadline
            self._ready.notify()

    def read(self, *, max_items: int, max_bytes: int, linger_s: float) -> list[Push]:
        """Wait for pushes and return a batch, the oldest first.

        The previous batch must be acknowledged.

        Args:
            max_bytes: The most OTLP bytes in the batch; a single push may be larger.
            linger_s: Seconds to wait for more pushes once there is one.

        Returns:
            At least one push. An empty list if the queue is closed and empty, or its deadline has
            passed.
        """
        with self._lock:
            if self._await_pushes(max_items, max_bytes, linger_s):
                self._in_flight.extend(self.memory.take(max_items, max_bytes))
            return [queued.push for queued in self._in_flight]

    def read_more(self, *, max_items: int, max_bytes: int) -> list[Push]:
        """Return pushes that follow those in flight, without waiting; perhaps none.

        They are in flight too then, behind the others.
        """
        with self._lock:
            return self._take_more(max_items, max_bytes)

    def acknowledge(self, count: int, dropped: DropReason | None = None) -> bool:
        """Finish with the oldest pushes in flight.

        Args:
            count: The number of pushes, at least 1.
            dropped: The reason for dropping them; None if they were delivered.

        Returns:
            Whether they were in flight. False after the queue has ended, which takes them back.
        """
        with self._lock:
            if self._ended:
                return False
            self._count(count, dropped)
            for _ in range(count):
                self._in_flight.popleft()
        return True

    def leave(self) -> int:
        """End reading by the sender; return the number of pushes dropped by that."""
        return self.abandon()

    def abandon(self) -> int:
        """End the queue, because the sender may hang; return how many pushes are lost."""
        with self._lock:
            self._end()
            dropped = len(self.memory.take(ALL, ALL))
            self._dropped[DropReason.SHUTDOWN] += dropped
        return dropped

    def statistics(self) -> QueueStatistics:
        """Return a consistent snapshot; never waits for a disk."""
        with self._lock:
            return self._statistics()

    # -- under the lock ----------------------------------------------------------------------------

    def _statistics(self) -> QueueStatistics:
        return QueueStatistics(
            offered=self._offered,
            memory=len(self.memory),
            memory_bytes=self.memory.bytes,
            in_flight=len(self._in_flight),
            exported=self._exported,
            dropped=dict(self._dropped),
            oldest_received_at_ns=min(self._received_at_ns(), default=None),
        )

    def _take_more(self, max_items: int, max_bytes: int) -> list[Push]:
        if self._ended:
            return []
        more = self.memory.take(max_items, max_bytes)
        self._in_flight.extend(more)
        return [queued.push for queued in more]

    def _count(self, count: int, dropped: DropReason | None) -> None:
        if dropped is None:
            self._exported += count
        else:
            self._dropped[dropped] += count

    def _readable(self) -> int:
        """Return how many pushes could be read now."""
        return len(self.memory)

    def _becomes_readable(self) -> bool:
        """Whether pushes in the queue will become readable, without a new offer."""
        return False

    def _await_pushes(self, max_items: int, max_bytes: int, linger_s: float) -> bool:
        # A batch as large as the memory would never fill, because the oldest pushes would be
        # dropped.
        enough_items = min(max_items, (self.memory.max_items + 1) // 2)
        enough_bytes = min(max_bytes, (self.memory.max_bytes + 1) // 2)
        linger_until: float | None = None
        while not self._ended:
            now = self._clock()
            if readable := self._readable():
                linger_until = now + linger_s if linger_until is None else linger_until
                enough = readable >= enough_items or self.memory.bytes >= enough_bytes
                if enough or self._closed or now >= linger_until:
                    return True
                self._sleep(enough_items, enough_bytes, linger_until - now)
            elif self._closed and (now >= self._deadline or not self._becomes_readable()):
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
        """Wake the sender if it sleeps and the awaited amount is there."""
        if not self._awaited_items:
            return
        readable = self._readable()
        if readable >= self._awaited_items or (readable and self.memory.bytes >= self._awaited_bytes):
            self._awaited_items = 0
            self._ready.notify()

    def _end(self) -> None:
        """End reads and acknowledgements, and put pushes in flight back into memory."""
        self._closed = self._ended = True
        self.memory.put_back(self._in_flight)
        self._in_flight.clear()
        self._ready.notify()

    def _received_at_ns(self) -> list[int]:
        """Return the receive time of the oldest push in each place."""
        oldest = (self._in_flight[0] if self._in_flight else None, self.memory.oldest)
        return [queued.push.context.received_at_ns for queued in oldest if queued is not None]
