"""A circuit breaker: decides whether to call a destination now.

Pure: ``now`` is an argument, and nothing here sleeps or calls.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Final

#: The longest delay that a destination may ask for, in seconds.
MAX_RETRY_AFTER_S: Final = 3600.0

#: A longer delay is a mistake of the destination, or of a proxy, and is ignored.
_ABSURD_S: Final = 86_400.0


def requested_delay_s(value: float | None) -> float | None:
    """Return the delay that a destination asks for, within bounds.

    None if it asks for none.

    More than a day, a negative number and what is not a number are mistakes, which must not stall a
    sender: they count as no delay. ``value`` is in seconds.
    """
    if value is None or not math.isfinite(value) or not 0 < value <= _ABSURD_S:
        return None
    return min(value, MAX_RETRY_AFTER_S)


class CircuitState(StrEnum):
    """Whether a destination is called: always, not now, or for one trial."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """Stops calls to a failing destination for a while, then lets a trial through.

    The breaker opens after ``failures`` failures in a row, or when the destination names a time to
    retry. When that time is over it is half open: one success closes it, one failure opens it
    again. It stays open for ``open_s`` seconds, or longer when the destination asks for more. Not
    thread-safe.
    """

    def __init__(self, failures: int, open_s: float) -> None:
        self._max_failures = failures
        self._open_s = open_s
        self._failures = 0
        self._until: float | None = None

    def state(self, now: float) -> CircuitState:
        """Return the state at ``now`` (monotonic seconds)."""
        if self._until is None:
            return CircuitState.CLOSED
        return CircuitState.OPEN if now < self._until else CircuitState.HALF_OPEN

    def allows(self, now: float) -> bool:
        """Return whether a call may go out: the breaker is closed or half open."""
        return self._until is None or now >= self._until

    def retry_in_s(self, now: float) -> float:
        """Return the seconds until a call may go out; 0.0 when it may now."""
        return 0.0 if self._until is None else max(0.0, self._until - now)

    def succeeded(self) -> None:
        """Close the breaker after a successful call."""
        self._failures = 0
        self._until = None

    def failed(self, now: float, retry_after_s: float | None = None) -> None:
        """Count a failed call, and open the breaker if it was one too many.

        ``retry_after_s`` is the delay that the destination asks for (:func:`requested_delay_s`).
        """
        self._failures += 1
        requested_s = requested_delay_s(retry_after_s) or 0.0
        if self._until is not None or self._failures >= self._max_failures:
            self._until = now + max(self._open_s, requested_s)
        elif requested_s:
            self._until = now + requested_s
