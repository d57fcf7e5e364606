"""Bounded memory for a plugin's pushes, shared fairly among address blocks.

At the bound the block with the most in memory loses its oldest push. So no block can evict the
pushes of the others.

Owns the bounds in items and bytes, the policy at the bound, and the high-water marks. It has no
lock and never waits; :class:`receiver.host.delivery.memory_queue.MemoryQueue` does both.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from receiver.peers.shares import Holdings
from receiver.peers.sources import block_of
from receiver.plugin import Push


@dataclass(slots=True)
class Queued:
    """A push in memory."""

    push: Push
    size: int
    """Its OTLP bytes."""
    since: float
    """The time of its offer, in monotonic seconds."""
    stored: Callable[[bool], None] | None = None
    """Called with whether the push is safe; None if nothing waits for that."""
    copied: bool = False
    """Whether it is on disk, too."""
    number: int = 0
    """Its position in the queue; set by :class:`FairQueue`."""

    @property
    def block(self) -> str:
        """The address block whose share it counts against."""
        return block_of(self.push.context.source_address)


class FairQueue:
    """Pushes in memory, oldest first; for one thread at a time.

    Attributes:
        bytes: OTLP bytes in the queue.
        reserved_items: Pushes taken out that still count against the bounds.
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
        # All pushes and those of each address block, ordered by number.
        self._pushes: OrderedDict[int, Queued] = OrderedDict()
        self._by_block: dict[str, OrderedDict[int, Queued]] = {}
        self._shares: Holdings[str] = Holdings()
        self._first = self._next = 0
        # The byte equivalent of one item, so that one number compares the use of both bounds.
        self._item_bytes = max(1, max_bytes // max_items)

    def __len__(self) -> int:
        return len(self._pushes)

    def __iter__(self) -> Iterator[Queued]:
        return iter(self._pushes.values())

    @property
    def oldest(self) -> Queued | None:
        """The oldest push; None if the queue is empty."""
        return next(iter(self._pushes.values()), None)

    @property
    def more_than_half_full(self) -> bool:
        """Whether more than half of either bound is used."""
        return len(self._pushes) * 2 > self.max_items or self.bytes * 2 > self.max_bytes

    def add(self, queued: Queued) -> list[Queued]:
        """Add a push, and drop pushes over the bounds.

        The block with the most in the queue, including this push, loses its oldest push, because a
        client's later push is worth more than an earlier one. The new push itself is dropped if it
        alone exceeds the bound, or alone is more than any other address block has.

        Returns:
            The dropped pushes, oldest first; the new push last if it is one of them.
        """
        items = len(self._pushes) + self.reserved_items + 1
        held = self.bytes + self.reserved_bytes + queued.size
        if queued.size + self.reserved_bytes > self.max_bytes or self.reserved_items >= self.max_items:
            return [queued]
        queued.number, self._next = self._next, self._next + 1
        self._put(queued)
        dropped: list[Queued] = []
        while items > self.max_items or held > self.max_bytes:
            largest = self._shares.largest()
            if largest is None:
                break
            oldest = next(iter(self._by_block[largest].values()))
            self._remove(oldest)
            dropped.append(oldest)
            items -= 1
            held -= oldest.size
            if oldest is queued:
                break
        self.high_water_items = max(self.high_water_items, len(self._pushes))
        self.high_water_bytes = max(self.high_water_bytes, self.bytes)
        return dropped

    def take(self, max_items: int, max_bytes: int) -> list[Queued]:
        """Remove and return the oldest pushes: one, or OTLP of at most ``max_bytes``."""
        batch: list[Queued] = []
        size = 0
        while len(batch) < max_items and (queued := self.oldest) is not None:
            if batch and size + queued.size > max_bytes:
                break
            self._remove(queued)
            batch.append(queued)
            size += queued.size
        return batch

    def put_back(self, batch: Sequence[Queued]) -> None:
        """Put the pushes that were taken last back at the front, whatever the bounds."""
        for queued in reversed(batch):
            self._first -= 1
            queued.number = self._first
            self._put(queued)
            self._pushes.move_to_end(queued.number, last=False)
            self._by_block[queued.block].move_to_end(queued.number, last=False)

    def reserve(self, batch: Sequence[Queued]) -> None:
        """Count taken pushes against the bounds until the next call."""
        self.reserved_items = len(batch)
        self.reserved_bytes = sum(queued.size for queued in batch)

    def _put(self, queued: Queued) -> None:
        block = queued.block
        self._pushes[queued.number] = queued
        self._by_block.setdefault(block, OrderedDict())[queued.number] = queued
        self._shares.add(block, queued.size + self._item_bytes)
        self.bytes += queued.size

    def _remove(self, queued: Queued) -> None:
        block = queued.block
        block_pushes = self._by_block[block]
        del self._pushes[queued.number], block_pushes[queued.number]
        if not block_pushes:
            del self._by_block[block]
        self._shares.add(block, -queued.size - self._item_bytes)
        self.bytes -= queued.size
