"""Ended series that stay visible until their last scrape, bounded per peer."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from plugins._shared.cumulative import Heaviest

__all__ = ["Lingering"]

Item = TypeVar("Item")


@dataclass(slots=True, eq=False)
class _Peer(Generic[Item]):
    name: str
    weight: int = 0
    #: Expiry time, bytes and item, oldest first.
    items: deque[tuple[int, int, Item]] = field(default_factory=deque)


class Lingering(Generic[Item]):
    """Items by peer, each with an expiry time.

    Attributes:
        count: Number of items.
        size: Bytes of the items.
    """

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self._peers: dict[str, _Peer[Item]] = {}
        self._heaviest: Heaviest[_Peer[Item]] = Heaviest()

    def add(self, peer: str, item: Item, *, size: int, until_ms: int) -> None:
        """Add an item.

        Args:
            peer: Its peer.
            item: The item.
            size: Its bytes.
            until_ms: Expiry time, milliseconds since the epoch.
        """
        holder = self._peers.get(peer)
        if holder is None:
            holder = self._peers[peer] = _Peer(peer)
        holder.items.append((until_ms, size, item))
        self._changed(holder, size, 1)

    def pop_heaviest(self) -> Item | None:
        """Remove and return the oldest item of the heaviest peer; None if there is none."""
        peer = self._heaviest.top()
        return None if peer is None else self._pop(peer)

    def pop_expired(self, now_ms: int) -> list[Item]:
        """Remove and return the expired items."""
        expired = []
        for peer in list(self._peers.values()):
            while peer.items and peer.items[0][0] <= now_ms:
                expired.append(self._pop(peer))
        return expired

    def _pop(self, peer: _Peer[Item]) -> Item:
        _, size, item = peer.items.popleft()
        self._changed(peer, -size, -1)
        if not peer.items:
            self._heaviest.discard(peer)
            del self._peers[peer.name]
        return item

    def _changed(self, peer: _Peer[Item], size: int, count: int) -> None:
        peer.weight += size
        self.size += size
        self.count += count
        self._heaviest.changed(peer)
