"""How lists of connections and of usage are ordered and grouped."""

from __future__ import annotations

from enum import StrEnum


class ConnectionOrder(StrEnum):
    """What connections, or groups of them, are ordered by."""

    SINCE = "since"
    CLOSED_AT = "closed_at"
    BYTES_IN = "bytes_in"
    BYTES_OUT = "bytes_out"
    REQUESTS = "requests"
    IN_FLIGHT = "in_flight"
    LAST_MINUTE = "last_minute"
    IDLE_MS = "idle_ms"
    CONNECTIONS = "connections"


class ConnectionGroup(StrEnum):
    """What connections are grouped by."""

    PRINCIPAL = "principal"
    CLIENT_ID = "client_id"
    SOFTWARE = "software"
    ADDRESS = "address"
    LISTENER = "listener"
    OWNER = "owner"


class UsageGroup(StrEnum):
    """What usage is added up by."""

    PRINCIPAL = "principal"
    CLIENT_ID = "client_id"
    OWNER = "owner"
