"""Max-heap of items whose weights change.

The heap is corrected only when it is read, so a change costs one set insertion.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["Heaviest"]

#: Bound on heap entries, as a multiple of the items. Changes leave stale entries behind.
_STALE_FACTOR: Final = 2
_MIN_ENTRIES: Final = 64


class _Weighed(Protocol):
    @property
    def weight(self) -> int:
        """How much the item holds."""
        ...


Item = TypeVar("Item", bound=_Weighed)


class Heaviest(Generic[Item]):
    """The heaviest item of a changing set. Items with weight 0 are not in the set."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Item]] = []
        self._changed: set[Item] = set()
        self._count = itertools.count()
        self._compact_at = _MIN_ENTRIES

    def changed(self, item: Item) -> None:
        """Record that an item is new or its weight changed."""
        self._changed.add(item)

    def discard(self, item: Item) -> None:
        """Remove an item, whose weight must be 0."""
        self._changed.discard(item)

    def top(self) -> Item | None:
        """Return the heaviest item; None if every weight is 0. Amortized O(log n)."""
        for item in self._changed:
            if item.weight:
                heapq.heappush(self._heap, (-item.weight, next(self._count), item))
        self._changed.clear()
        if len(self._heap) > self._compact_at:
            self._compact()
        while self._heap:
            weight, _, item = self._heap[0]
            if -weight == item.weight:
                return item
            heapq.heappop(self._heap)
        return None

    def _compact(self) -> None:
        live = {entry[2]: entry for entry in self._heap if -entry[0] == entry[2].weight}
        self._heap = list(live.values())
        heapq.heapify(self._heap)
        self._compact_at = _STALE_FACTOR * len(self._heap) + _MIN_ENTRIES
