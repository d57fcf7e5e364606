"""Registry of the open connections (KIP-511, "Connection registry").

The sessions keep the entries up to date.
"""

from __future__ import annotations

from receiver.telemetry.connection import Connection

__all__ = ["ConnectionRegistry"]


class ConnectionRegistry:
    """The open connections of all listeners, oldest first."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: Connection) -> None:
        """Add an accepted connection."""
        self._connections[connection.id] = connection

    def remove(self, connection: Connection) -> None:
        """Remove a closed connection, if it is there."""
        self._connections.pop(connection.id, None)

    def snapshot(self) -> list[Connection]:
        """Return the open connections, oldest first; the entries are live."""
        return list(self._connections.values())
