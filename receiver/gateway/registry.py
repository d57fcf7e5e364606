"""The registry of connections (KIP-511, "Connection registry").

Owns which connections are open; their facts are kept up to date by their sessions.
"""

from __future__ import annotations

from receiver.telemetry.connection import Connection

__all__ = ["ConnectionRegistry"]


class ConnectionRegistry:
    """All open connections of the receiver, oldest first."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: Connection) -> None:
        """Enter a connection that was accepted."""
        self._connections[connection.id] = connection

    def remove(self, connection: Connection) -> None:
        """Strike a connection that is closed; nothing happens where it is not there."""
        self._connections.pop(connection.id, None)

    def snapshot(self) -> list[Connection]:
        """Return the open connections, oldest first. The entries go on changing."""
        return list(self._connections.values())
