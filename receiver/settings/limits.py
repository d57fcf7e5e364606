"""Limits on what one source or one principal may take, as types.

Owns the keys below ``limits``. What happens at a limit is the telemetry core's and the gateway's.
"""

from __future__ import annotations

from pydantic import Field

from receiver.settings.base import Settings

__all__ = ["LimitsSettings", "PeerLimitsSettings", "PrincipalLimitsSettings"]

_MOST = 1_000_000_000
_MOST_BYTES = 1_000_000_000_000

_CONNECTIONS = "Open connections; one more is closed at once. Null: no limit, as below."
_NEW_CONNECTIONS = "New connections; one more is closed at once."
_NEW_INSTANCES = (
    "Client instances that were not known before; one more is told to wait (THROTTLING_QUOTA_EXCEEDED) and "
    "not remembered."
)
_TELEMETRY_REQUESTS = (
    "Telemetry requests; one more is told to wait, and a connection that goes on asking is not read from for "
    "a while, at most a second at a time."
)
_CORE_MS = (
    "Milliseconds of CPU time for its telemetry requests, and for its pushes in plugins and their spools; "
    "from then on its requests are told to wait, also the last ones of clients that terminate."
)
_ACCEPTED_BYTES = (
    "Bytes of pushes that are taken, inflated and labelled as plugins get them; from then on its pushes are "
    "told to wait. This bounds what it can put on disk and send to destinations."
)
_REJECTED_BYTES = (
    "Bytes of pushes that were refused for what they held; from then on its pushes are told to wait and not "
    "looked into."
)


class PeerLimitsSettings(Settings):
    """What one source address may take: an IPv4 address, or an IPv6 network of 64 bits."""

    connections: int | None = Field(default=2_000, ge=1, le=_MOST, description=_CONNECTIONS)
    new_connections_per_second: int | None = Field(default=100, ge=1, le=_MOST, description=_NEW_CONNECTIONS)
    new_instances_per_minute: int | None = Field(default=600, ge=1, le=_MOST, description=_NEW_INSTANCES)
    telemetry_requests_per_second: int | None = Field(
        default=200, ge=1, le=_MOST, description=_TELEMETRY_REQUESTS
    )
    core_ms_per_second: int | None = Field(default=50, ge=1, le=1_000, description=_CORE_MS)
    rejected_bytes_per_minute: int | None = Field(
        default=67_108_864, ge=1, le=_MOST_BYTES, description=_REJECTED_BYTES
    )
    accepted_bytes_per_minute: int | None = Field(
        default=33_554_432, ge=1, le=_MOST_BYTES, description=_ACCEPTED_BYTES
    )


class PrincipalLimitsSettings(PeerLimitsSettings):
    """What one principal may take, from all of its addresses; nobody in particular has no limits."""

    connections: int | None = Field(default=10_000, ge=1, le=_MOST, description=_CONNECTIONS)
    new_connections_per_second: int | None = Field(
        default=1_000, ge=1, le=_MOST, description=_NEW_CONNECTIONS
    )
    new_instances_per_minute: int | None = Field(default=3_000, ge=1, le=_MOST, description=_NEW_INSTANCES)
    telemetry_requests_per_second: int | None = Field(
        default=1_000, ge=1, le=_MOST, description=_TELEMETRY_REQUESTS
    )
    core_ms_per_second: int | None = Field(default=200, ge=1, le=1_000, description=_CORE_MS)
    rejected_bytes_per_minute: int | None = Field(
        default=268_435_456, ge=1, le=_MOST_BYTES, description=_REJECTED_BYTES
    )
    accepted_bytes_per_minute: int | None = Field(
        default=134_217_728, ge=1, le=_MOST_BYTES, description=_ACCEPTED_BYTES
    )


class LimitsSettings(Settings):
    """Limits by source address and by principal, so that one client can't take what is everybody's."""

    source_address: PeerLimitsSettings = PeerLimitsSettings()
    principal: PrincipalLimitsSettings = PrincipalLimitsSettings()
    ipv6_site_factor: int = Field(
        default=16,
        ge=1,
        le=65_536,
        description="How many times the limits of `source_address` an IPv6 network of 48 bits may take, "
        "which holds 65,536 networks of 64 bits.",
    )
    max_peers: int = Field(
        default=65_536,
        ge=16,
        le=10_000_000,
        description="Peers remembered of each kind; the least recently seen goes first.",
    )
    max_held_bytes: int = Field(
        default=134_217_728,
        ge=1_048_576,
        description="Memory for what waits, of all connections together: telemetry requests that are not "
        "whole or wait for the broker, and bytes that a slow reader does not take, with the system's buffers "
        "behind them. One source address (IPv6: network of 48 bits) may have a quarter of it. At either "
        "bound a connection is closed: of the source that has most, the one that has been waiting for the "
        "longest.",
    )
    request_timeout_ms: int = Field(
        default=30_000,
        ge=100,
        le=600_000,
        description="How long a telemetry request may take from its first byte to its last.",
    )
