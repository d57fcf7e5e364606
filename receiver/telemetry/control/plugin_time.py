"""Charges the CPU time of plugins to the peers whose pushes took it.

Owns which connection an id of a push's context stands for, also for a while after the connection has ended.
It must not know plugins: it gets seconds by connection id.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from receiver.telemetry.connection import Connection
from receiver.telemetry.control.limits import Limits

__all__ = ["PluginTime"]

#: Connections that have ended are remembered for what their last pushes cost; so many, the latest.
_MAX_ENDED: Final = 16_384


class PluginTime:
    """Finds the connections that pushes came over, and charges them.

    Args:
        limits: Where the time counts.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[str, Connection] = {}
        self._ended: OrderedDict[str, Connection] = OrderedDict()

    def opened(self, connection: Connection) -> None:
        """Remember a connection until :meth:`closed`."""
        self._open[connection.id] = connection

    def closed(self, connection: Connection) -> None:
        """Remember a connection as one of the last that ended."""
        if self._open.pop(connection.id, None) is None:
            return
        self._ended[connection.id] = connection
        if len(self._ended) > _MAX_ENDED:
            self._ended.popitem(last=False)

    def charge(self, seconds: Mapping[str, float], now: float) -> None:
        """Charge CPU time.

        Args:
            seconds: The CPU time in seconds by connection id; ids that are not known are passed over.
            now: The time in seconds of a monotonic clock.
        """
        for connection_id, cpu_s in seconds.items():
            connection = self._open.get(connection_id) or self._ended.get(connection_id)
            if connection is not None:
                self._limits.spent(connection, cpu_s, now)
