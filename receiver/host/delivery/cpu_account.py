"""Charges the CPU time of plugins and spools to clients' connections.

The plugins' threads add to the account, and the event loop takes from it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from receiver.plugin import Push

#: Connections with time in the account; time of further ones is not charged.
_MAX_CONNECTIONS: Final = 65_536


class CpuAccount:
    """CPU seconds by connection id; safe for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = {}

    def add(self, pushes: Sequence[Push], cpu_s: float) -> None:
        """Divide CPU seconds among the connections of pushes, in proportion to bytes."""
        # An empty push costs something, too.
        total = sum(len(push.payload.data) + 1 for push in pushes)
        if not total or cpu_s <= 0:
            return
        with self._lock:
            for push in pushes:
                connection = push.context.connection_id
                if connection not in self._seconds and len(self._seconds) >= _MAX_CONNECTIONS:
                    continue
                share = cpu_s * (len(push.payload.data) + 1) / total
                self._seconds[connection] = self._seconds.get(connection, 0.0) + share

    def take(self) -> dict[str, float]:
        """Return the seconds added since the last call, and clear the account."""
        if not self._seconds:
            return {}
        with self._lock:
            seconds, self._seconds = self._seconds, {}
        return seconds
