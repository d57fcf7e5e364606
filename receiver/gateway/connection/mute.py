"""How long a throttled client is not read from.

Kafka enforces quotas the same way (KIP-219): the answer goes out, and the next request waits.
"""

from __future__ import annotations

from typing import Final

#: Seconds of the first mute. The time doubles for each further request within the pause. A client
#: that only shares its address with a busy one is hardly delayed.
_FIRST_S: Final = 0.005
_MAX_S: Final = 1.0
#: A refusal this many seconds after the end of a mute still counts as a repeated one.
_REPEATED_WITHIN_S: Final = 0.5


class Mute:
    """The mutes of one connection."""

    __slots__ = ("_next_s", "_refused_at")

    def __init__(self) -> None:
        self._next_s = _FIRST_S
        self._refused_at = float("-inf")

    def refused(self, now: float) -> float:
        """Return for how many seconds to mute the client, longer if it did not wait.

        Args:
            now: Monotonic seconds.
        """
        repeated = now - self._refused_at < self._next_s + _REPEATED_WITHIN_S
        self._refused_at = now
        self._next_s = min(2 * self._next_s, _MAX_S) if repeated else _FIRST_S
        return self._next_s
