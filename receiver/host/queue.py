"""The memory part of a plugin's delivery log: a bounded queue whose oldest pushes make room.

Owns the bound in items and in bytes, the policy at the bound and the high-water marks. Has no lock and waits
for nothing: :class:`receiver.host.delivery_log.DeliveryLog` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from receiver.plugin import Push

__all__ = ["PushQueue", "Queued"]


@dataclass(slots=True)
class Queued:
    """A push in memory.

    Attributes:
        push: The push.
        size: Its OTLP bytes.
        since: When it was offered, in monotonic seconds.
        stored: Called when it is on disk, or can't be; None when nobody waits for that.
        copied: Whether it is on disk, too.
    """

    push: Push
    size: int
    since: float
    stored: Callable[[], None] | None = None
    copied: bool = False


class PushQueue:
    """What waits in memory, oldest first; for one thread at a time.

    Args:
        max_items: Most pushes held.
        max_bytes: Most OTLP bytes held.

    Attributes:
        bytes: OTLP bytes held.
        high_water_items: Most pushes ever held.
        high_water_bytes: Most OTLP bytes ever held.
        reserved_items: Pushes taken out that still count as held.
        reserved_bytes: Their OTLP bytes.
    """

    def __init__(self, *, max_items: int, max_bytes: int) -> None:
        self.max_items = max_items
        self.max_bytes = max_bytes
        self.bytes = 0
        self.high_water_items = 0
        self.high_water_bytes = 0
        self.reserved_items = 0
        self.reserved_bytes = 0
        self._pushes: deque[Queued] = deque()

    def __len__(self) -> int:
        return len(self._pushes)

    def __iter__(self) -> Iterator[Queued]:
        return iter(self._pushes)

    @property
    def oldest(self) -> Queued | None:
        """What would be taken first; None when there is nothing."""
        return self._pushes[0] if self._pushes else None

    @property
    def more_than_half_full(self) -> bool:
        """Whether more than half of either bound is taken."""
        return len(self._pushes) * 2 > self.max_items or self.bytes * 2 > self.max_bytes

    def add(self, queued: Queued) -> Sequence[Queued]:
        """Add a push; what doesn't fit goes.

        The oldest pushes make room, because a later push of the same client is worth more than an earlier
        one. A push that alone doesn't fit goes itself.

        Returns:
            What went, oldest first.
        """
        pushes = self._pushes
        items = len(pushes) + self.reserved_items + 1
        held = self.bytes + self.reserved_bytes + queued.size
        if items <= self.max_items and held <= self.max_bytes:
            gone: Sequence[Queued] = ()
        elif queued.size + self.reserved_bytes > self.max_bytes or self.reserved_items >= self.max_items:
            return (queued,)
        else:
            gone = self._make_room(items - self.max_items, held - self.max_bytes)
        pushes.append(queued)
        self.bytes += queued.size
        if len(pushes) > self.high_water_items:
            self.high_water_items = len(pushes)
        if self.bytes > self.high_water_bytes:
            self.high_water_bytes = self.bytes
        return gone

    def take(self, max_items: int, max_bytes: int) -> list[Queued]:
        """Take the oldest pushes.

        Args:
            max_items: Most pushes.
            max_bytes: Most OTLP bytes; a single push may be larger.
        """
        pushes = self._pushes
        batch: list[Queued] = []
        taken = 0
        while pushes and len(batch) < max_items:
            if batch and taken + pushes[0].size > max_bytes:
                break
            queued = pushes.popleft()
            batch.append(queued)
            taken += queued.size
        self.bytes -= taken
        return batch

    def put_back(self, batch: Sequence[Queued]) -> None:
        """Put what was taken last back to where it was; it still has its room if that was reserved."""
        self._pushes.extendleft(reversed(batch))
        self.bytes += sum(queued.size for queued in batch)

    def reserve(self, batch: Sequence[Queued]) -> None:
        """Count what was taken as held, until the next call: it is in memory until it is written."""
        self.reserved_items = len(batch)
        self.reserved_bytes = sum(queued.size for queued in batch)

    def _make_room(self, items: int, bytes_: int) -> list[Queued]:
        gone: list[Queued] = []
        while items > 0 or bytes_ > 0:
            queued = self._pushes.popleft()
            self.bytes -= queued.size
            items -= 1
            bytes_ -= queued.size
            gone.append(queued)
        return gone
