"""Registry of the open connections (KIP-511, "Connection registry").

Owns which identity each connection has now. Sessions learn everything but the client instance id of
telemetry requests, which the telemetry core knows.
"""

from __future__ import annotations

from dataclasses import replace

from receiver.telemetry.identity import ClientIdentity


class ConnectionRegistry:
    """The identities of the open connections, the oldest connection first."""

    def __init__(self) -> None:
        self._identities: dict[str, ClientIdentity] = {}

    def __len__(self) -> int:
        return len(self._identities)

    def add(self, identity: ClientIdentity) -> None:
        """Add an accepted connection."""
        self._identities[identity.id] = identity

    def find(self, connection_id: str) -> ClientIdentity | None:
        """Return the identity of an open connection, or None."""
        return self._identities.get(connection_id)

    def changed(self, identity: ClientIdentity) -> None:
        """Replace what the session knows of an open connection.

        Keep a known client instance id.
        """
        known = self._identities.get(identity.id)
        if known is not None:
            instance = known.client_instance_id
            if instance is not None and instance != identity.client_instance_id:
                identity = replace(identity, client_instance_id=instance)
            self._identities[identity.id] = identity

    def instance_learned(self, identity: ClientIdentity) -> None:
        """Take the client instance id of an open connection's latest telemetry request."""
        known = self._identities.get(identity.id)
        if known is not None:
            self._identities[identity.id] = replace(known, client_instance_id=identity.client_instance_id)

    def remove(self, connection_id: str) -> ClientIdentity | None:
        """Remove a closed connection, and return its identity if it is there."""
        return self._identities.pop(connection_id, None)

    def snapshot(self) -> list[ClientIdentity]:
        """Return the identities of the open connections, oldest connection first."""
        return list(self._identities.values())
