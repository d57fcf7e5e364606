"""What the test kit records: connections and requests, with times.

Times are monotonic seconds. The judge reads a recording and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from receiver.testkit.payload import Payload
from receiver.wire.error_codes import ErrorCode
from receiver.wire.uuid import Uuid

_R = TypeVar("_R", bound="Request")

#: Who closed a connection.
CLIENT: Final = "client"
KIT: Final = "kit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The answer to a GetTelemetrySubscriptions request."""

    id: int
    metrics: tuple[str, ...]
    """Prefixes of metric names; ``("",)`` requests all metrics."""
    interval_ms: int
    """Milliseconds between two pushes."""
    codecs: tuple[int, ...]
    """Compression types (1 gzip, 2 snappy, 3 lz4, 4 zstd), the preferred first."""
    max_bytes: int
    """Most bytes of metrics in one push."""
    delta: bool
    """Whether counters are wanted as deltas."""

    @property
    def interval_s(self) -> float:
        """The interval in seconds."""
        return self.interval_ms / 1000

    @property
    def wants_all(self) -> bool:
        """Whether every metric is requested, in the KIP's way."""
        return "" in self.metrics

    def wants(self, name: str) -> bool:
        """Return whether a metric of that name is requested; ``*`` counts as all metrics."""
        return "*" in self.metrics or name.startswith(self.metrics)


@dataclass(eq=False, slots=True, kw_only=True)
class Connection:
    """One connection of a client."""

    number: int
    """The connection's number, from 1."""
    node_id: int
    opened: float
    closed: float | None = None
    closed_by: str = ""
    """``client`` or ``kit``; empty while it is open."""
    problem: str = ""
    """Why a request could not be read; empty without such a request."""
    requests: list[Request] = field(default_factory=list)
    unrecorded: int = 0
    """The number of requests that were over the bound of a recording."""

    @property
    def hello(self) -> Hello | None:
        """The latest ApiVersions request with a software name."""
        return next((r for r in reversed(self.requests) if isinstance(r, Hello) and r.api_version >= 3), None)

    @property
    def client_id(self) -> str | None:
        """The first client id of the connection."""
        return next((request.client_id for request in self.requests if request.client_id), None)


@dataclass(eq=False, slots=True, kw_only=True)
class Request:
    """A request and what the kit answered."""

    connection: Connection
    at: float
    """When its last byte was read."""
    api_key: int
    api_version: int
    client_id: str | None = None
    header_id: Uuid | None = None
    """The client instance id of its header (KIP-1313); None before header v3."""
    late: float = 0.0
    """Seconds by which its last byte may have arrived before ``at``, because the kit was busy."""
    answered: float | None = None
    """When its answer was sent."""
    error: int = 0
    throttle_ms: int = 0
    step: str = ""
    """The step of the script that answered."""

    @property
    def earliest(self) -> float:
        """The earliest time at which its last byte may have arrived."""
        return self.at - self.late


@dataclass(eq=False, slots=True, kw_only=True)
class Hello(Request):
    """An ApiVersions request; the fields are those of KIP-511 and KIP-1242."""

    software_name: str = ""
    software_version: str = ""
    cluster_id: str | None = None
    broker_id: int = -1

    @property
    def is_named(self) -> bool:
        """Whether it was read and has a software name (KIP-511: from version 3 on)."""
        return self.api_version >= 3 and self.error != ErrorCode.UNSUPPORTED_VERSION


@dataclass(eq=False, slots=True, kw_only=True)
class Get(Request):
    """A GetTelemetrySubscriptions request."""

    instance_id: Uuid
    assigned: Uuid
    """The id that the client has after the answer."""
    subscription: Subscription | None = None
    """The answer; None with an error or without an answer."""


@dataclass(eq=False, slots=True, kw_only=True)
class Push(Request):
    """A PushTelemetry request."""

    instance_id: Uuid
    subscription_id: int
    terminating: bool
    """Whether the client said that it ends."""
    codec: int
    """The compression type."""
    size: int
    """The bytes of the metrics as sent; -1 for null."""
    payload: Payload | None = None
    """The metrics; None if they are empty, unreadable or over the bound of a recording."""
    problem: str = ""
    """Why the metrics could not be read."""
    wall_ns: int = 0
    """When it arrived, in nanoseconds since the epoch."""
    subscription: Subscription | None = None
    """What the client was last told; None before its first answer."""


@dataclass(eq=False, slots=True, kw_only=True)
class ClientRecording:
    """One client from its start to its end, as far as it was seen."""

    software: str
    """Software name and version, with a space between; empty if unknown."""
    client_id: str
    """The client id; empty if it has none."""
    connections: list[Connection]
    requests: list[Request]
    ended: float
    brokers: int
    """The number of brokers that the kit offered."""
    script: tuple[str, ...] = ()
    """The names of the script's steps."""

    def of(self, kind: type[_R]) -> list[_R]:
        """Return the requests of one kind, in order."""
        return [request for request in self.requests if isinstance(request, kind)]

    @property
    def hellos(self) -> list[Hello]:
        """The ApiVersions requests."""
        return self.of(Hello)

    @property
    def gets(self) -> list[Get]:
        """The GetTelemetrySubscriptions requests."""
        return self.of(Get)

    @property
    def pushes(self) -> list[Push]:
        """The PushTelemetry requests."""
        return self.of(Push)

    @property
    def telemetry(self) -> list[Get | Push]:
        """Both kinds of telemetry requests."""
        return [request for request in self.requests if isinstance(request, Get | Push)]

    def after(self, request: Request) -> Iterator[Get | Push]:
        """Iterate over the telemetry requests that came after a request."""
        return (later for later in self.telemetry if later.at > request.at and later is not request)

    def next_after(self, request: Request) -> Get | Push | None:
        """Return the telemetry request that came next."""
        return next(self.after(request), None)

    @property
    def closed(self) -> bool:
        """Whether the client has closed, and not the kit, the last connection."""
        if not self.connections or any(c.closed is None for c in self.connections):
            return False
        return max(self.connections, key=lambda c: c.closed or 0.0).closed_by == CLIENT

    @property
    def lasted_until(self) -> float:
        """When the client was last there."""
        if not self.closed:
            return self.ended
        return max(connection.closed or 0.0 for connection in self.connections)
