"""The clocks that the edges read: monotonic, CPU time of the thread, wall clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Source of time."""

    def monotonic(self) -> float:
        """Return seconds that never go backwards."""

    def cpu(self) -> float:
        """Return seconds of CPU time that the calling thread has used."""

    def wall_ns(self) -> int:
        """Return nanoseconds since the epoch."""


class SystemClock:
    """The system's clocks."""

    monotonic = staticmethod(time.monotonic)
    cpu = staticmethod(time.thread_time)
    wall_ns = staticmethod(time.time_ns)


def wall_time(nanoseconds: int) -> datetime:
    """Return the time in UTC of nanoseconds since the epoch, to the millisecond."""
    return datetime.fromtimestamp(nanoseconds // 1_000_000 / 1000, UTC)
