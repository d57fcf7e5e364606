"""Fair shares of a bounded store: counts what each peer holds.

At its bound, a store evicts from the peer that holds most. So a peer that holds at most the
bound divided by the number of peers loses nothing, whatever the others do.
"""

from __future__ import annotations

import heapq
import math
from typing import Generic, TypeVar

_Peer = TypeVar("_Peer")


class Holdings(Generic[_Peer]):
    """Counts what each peer holds, in units of the caller's choice.

    Every call takes logarithmic time on average: the heap keeps stale entries until they reach its
    top, and is rebuilt when more than half of it is stale.
    """

    def __init__(self) -> None:
        self._held: dict[_Peer, int] = {}
        # Entries are (-held, number, peer). The number keeps peers from being compared.
        self._heap: list[tuple[int, int, _Peer]] = []
        self._number = 0
        self.total = 0  # over all peers

    def __len__(self) -> int:
        """Return how many peers hold something."""
        return len(self._held)

    def held_by(self, peer: _Peer) -> int:
        """Return what a peer holds."""
        return self._held.get(peer, 0)

    def add(self, peer: _Peer, amount: int) -> None:
        """Add to what a peer holds; a negative amount subtracts."""
        held = self._held.get(peer, 0) + amount
        self.total += amount
        if not held:
            self._held.pop(peer, None)
            return
        self._held[peer] = held
        self._number += 1
        heapq.heappush(self._heap, (-held, self._number, peer))
        if len(self._heap) > 64 + 2 * len(self._held):
            self._heap = [(-size, number, other) for number, (other, size) in enumerate(self._held.items())]
            self._number = len(self._heap)
            heapq.heapify(self._heap)

    def largest(self) -> _Peer | None:
        """Return the peer that holds most; None when no peer holds anything."""
        while self._heap:
            negative, _, peer = self._heap[0]
            if self._held.get(peer) == -negative:
                return peer
            heapq.heappop(self._heap)
        return None


# Weights are rescaled before they leave the range in which sums of floats are exact enough.
_MAX_SCALE = 1e100


class RecentShares(Generic[_Peer]):
    """Each peer's share of recently written bytes; the weight of a byte decays.

    A byte weighs ``1/e`` after ``window`` more bytes, so that the weights follow the content of a
    ring buffer of that size. Peers whose weight is less than a byte are forgotten, and beyond
    ``max_peers`` those with the least weight.
    """

    def __init__(self, window: float, *, max_peers: int = 65_536) -> None:
        self._window = window
        self._max_peers = max_peers
        # A new byte weighs ``_scale``, so that the weights of older bytes need no update.
        self._scale = 1.0
        self._weights: dict[_Peer, float] = {}
        self._total = 0.0

    def wrote(self, peer: _Peer, size: int) -> None:
        """Count bytes that a peer wrote."""
        self._scale *= math.exp(min(size / self._window, 100.0))
        weight = size * self._scale
        self._weights[peer] = self._weights.get(peer, 0.0) + weight
        self._total += weight
        if self._scale > _MAX_SCALE or len(self._weights) > self._max_peers:
            self._rescale()

    def is_over(self, peer: _Peer) -> bool:
        """Return whether a peer's share is more than an equal share."""
        peers = len(self._weights)
        return peers > 1 and self._weights.get(peer, 0.0) * peers > self._total

    def _rescale(self) -> None:
        kept = {peer: weight / self._scale for peer, weight in self._weights.items()}
        most = self._max_peers // 2 if len(kept) > self._max_peers else len(kept)
        largest = heapq.nlargest(most, kept.items(), key=lambda item: item[1])
        self._weights = {peer: weight for peer, weight in largest if weight >= 1.0}
        self._total = math.fsum(self._weights.values())
        self._scale = 1.0
