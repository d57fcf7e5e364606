"""Ended series that stay visible until their last scrape, bounded per peer."""

from __future__ import annotations

from collections import deque

from plugins.prometheus.family import Exposed
from receiver.peers.shares import Holdings


class Lingering:
    """Ended series by peer, each with an expiry time."""

    def __init__(self) -> None:
        #: Number of series.
        self.count = 0
        # Expiry time (milliseconds since the epoch), bytes and series, oldest first.
        self._ended: dict[str, deque[tuple[int, int, Exposed]]] = {}
        self._held: Holdings[str] = Holdings()

    @property
    def size(self) -> int:
        """Estimated bytes of the series."""
        return self._held.total

    def add(self, peer: str, exposed: Exposed, *, size: int, until_ms: int) -> None:
        """Add a series of a peer, until a time in milliseconds since the epoch."""
        self._ended.setdefault(peer, deque()).append((until_ms, size, exposed))
        self._held.add(peer, size)
        self.count += 1

    def pop_heaviest(self) -> Exposed | None:
        """Remove and return the heaviest peer's oldest series; None if there is none."""
        peer = self._held.largest()
        return None if peer is None else self._pop(peer)

    def pop_expired(self, now_ms: int) -> list[Exposed]:
        """Remove and return the expired series."""
        expired = []
        for peer, ended in list(self._ended.items()):
            while ended and ended[0][0] <= now_ms:
                expired.append(self._pop(peer))
        return expired

    def _pop(self, peer: str) -> Exposed:
        ended = self._ended[peer]
        _, size, exposed = ended.popleft()
        self._held.add(peer, -size)
        self.count -= 1
        if not ended:
            del self._ended[peer]
        return exposed
