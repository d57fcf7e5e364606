"""Charges the CPU time of plugins to the peers whose pushes used it.

Maps the connection ids of pushes to identities, and keeps those of closed connections for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from receiver.telemetry.control.limits import Limits
from receiver.telemetry.identity import ClientIdentity

# Plugins may export a push after its connection closed. So many closed connections are kept.
_MAX_CLOSED: Final = 16_384


class PluginTime:
    """Charges CPU time by connection id."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[str, ClientIdentity] = {}
        self._closed: OrderedDict[str, ClientIdentity] = OrderedDict()

    def identified(self, identity: ClientIdentity) -> None:
        """Add a connection, or replace its identity."""
        self._open[identity.id] = identity

    def closed(self, connection_id: str) -> None:
        """Keep the identity of a connection as one of the latest that closed."""
        identity = self._open.pop(connection_id, None)
        if identity is None:
            return
        self._closed[connection_id] = identity
        if len(self._closed) > _MAX_CLOSED:
            self._closed.popitem(last=False)

    def charge(self, seconds: Mapping[str, float], now: float) -> None:
        """Charge CPU seconds by connection id; unknown ids are ignored."""
        for connection_id, cpu_s in seconds.items():
            identity = self._open.get(connection_id) or self._closed.get(connection_id)
            if identity is not None:
                self._limits.spent(identity, cpu_s, now)
