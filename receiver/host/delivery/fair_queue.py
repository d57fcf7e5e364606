"""The memory part of a plugin's delivery log: a bounded queue, shared fairly among sites.

At the bound the site that has most in the queue loses its oldest push, so no site can push out what the
others have there.

Owns the bound in items and in bytes, the policy at the bound and the high-water marks. Has no lock and waits
for nothing: :class:`receiver.host.delivery.memory_queue.MemoryQueue` does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from receiver.plugin import Push
from receiver.plugin.shares import Holdings
from receiver.plugin.sources import site_of

__all__ = ["FairQueue", "Queued"]


@dataclass(slots=True)
class Queued:
    """A push in memory.

    Attributes:
        push: The push.
        size: Its OTLP bytes.
        since: When it was offered, in monotonic seconds.
        stored: Called when it is on disk, or can't be; None when nobody waits for that.
        copied: Whether it is on disk, too.
        number: Its place in the queue; set by :class:`FairQueue`.
    """

    push: Push
    size: int
    since: float
    stored: Callable[[], None] | None = None
    copied: bool = False
    number: int = 0

    @property
    def site(self) -> str:
        """The site that it counts for."""
        return site_of(self.push.context.source_address)


class FairQueue:
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
        # By number, in order: all of them, and those of each site.
        self._pushes: OrderedDict[int, Queued] = OrderedDict()
        self._by_site: dict[str, OrderedDict[int, Queued]] = {}
        self._shares: Holdings[str] = Holdings()
        self._first = self._next = 0
        # A push takes of both bounds. In bytes, so that one number tells who has most.
        self._item_bytes = max(1, max_bytes // max_items)

    def __len__(self) -> int:
        return len(self._pushes)

    def __iter__(self) -> Iterator[Queued]:
        return iter(self._pushes.values())

    @property
    def oldest(self) -> Queued | None:
        """What would be taken first; None when there is nothing."""
        return next(iter(self._pushes.values()), None)

    @property
    def more_than_half_full(self) -> bool:
        """Whether more than half of either bound is taken."""
        return len(self._pushes) * 2 > self.max_items or self.bytes * 2 > self.max_bytes

    def add(self, queued: Queued) -> Sequence[Queued]:
        """Add a push; what doesn't fit goes.

        The site that has most in the queue, with this push, loses its oldest: a later push of the same client
        is worth more than an earlier one. A push that alone doesn't fit, or alone is more than any other site
        has, goes itself.

        Returns:
            What went, oldest first; this push last.
        """
        items = len(self._pushes) + self.reserved_items + 1
        held = self.bytes + self.reserved_bytes + queued.size
        if queued.size + self.reserved_bytes > self.max_bytes or self.reserved_items >= self.max_items:
            return (queued,)
        queued.number, self._next = self._next, self._next + 1
        self._put(queued)
        gone: list[Queued] = []
        while items > self.max_items or held > self.max_bytes:
            largest = self._shares.largest()
            if largest is None:
                break
            oldest = next(iter(self._by_site[largest].values()))
            self._remove(oldest)
            gone.append(oldest)
            items -= 1
            held -= oldest.size
            if oldest is queued:
                break
        self.high_water_items = max(self.high_water_items, len(self._pushes))
        self.high_water_bytes = max(self.high_water_bytes, self.bytes)
        return tuple(gone)

    def take(self, max_items: int, max_bytes: int) -> list[Queued]:
        """Take the oldest pushes.

        Args:
            max_items: Most pushes.
            max_bytes: Most OTLP bytes; a single push may be larger.
        """
        batch: list[Queued] = []
        taken = 0
        while len(batch) < max_items and (queued := self.oldest) is not None:
            if batch and taken + queued.size > max_bytes:
                break
            self._remove(queued)
            batch.append(queued)
            taken += queued.size
        return batch

    def put_back(self, batch: Sequence[Queued]) -> None:
        """Put what was taken last back to where it was; it still has its room if that was reserved."""
        for queued in reversed(batch):
            self._first -= 1
            queued.number = self._first
            self._put(queued)
            self._pushes.move_to_end(queued.number, last=False)
            self._by_site[queued.site].move_to_end(queued.number, last=False)

    def reserve(self, batch: Sequence[Queued]) -> None:
        """Count what was taken as held, until the next call: it is in memory until it is written."""
        self.reserved_items = len(batch)
        self.reserved_bytes = sum(queued.size for queued in batch)

    def _put(self, queued: Queued) -> None:
        site = queued.site
        self._pushes[queued.number] = queued
        self._by_site.setdefault(site, OrderedDict())[queued.number] = queued
        self._shares.add(site, queued.size + self._item_bytes)
        self.bytes += queued.size

    def _remove(self, queued: Queued) -> None:
        site = queued.site
        of_site = self._by_site[site]
        del self._pushes[queued.number], of_site[queued.number]
        if not of_site:
            del self._by_site[site]
        self._shares.add(site, -queued.size - self._item_bytes)
        self.bytes -= queued.size
