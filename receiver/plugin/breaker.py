"""A circuit breaker: who keeps failing is left alone for a while, and then tried with little.

Owns the decision alone: the clock's reading is an argument, and nobody waits here. The plugin host has one for
each plugin; a plugin with several destinations of its own may have one for each of them.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["CircuitBreaker", "CircuitState"]


class CircuitState(StrEnum):
    """Whether a destination is asked."""

    #: As usual.
    CLOSED = "closed"
    #: Not at all, until the pause is over.
    OPEN = "open"
    #: Once and with little: what comes of it closes the circuit or opens it again.
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """Counts one destination's failures in a row; for one thread at a time.

    Args:
        failures: Failures in a row that open the circuit, at least 1.
        open_s: How long it stays open after each failure from then on, in seconds.
    """

    def __init__(self, failures: int, open_s: float) -> None:
        self._failures = failures
        self._open_s = open_s
        self._in_a_row = 0
        self._open_until = 0.0

    def state(self, now: float) -> CircuitState:
        """The circuit's state at a time (monotonic seconds)."""
        if self._in_a_row < self._failures:
            return CircuitState.CLOSED
        return CircuitState.OPEN if now < self._open_until else CircuitState.HALF_OPEN

    def allows(self, now: float) -> bool:
        """Whether the destination may be asked now; while the circuit is half open, with little."""
        return self.state(now) is not CircuitState.OPEN

    def retry_in_s(self, now: float) -> float:
        """Seconds until the destination may be asked; 0.0 when it may be."""
        return max(0.0, self._open_until - now) if self._in_a_row >= self._failures else 0.0

    def succeeded(self) -> None:
        """The destination answered: the circuit closes."""
        self._in_a_row = 0

    def failed(self, now: float, retry_after_s: float | None = None) -> None:
        """The destination was slow or away.

        Args:
            now: Monotonic seconds.
            retry_after_s: The destination's own wish for the pause; prolongs it, never shortens it. Whoever
                asks bounds it.
        """
        self._in_a_row += 1
        pause = self._open_s
        if retry_after_s is not None and retry_after_s > pause:
            pause = retry_after_s
        self._open_until = now + pause
