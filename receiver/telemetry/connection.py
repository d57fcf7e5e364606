"""The values that describe a client connection and the broker behind the sidecar.

The session fills them from the wire; the gateway keeps the registry of connections (KIP-511).
"""

from __future__ import annotations

from dataclasses import dataclass

from receiver.principal.sasl import UNKNOWN_PRINCIPAL
from receiver.wire.uuid import Uuid

__all__ = [
    "ANONYMOUS",
    "MAX_TEXT_CHARS",
    "SHARED_PRINCIPALS",
    "UNKNOWN",
    "UNKNOWN_PRINCIPAL",
    "Broker",
    "Connection",
]

#: The maximum length that is kept of a client id, software name and software version. Each has up
#: to 32,767 bytes on the wire, and every connection and client instance stores its own.
MAX_TEXT_CHARS = 512

#: Kafka's principal of an unauthenticated connection.
ANONYMOUS = "User:ANONYMOUS"

#: Principals that many clients share. They have no limits and no budgets, and are never hashed.
SHARED_PRINCIPALS = (ANONYMOUS, UNKNOWN_PRINCIPAL)

#: KIP-511: the software name and version of a client that sends none.
UNKNOWN = "unknown"


@dataclass(slots=True, kw_only=True)
class Broker:
    """The broker behind the sidecar."""

    id: int
    cluster_id: str | None = None  # None until it is configured or learned from the broker


@dataclass(slots=True, kw_only=True, eq=False)
class Connection:
    """One client connection (KIP-511, "Connection registry")."""

    id: str  # unique while the receiver runs
    listener: str
    security_protocol: str
    source_address: str
    source_port: int
    since: float  # when it was accepted, in seconds since the epoch
    client_id: str = ""  # of the latest request that had one
    client_software_name: str = UNKNOWN  # of the last valid ApiVersions request since version 3
    client_software_version: str = UNKNOWN
    client_instance_id: Uuid | None = None  # of the latest telemetry request
    principal: str = ANONYMOUS  # of the client certificate, or of the login that the broker accepted
    sasl_mechanism: str | None = None
