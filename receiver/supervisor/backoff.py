"""The delays before a child process that died is started again."""

from __future__ import annotations

from typing import Final

_FIRST_S: Final = 0.1
_MAX_S: Final = 30.0

#: A child that ran for so many seconds starts without the delays of earlier deaths.
_STABLE_S: Final = 10.0


class Backoff:
    """The restarts of one child."""

    def __init__(self) -> None:
        self._next_s = _FIRST_S

    def died(self, ran_s: float) -> float:
        """Return the seconds until the restart of a child that ran for ``ran_s`` seconds."""
        if ran_s >= _STABLE_S:
            self._next_s = _FIRST_S
        delay_s, self._next_s = self._next_s, min(2 * self._next_s, _MAX_S)
        return delay_s
