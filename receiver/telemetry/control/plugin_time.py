"""Charges the CPU time of plugins to the peers whose pushes used it.

Maps the connection ids of pushes to connections, and keeps closed connections for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from receiver.telemetry.connection import Connection
from receiver.telemetry.control.limits import Limits

__all__ = ["PluginTime"]

# Plugins may export a push after its connection closed. So many closed connections are kept.
_MAX_CLOSED: Final = 16_384


class PluginTime:
    """Charges CPU time by connection id."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[str, Connection] = {}
        self._closed: OrderedDict[str, Connection] = OrderedDict()

    def opened(self, connection: Connection) -> None:
        """Add a connection."""
        self._open[connection.id] = connection

    def closed(self, connection: Connection) -> None:
        """Keep a connection as one of the latest that closed."""
        if self._open.pop(connection.id, None) is None:
            return
        self._closed[connection.id] = connection
        if len(self._closed) > _MAX_CLOSED:
            self._closed.popitem(last=False)

    def charge(self, seconds: Mapping[str, float], now: float) -> None:
        """Charge CPU seconds by connection id; unknown ids are ignored."""
        for connection_id, cpu_s in seconds.items():
            connection = self._open.get(connection_id) or self._closed.get(connection_id)
            if connection is not None:
                self._limits.spent(connection, cpu_s, now)
