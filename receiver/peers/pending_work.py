"""The work that is pending for each peer, over all of its connections.

A connection bounds what its client may have pending. A peer with many connections is bounded by the
sum.
"""

from __future__ import annotations

from weakref import WeakValueDictionary


class PendingWork:
    """What is pending for one peer.

    Attributes:
        units: One word, to which C writes too: the sum, in the units of the connections.
    """

    __slots__ = ("__weakref__", "units")

    def __init__(self) -> None:
        self.units: memoryview[int] = memoryview(bytearray(8)).cast("q")


class PendingWorks:
    """What is pending for each peer; an entry lives as long as the peer's connections."""

    def __init__(self) -> None:
        self._by_peer: WeakValueDictionary[str, PendingWork] = WeakValueDictionary()

    def of(self, peer: str) -> PendingWork:
        """Return what is pending for a peer."""
        work = self._by_peer.get(peer)
        if work is None:
            work = self._by_peer[peer] = PendingWork()
        return work
