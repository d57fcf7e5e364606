"""A circuit breaker: whether a destination is to be asked now, as a pure decision.

Owns the state and the arithmetic alone. The clock's reading is an argument; nobody sleeps or calls here.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["CircuitBreaker", "CircuitState"]


class CircuitState(StrEnum):
    """Whether a destination is asked."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """Keeps a destination that fails from being asked for a while, then lets a trial through.

    Closed until so many failures in a row, or until the destination itself says when to come back. Then open
    until that time; then half open, in which one success closes it and one failure opens it again. For one
    thread.

    Args:
        failures: Failures in a row that open it, at least 1.
        open_s: How long it stays open, in seconds; longer where the destination asks for more.
    """

    def __init__(self, failures: int, open_s: float) -> None:
        self._most = failures
        self._open_s = open_s
        self._failures = 0
        self._until: float | None = None

    def state(self, now: float) -> CircuitState:
        """The state at a time (monotonic seconds)."""
        if self._until is None:
            return CircuitState.CLOSED
        return CircuitState.OPEN if now < self._until else CircuitState.HALF_OPEN

    def allows(self, now: float) -> bool:
        """Whether the destination may be asked: it is closed, or half open."""
        return self._until is None or now >= self._until

    def retry_in_s(self, now: float) -> float:
        """Seconds until :meth:`allows`; 0.0 when it does."""
        return 0.0 if self._until is None else max(0.0, self._until - now)

    def succeeded(self) -> None:
        """The destination did what it was asked: closed."""
        self._failures = 0
        self._until = None

    def failed(self, now: float, retry_after_s: float | None = None) -> None:
        """The destination failed.

        Args:
            now: Monotonic seconds.
            retry_after_s: When it wants to be asked again; not a positive number: it told nothing.
        """
        self._failures += 1
        asked_s = retry_after_s if retry_after_s is not None and retry_after_s > 0 else 0.0
        if self._until is not None or self._failures >= self._most:
            self._until = now + max(self._open_s, asked_s)
        elif asked_s:
            self._until = now + asked_s
