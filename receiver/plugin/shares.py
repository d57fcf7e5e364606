"""Fair shares of what many peers hold together: who holds how much, and who holds most.

Pure. The owner of a bounded store asks who holds most, and takes from that peer at the bound. So a peer that
holds no more than the bound divided by the number of peers loses nothing, whatever the others do.
"""

from __future__ import annotations

import heapq
import math
from typing import Generic, TypeVar

__all__ = ["Holdings", "RecentShares"]

_Peer = TypeVar("_Peer")


class Holdings(Generic[_Peer]):
    """How much each peer holds.

    Every call takes logarithmic time on average: the heap keeps old entries until they come to its top, and
    is made anew when more than half of it is old.

    Attributes:
        total: What all peers hold together.
    """

    __slots__ = ("_heap", "_held", "_number", "total")

    def __init__(self) -> None:
        self._held: dict[_Peer, int] = {}
        # Entries are (-held, number, peer). The number keeps peers from being compared.
        self._heap: list[tuple[int, int, _Peer]] = []
        self._number = 0
        self.total = 0

    def __len__(self) -> int:
        """How many peers hold something."""
        return len(self._held)

    def of(self, peer: _Peer) -> int:
        """What a peer holds."""
        return self._held.get(peer, 0)

    def add(self, peer: _Peer, amount: int) -> None:
        """Count that a peer holds so much more, or less where it is negative."""
        held = self._held.get(peer, 0) + amount
        self.total += amount
        if not held:
            self._held.pop(peer, None)
            return
        self._held[peer] = held
        self._push(peer, held)
        if len(self._heap) > 64 + 2 * len(self._held):
            self._heap = []
            for other, held_now in self._held.items():
                self._heap.append((-held_now, self._number, other))
                self._number += 1
            heapq.heapify(self._heap)

    def largest(self) -> _Peer | None:
        """The peer that holds most; None where nobody holds anything."""
        while self._heap:
            negative, _, peer = self._heap[0]
            if self._held.get(peer) == -negative:
                return peer
            heapq.heappop(self._heap)
        return None

    def _push(self, peer: _Peer, held: int) -> None:
        self._number += 1
        heapq.heappush(self._heap, (-held, self._number, peer))


#: Weights are scaled back before they leave the range in which floats add exactly enough.
_MAX_SCALE = 1e100


class RecentShares(Generic[_Peer]):
    """Shares of what was written last, where older writes count less.

    A byte counts ``1/e`` after ``window`` more bytes, so that the weights follow what a ring of that size
    holds. Peers whose weight is less than a byte are forgotten.

    Args:
        window: Bytes.
        max_peers: Peers remembered at most; those with the least weight go first.
    """

    __slots__ = ("_max_peers", "_scale", "_total", "_weights", "_window")

    def __init__(self, window: float, *, max_peers: int = 65_536) -> None:
        self._window = window
        self._max_peers = max_peers
        # A byte that is written now weighs ``_scale``; so older ones need not be touched.
        self._scale = 1.0
        self._weights: dict[_Peer, float] = {}
        self._total = 0.0

    def wrote(self, peer: _Peer, size: int) -> None:
        """Count what a peer wrote, in bytes."""
        self._scale *= math.exp(min(size / self._window, 100.0))
        weight = size * self._scale
        self._weights[peer] = self._weights.get(peer, 0.0) + weight
        self._total += weight
        if self._scale > _MAX_SCALE or len(self._weights) > self._max_peers:
            self._tidy()

    def is_over(self, peer: _Peer) -> bool:
        """Whether a peer wrote more than the total divided by the number of peers that wrote."""
        peers = len(self._weights)
        return peers > 1 and self._weights.get(peer, 0.0) * peers > self._total

    def share(self, peer: _Peer) -> float:
        """The share of a peer, 0 to 1."""
        return self._weights.get(peer, 0.0) / self._total if self._total else 0.0

    def _tidy(self) -> None:
        kept = {peer: weight / self._scale for peer, weight in self._weights.items()}
        most = self._max_peers // 2 if len(kept) > self._max_peers else len(kept)
        largest = heapq.nlargest(most, kept.items(), key=lambda item: item[1])
        self._weights = {peer: weight for peer, weight in largest if weight >= 1.0}
        self._total = math.fsum(self._weights.values())
        self._scale = 1.0
