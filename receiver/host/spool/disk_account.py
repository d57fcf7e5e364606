"""Counts the pushes on a queue's disk: unread, in flight, acknowledged, lost.

Owns the arithmetic. The first pushes on the disk, its *head*, are in flight, or acknowledged and
not yet committed. The rest is unread. At its bound the disk drops its oldest pushes, so those of
the head first. That loses nothing, because the pushes in flight are in memory too.
"""

from __future__ import annotations

from receiver.host.spool import SpoolStatistics


class DiskAccount:
    """Counts one disk's pushes; for one thread at a time.

    Attributes:
        uncommitted: Pushes of the head that are acknowledged and not committed.
        recovered: Pushes of an earlier run.
        dropped_full: Unread pushes dropped at the disk's bound.
        dropped_damaged: Unread pushes that could not be read back.
    """

    def __init__(self) -> None:
        self.uncommitted = 0
        self.recovered = 0
        self.dropped_full = 0
        self.dropped_damaged = 0
        self._pushes = 0
        self._head = 0
        # In flight, but no longer on disk.
        self._displaced = 0
        self._last_dropped_full = 0

    @property
    def unread(self) -> int:
        """Pushes on disk that are neither in flight nor acknowledged."""
        return self._pushes - self._head

    def opened(self, found: SpoolStatistics) -> None:
        """Count the pushes of an earlier run, including lost ones."""
        self._pushes = found.pushes
        self._last_dropped_full = found.dropped_full
        self.recovered += found.pushes + found.dropped_full + found.lost_pushes
        self.dropped_full += found.dropped_full
        self.dropped_damaged += found.lost_pushes

    def wrote(self, pushes: int, copies: int, acknowledged: int, now: SpoolStatistics) -> None:
        """Count appended pushes.

        Args:
            copies: How many of them, the first ones, were in flight at the start of the write.
                Nothing on the disk was unread then.
            acknowledged: How many of the copies are acknowledged by now.
            now: The disk's statistics after the write.
        """
        self._head += copies
        self.uncommitted += acknowledged
        self.reconcile(now, added=pushes)

    def read(self, pushes: int, now: SpoolStatistics) -> None:
        """Count unread pushes that were read and are in flight now."""
        self.reconcile(now)
        self._head += pushes

    def acknowledged(self, pushes: int) -> None:
        """Count the oldest pushes in flight of the head as acknowledged."""
        displaced = min(pushes, self._displaced)
        self._displaced -= displaced
        self.uncommitted += pushes - displaced

    def committed(self, pushes: int, now: SpoolStatistics) -> None:
        """Count acknowledged pushes that were committed."""
        self.uncommitted -= pushes
        self._head -= pushes
        self.reconcile(now, added=-pushes)

    def ended(self) -> None:
        """Count pushes in flight as unread again, or dropped if the disk lost them."""
        self._head = self.uncommitted
        self.dropped_full += self._displaced
        self._displaced = 0

    def reconcile(self, now: SpoolStatistics, added: int = 0) -> None:
        """Find out which pushes the disk has lost, and count them.

        Args:
            added: Pushes appended since the last call, negative for committed ones.
        """
        lost = self._pushes + added - now.pushes
        dropped_full = now.dropped_full - self._last_dropped_full
        self._last_dropped_full = now.dropped_full
        self._pushes = now.pushes
        # The disk loses the head first, and of the head the acknowledged pushes first.
        lost_in_head = min(lost, self._head)
        self._head -= lost_in_head
        lost_acknowledged = min(lost_in_head, self.uncommitted)
        self.uncommitted -= lost_acknowledged
        self._displaced += lost_in_head - lost_acknowledged
        lost_at_bound = max(0, min(dropped_full, lost) - lost_in_head)
        self.dropped_full += lost_at_bound
        self.dropped_damaged += lost - lost_in_head - lost_at_bound
