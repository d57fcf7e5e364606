"""Limits of each source address, of each principal and of all connections."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

from receiver.settings.base import Settings

#: One source address may use ``max_held_bytes`` divided by this number.
SOURCE_SHARE_DIVISOR: Final = 4

#: Socket buffers of new connections and of slow readers once half of a bound is in use.
SCARCE_BUFFER_BYTES: Final = 65_536

_MAX_COUNT = 1_000_000_000
_MAX_BYTES = 1_000_000_000_000

_CONNECTIONS = (
    "Open connections; a client has about three. One more is closed at once. Null: no limit, here and in "
    "the keys below."
)
_NEW_CONNECTIONS = (
    "New connections in a second. One more is closed at once. A burst of ten seconds is allowed, because all "
    "clients of a host reconnect together after a restart of the broker."
)
_NEW_INSTANCES = (
    "Client instances in a minute that were not known before. One more is told to wait "
    "(THROTTLING_QUOTA_EXCEEDED) and is not remembered."
)
_TELEMETRY_REQUESTS = (
    "Telemetry requests in a second. One more is told to wait. A connection that continues is not read from "
    "for at most a second at a time."
)
_CORE_MS = (
    "Milliseconds of CPU time in a second for its telemetry requests, and for its pushes in plugins and "
    "spools. Further requests are told to wait, including the last push of a terminating client."
)
_ACCEPTED_BYTES = (
    "Bytes of accepted pushes in a minute, inflated and labelled, as plugins get them. Further pushes are "
    "told to wait. This bounds what the peer can write to disk and send to destinations."
)
_REJECTED_BYTES = (
    "Bytes in a minute of pushes that were refused for their content. Further pushes are told to wait and "
    "not inspected."
)

_NEW_SERIES = (
    "Series in an hour that their client instance had not pushed before. Further ones are replaced by the "
    "overflow series until there is room; the push is accepted. An hour's worth may come at once. The "
    "default is twice `telemetry.series.max_per_principal`, so that all clients of a principal can restart."
)


def _limit(default: int, description: str, most: int = _MAX_COUNT) -> Any:
    return Field(default=default, ge=1, le=most, description=description)


class PeerLimitsSettings(Settings):
    """Limits of one source address: an IPv4 address or an IPv6 /64 network."""

    connections: int | None = _limit(2_000, _CONNECTIONS)
    new_connections_per_second: int | None = _limit(100, _NEW_CONNECTIONS)
    new_instances_per_minute: int | None = _limit(600, _NEW_INSTANCES)
    telemetry_requests_per_second: int | None = _limit(200, _TELEMETRY_REQUESTS)
    core_ms_per_second: int | None = _limit(50, _CORE_MS, most=1_000)
    rejected_bytes_per_minute: int | None = _limit(67_108_864, _REJECTED_BYTES, _MAX_BYTES)
    accepted_bytes_per_minute: int | None = _limit(33_554_432, _ACCEPTED_BYTES, _MAX_BYTES)
    new_series_per_hour: int | None = _limit(400_000, _NEW_SERIES)


class PrincipalLimitsSettings(PeerLimitsSettings):
    """Limits of one principal over all of its addresses. ``User:ANONYMOUS`` has none."""

    connections: int | None = _limit(10_000, _CONNECTIONS)
    new_connections_per_second: int | None = _limit(1_000, _NEW_CONNECTIONS)
    new_instances_per_minute: int | None = _limit(3_000, _NEW_INSTANCES)
    telemetry_requests_per_second: int | None = _limit(1_000, _TELEMETRY_REQUESTS)
    core_ms_per_second: int | None = _limit(200, _CORE_MS, most=1_000)
    rejected_bytes_per_minute: int | None = _limit(268_435_456, _REJECTED_BYTES, _MAX_BYTES)
    accepted_bytes_per_minute: int | None = _limit(134_217_728, _ACCEPTED_BYTES, _MAX_BYTES)


class LimitsSettings(Settings):
    """Limits that keep one client from using up what all clients share."""

    source_address: PeerLimitsSettings = PeerLimitsSettings()
    principal: PrincipalLimitsSettings = PrincipalLimitsSettings()
    ipv6_block_factor: int = Field(default=16, ge=1, le=65_536)
    """Multiple of the `source_address` limits that apply to an IPv6 /48 network, which one address
    block usually has. Without it a block could count as 65,536 source addresses."""
    max_peers: int = Field(default=65_536, ge=16, le=10_000_000)
    """Number of source addresses, of blocks and of principals that are remembered. The least
    recently seen is forgotten first."""
    max_held_bytes: int = Field(default=402_653_184, ge=1_048_576)
    """Bytes of memory for what waits on all connections together: incomplete telemetry requests,
    requests that wait for the broker, responses until they are complete where they are rewritten,
    and bytes that a slow reader has not taken, including the system's buffers. One source address
    (IPv6: /48 network) may use a quarter. Once half of either is in use, new connections and slow
    readers get buffers of 64 KiB. At either bound a connection is closed: of the source that uses
    most, the one that has waited longest. All relays share the bounds."""
    request_timeout_ms: int = Field(default=30_000, ge=100, le=600_000)
    """Milliseconds in which a telemetry request must arrive completely, from its first byte. The
    default is the request timeout of Java clients."""
