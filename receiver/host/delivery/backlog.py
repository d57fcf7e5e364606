"""How many pushes wait for a destination, and how long there is room for more.

Pure: the time comes in as an argument.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from receiver.amounts import bytes_text, count_text, duration_text

#: Seconds of the past from which the rate is computed.
_WINDOW_S: Final = 300.0
#: A shorter past says nothing about the rate, because the spool is written in chunks.
_LEAST_S: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The pushes that wait for a destination."""

    pushes: int
    """Waiting pushes, in memory, on disk and in flight."""
    bytes: int
    """OTLP bytes in memory, and compressed bytes on disk."""
    used: float
    """The used share of the spool, or of the memory without a spool; 0 to 1."""
    full_in_s: float | None
    """Seconds until it is full at the present rate; None if it does not grow."""
    away_s: float
    """Seconds since the destination began to fail; 0.0 if its circuit is closed."""
    has_spool: bool

    def __str__(self) -> str:
        place = "spool" if self.has_spool else "memory"
        left = (
            "does not grow"
            if self.full_in_s is None
            else f"full in {duration_text(self.full_in_s)} at this rate"
        )
        verb = "waits" if self.pushes == 1 else "wait"
        waiting = f"{count_text(self.pushes, 'push', 'pushes')} ({bytes_text(self.bytes)}) {verb}"
        return f"{waiting}, {place} {self.used * 100:.1f} % full, {left}"


class FillRate:
    """How fast a queue fills, from its use in the last minutes."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()

    def add(self, now: float, used: float) -> None:
        """Add a sample: the used share at a time in seconds, not before the last sample's."""
        self._samples.append((now, used))
        while self._samples[0][0] < now - _WINDOW_S:
            self._samples.popleft()

    def full_in_s(self) -> float | None:
        """Return the seconds from the last sample until it is full.

        None if it does not grow.
        """
        if not self._samples:
            return None
        (began, before), (now, used) = self._samples[0], self._samples[-1]
        if now - began < _LEAST_S or used <= before:
            return None
        return max(0.0, 1.0 - used) * (now - began) / (used - before)
