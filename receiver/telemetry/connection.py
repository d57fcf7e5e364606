"""What is known of a client connection and of the broker beside us: the facts that labels are made of.

Owns the values only. The session learns them from the wire; the gateway keeps the registry (KIP-511).
"""

from __future__ import annotations

from dataclasses import dataclass

from receiver.principal.sasl import UNKNOWN_PRINCIPAL
from receiver.wire.uuid import Uuid

__all__ = ["ANONYMOUS", "MAX_TEXT_CHARS", "NOBODY", "UNKNOWN", "UNKNOWN_PRINCIPAL", "Broker", "Connection"]

#: As much is kept of a client id, of a software name and of a version: on the wire each has up to 32,767
#: bytes, and every connection and client instance has its own.
MAX_TEXT_CHARS = 512

#: Kafka's principal of a connection that nobody authenticated.
ANONYMOUS = "User:ANONYMOUS"

#: The principals that stand for nobody in particular: they have no limits and no budgets, and hide nobody.
NOBODY = (ANONYMOUS, UNKNOWN_PRINCIPAL)

#: KIP-511: the software name and version of a client that told none.
UNKNOWN = "unknown"


@dataclass(slots=True, kw_only=True)
class Broker:
    """The broker that the sidecar stands beside.

    Attributes:
        id: Its node id, as configured.
        cluster_id: Its cluster's id; None until configured or learned from an answer of the broker.
    """

    id: int
    cluster_id: str | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Connection:
    """One entry of the registry of connections (KIP-511, "Connection registry").

    Attributes:
        id: Unique while the receiver runs.
        listener: Name of the listener.
        security_protocol: The listener's security protocol.
        source_address: The client's address as text.
        source_port: The client's port.
        since: When it was accepted, in seconds since the epoch.
        client_id: Client id of its latest request seen that had one; empty while there was none.
        client_software_name: From the last valid ApiVersions request of version 3 or later.
        client_software_version: Likewise.
        client_instance_id: From its latest telemetry request; None while there was none.
        principal: Who the client is: by its certificate, or as the broker let it log in.
        sasl_mechanism: The mechanism of its login; None without SASL.
    """

    id: str
    listener: str
    security_protocol: str
    source_address: str
    source_port: int
    since: float
    client_id: str = ""
    client_software_name: str = UNKNOWN
    client_software_version: str = UNKNOWN
    client_instance_id: Uuid | None = None
    principal: str = ANONYMOUS
    sasl_mechanism: str | None = None
