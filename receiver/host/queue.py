"""The bounded queue between the event loop, which must never wait, and one plugin's thread, which may.

Owns the bound in items and in bytes, the policy at the bound (the oldest push goes first) and the numbers
that show it. Knows nothing of plugins, retries or logs.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from receiver.plugin import Push

__all__ = ["PushQueue", "QueueStatistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatistics:
    """One consistent look at a queue.

    Attributes:
        items: Pushes held.
        bytes: OTLP bytes held.
        high_water_items: Most pushes ever held.
        high_water_bytes: Most OTLP bytes ever held.
        offered: Pushes ever offered, dropped ones included.
        dropped_full: Pushes dropped because of a bound.
        dropped_closed: Pushes offered after :meth:`PushQueue.close`.
    """

    items: int
    bytes: int
    high_water_items: int
    high_water_bytes: int
    offered: int
    dropped_full: int
    dropped_closed: int


class PushQueue:
    """A queue with one or more producers that never wait and one consumer that does.

    Args:
        max_items: Most pushes held.
        max_bytes: Most OTLP bytes (``payload.data``) held.
        clock: Monotonic seconds, for the linger time of a batch.
    """

    def __init__(
        self, *, max_items: int, max_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.max_items = max_items
        self.max_bytes = max_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._pushes: deque[Push] = deque()
        self._bytes = 0
        self._closed = False
        # What the consumer sleeps for; 0 items: it doesn't sleep, and a producer need not wake anybody.
        self._awaited_items = 0
        self._awaited_bytes = 0
        self._high_water_items = 0
        self._high_water_bytes = 0
        self._offered = 0
        self._dropped_full = 0
        self._dropped_closed = 0

    def offer(self, push: Push) -> None:
        """Add a push; never waits for room and never fails: what doesn't fit is dropped and counted.

        The oldest pushes make room, because a later push of the same client is worth more than an earlier
        one. A push that alone is over the bound is dropped itself.
        """
        size = len(push.payload.data)
        with self._lock:
            self._offered += 1
            if self._closed:
                self._dropped_closed += 1
                return
            if size > self.max_bytes:
                self._dropped_full += 1
                return
            pushes = self._pushes
            held = self._bytes + size
            while len(pushes) >= self.max_items or held > self.max_bytes:
                held -= len(pushes.popleft().payload.data)
                self._dropped_full += 1
            pushes.append(push)
            self._bytes = held
            items = len(pushes)
            if items > self._high_water_items:
                self._high_water_items = items
            if held > self._high_water_bytes:
                self._high_water_bytes = held
            if self._awaited_items and (items >= self._awaited_items or held >= self._awaited_bytes):
                self._awaited_items = 0
                self._ready.notify()

    def take(self, *, max_items: int, max_bytes: int, linger_s: float) -> list[Push]:
        """Wait for pushes and take a batch, oldest first.

        Args:
            max_items: Most pushes in the batch.
            max_bytes: Most OTLP bytes in the batch; a single push may be larger.
            linger_s: How long to wait for more once there is one push, in seconds.

        Returns:
            At least one push; an empty list means that the queue is closed and empty.
        """
        with self._lock:
            while not self._pushes and not self._closed:
                self._sleep(1, 1, None)
            # A batch as large as the queue would never fill: the oldest pushes would go while we linger.
            enough_items = min(max_items, (self.max_items + 1) // 2)
            enough_bytes = min(max_bytes, (self.max_bytes + 1) // 2)
            deadline = self._clock() + linger_s
            while not self._closed and len(self._pushes) < enough_items and self._bytes < enough_bytes:
                left = deadline - self._clock()
                if left <= 0:
                    break
                self._sleep(enough_items, enough_bytes, left)
            return self._pop(max_items, max_bytes)

    def close(self) -> None:
        """Take no more pushes; :meth:`take` hands out what is left without lingering."""
        with self._lock:
            self._closed = True
            self._ready.notify_all()

    def clear(self) -> int:
        """Throw away what is held; the caller counts it.

        Returns:
            How many pushes that were.
        """
        with self._lock:
            items = len(self._pushes)
            self._pushes.clear()
            self._bytes = 0
            return items

    def statistics(self) -> QueueStatistics:
        """One consistent look at the queue."""
        with self._lock:
            return QueueStatistics(
                items=len(self._pushes),
                bytes=self._bytes,
                high_water_items=self._high_water_items,
                high_water_bytes=self._high_water_bytes,
                offered=self._offered,
                dropped_full=self._dropped_full,
                dropped_closed=self._dropped_closed,
            )

    def _sleep(self, items: int, bytes_: int, timeout_s: float | None) -> None:
        self._awaited_items = items
        self._awaited_bytes = bytes_
        self._ready.wait(timeout_s)
        self._awaited_items = 0

    def _pop(self, max_items: int, max_bytes: int) -> list[Push]:
        pushes = self._pushes
        batch: list[Push] = []
        taken = 0
        while pushes and len(batch) < max_items:
            size = len(pushes[0].payload.data)
            if batch and taken + size > max_bytes:
                break
            batch.append(pushes.popleft())
            taken += size
        self._bytes -= taken
        return batch
