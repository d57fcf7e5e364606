"""Who a client is, and the broker that it is connected to.

Owns the one value that limits, subscriptions, labels, logs and REST views read. Admission makes it,
the session replaces it when the client says more, and the registry of connections keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from receiver.peers.peers import Peers, peers_of
from receiver.principal.sasl import UNKNOWN_PRINCIPAL
from receiver.wire.uuid import Uuid, uuid_to_text

#: The maximum length that is kept of a client id, software name and software version. Each has up
#: to 32,767 bytes on the wire, and every connection and client instance stores its own.
MAX_TEXT_CHARS = 512

#: Kafka's principal of an unauthenticated connection.
ANONYMOUS = "User:ANONYMOUS"

#: Principals that many clients share. They have no limits and no budgets, and are never hashed.
SHARED_PRINCIPALS = (ANONYMOUS, UNKNOWN_PRINCIPAL)

#: KIP-511: the software name and version of a client that sends none.
UNKNOWN = "unknown"


class Via(StrEnum):
    """The way that a client's telemetry comes."""

    GATEWAY = "gateway"
    """Over a connection to a listener: all its telemetry requests are seen."""
    BRIDGE = "bridge"
    """From a plugin in the broker: only the pushes that the broker accepted are seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The broker of a connection, as far as it is known."""

    id: int | None = None
    cluster_id: str | None = None


def port_name(listener: str, node_id: int | None) -> str:
    """Return the name of a port of a listener or of its node: ``ALL/2``."""
    return listener if node_id is None else f"{listener}/{node_id}"  # a listener's name has no slash


class _WithPeers:
    """Holds the peers of an identity, which are no field: they follow from the others."""

    __slots__ = ("peers",)

    peers: Peers


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity(_WithPeers):
    """Who the client of one connection is (KIP-511, "Connection registry").

    It never changes: what is learned later makes a new value, by :func:`dataclasses.replace`. The
    values of one connection have the same ``id``, so tables are keyed by it.

    Attributes:
        peers: Its peers, computed once.
    """

    id: str  # of the connection, unique while the receiver runs
    listener: str
    security_protocol: str
    source_address: str
    source_port: int  # 0: not known
    since: float  # when the connection was accepted, in seconds since the epoch
    client_id: str = ""  # of the latest request that had one
    client_software_name: str = UNKNOWN  # of the last valid ApiVersions request since version 3
    client_software_version: str = UNKNOWN
    client_instance_id: Uuid | None = None  # of the latest telemetry request, or of KIP-1313's header
    principal: str = ANONYMOUS  # of the client certificate, or of the login that the broker accepted
    sasl_mechanism: str | None = None
    tls_version: str | None = None  # of the client's side; None without TLS
    tls_cipher: str | None = None
    node_id: int | None = None  # of the node whose port it came by, at a rewriting listener
    broker: Broker = Broker()  # that the connection leads to
    via: Via = Via.GATEWAY

    def __post_init__(self) -> None:
        principal = None if self.principal in SHARED_PRINCIPALS else self.principal
        object.__setattr__(self, "peers", peers_of(self.source_address, principal))

    @property
    def port_name(self) -> str:
        """The name of the port that the connection came by."""
        return port_name(self.listener, self.node_id)

    @property
    def instance_text(self) -> str | None:
        """The client instance id in Kafka's text form; None while it is unknown."""
        return None if self.client_instance_id is None else uuid_to_text(self.client_instance_id)


def recorded_identity(
    principal: str, client_id: str, software_name: str = UNKNOWN, software_version: str = UNKNOWN
) -> ClientIdentity:
    """Return the identity of clients of which nothing else was recorded."""
    return ClientIdentity(
        id="",
        listener="",
        security_protocol="",
        source_address="",
        source_port=0,
        since=0.0,
        client_id=client_id,
        client_software_name=software_name,
        client_software_version=software_version,
        principal=principal,
    )
