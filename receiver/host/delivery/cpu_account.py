"""The CPU time that plugins and their spools took, by the connection whose pushes took it.

Owns the account. Plugins' threads add to it, and the event loop takes from it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from receiver.plugin import Push

__all__ = ["CpuAccount"]

#: Of so many connections the time is kept until it is taken; more of them go uncharged.
_MAX_CONNECTIONS: Final = 65_536


class CpuAccount:
    """CPU seconds by connection id; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = {}

    def add(self, pushes: Sequence[Push], cpu_s: float) -> None:
        """Share CPU time among pushes, in proportion to their bytes.

        Args:
            pushes: What the time was spent on.
            cpu_s: The time in seconds.
        """
        # A push without bytes costs something, too.
        total = sum(len(push.payload.data) + 1 for push in pushes)
        if not total or cpu_s <= 0:
            return
        with self._lock:
            for push in pushes:
                payer = push.context.connection_id
                if payer not in self._seconds and len(self._seconds) >= _MAX_CONNECTIONS:
                    continue
                share = cpu_s * (len(push.payload.data) + 1) / total
                self._seconds[payer] = self._seconds.get(payer, 0.0) + share

    def take(self) -> dict[str, float]:
        """Return what was added since the last call."""
        if not self._seconds:
            return {}
        with self._lock:
            taken, self._seconds = self._seconds, {}
        return taken
