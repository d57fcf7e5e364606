"""What the delivery log knows of the pushes on its disk: numbers, and no push.

Owns the arithmetic. The disk's first pushes, its *head*, are not "on disk" as the log's reader sees it: they
are in flight, or acknowledged and not yet committed. The rest is unread. At the disk's bound its oldest
pushes go, so those of the head first, which costs nothing: who holds them in flight goes on.
"""

from __future__ import annotations

from receiver.host.spool import SpoolStatistics

__all__ = ["DiskAccount"]


class DiskAccount:
    """Counts one disk's pushes; for one thread at a time.

    Attributes:
        passed: Of the head: acknowledged, and to be committed.
        recovered: Pushes that were there from before.
        dropped_full: Unread pushes that went because of the disk's bound.
        dropped_damaged: Unread pushes that could not be read back.
    """

    def __init__(self) -> None:
        self.passed = 0
        self.recovered = 0
        self.dropped_full = 0
        self.dropped_damaged = 0
        self._pushes = 0
        self._head = 0
        # In flight, and no longer on disk.
        self._displaced = 0
        self._seen_full = 0

    @property
    def unread(self) -> int:
        """Pushes on disk that are neither in flight nor acknowledged."""
        return self._pushes - self._head

    def opened(self, found: SpoolStatistics) -> None:
        """The disk is open, and holds pushes from before; what it lost of them counts as lost here."""
        self._pushes = found.pushes
        self._seen_full = found.dropped_full
        self.recovered += found.pushes + found.dropped_full + found.lost_pushes
        self.dropped_full += found.dropped_full
        self.dropped_damaged += found.lost_pushes

    def wrote(self, pushes: int, copies: int, acknowledged: int, now: SpoolStatistics) -> None:
        """Pushes were appended.

        Args:
            pushes: How many.
            copies: How many of them, the first, were in flight when that began; then nothing was unread.
            acknowledged: How many of these are acknowledged by now.
            now: The disk's numbers afterwards.
        """
        self._head += copies
        self.passed += acknowledged
        self._settle(pushes, now)

    def read(self, pushes: int, now: SpoolStatistics) -> None:
        """So many unread pushes were read, and are in flight."""
        self._settle(0, now)
        self._head += pushes

    def looked(self, now: SpoolStatistics) -> None:
        """Something was read that was not unread; it may have turned out to be damaged."""
        self._settle(0, now)

    def acknowledged(self, pushes: int) -> None:
        """So many of the head's pushes that were in flight, the oldest, need not be delivered any more."""
        displaced = min(pushes, self._displaced)
        self._displaced -= displaced
        self.passed += pushes - displaced

    def committed(self, pushes: int, now: SpoolStatistics) -> None:
        """So many of what is passed were committed."""
        self.passed -= pushes
        self._head -= pushes
        self._settle(-pushes, now)

    def retired(self) -> None:
        """Nobody has anything in flight any more: that is on disk alone, or gone."""
        self._head = self.passed
        self.dropped_full += self._displaced
        self._displaced = 0

    def _settle(self, came: int, now: SpoolStatistics) -> None:
        lost = self._pushes + came - now.pushes
        full, self._seen_full = now.dropped_full - self._seen_full, now.dropped_full
        self._pushes = now.pushes
        # Those at the head are lost first, and of them first what is acknowledged.
        in_head = min(lost, self._head)
        self._head -= in_head
        in_passed = min(in_head, self.passed)
        self.passed -= in_passed
        self._displaced += in_head - in_passed
        of_bound = max(0, min(full, lost) - in_head)
        self.dropped_full += of_bound
        self.dropped_damaged += lost - in_head - of_bound
