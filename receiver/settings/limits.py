"""Limits on what one source or one principal may take, as types.

Owns the keys below ``limits``. What happens at a limit is the telemetry core's and the gateway's.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from receiver.settings.base import Settings

__all__ = ["LimitsSettings", "PeerLimitsSettings"]

_Limit = Annotated[int, Field(ge=1, le=1_000_000_000)]


class PeerLimitsSettings(Settings):
    """What one peer may take; null: as much as it likes."""

    connections: _Limit | None = Field(
        default=2_000, description="Open connections; one more is closed at once."
    )
    new_instances_per_minute: _Limit | None = Field(
        default=600,
        description="Client instances that were not known before; one more is told to wait "
        "(THROTTLING_QUOTA_EXCEEDED) and not remembered.",
    )
    telemetry_requests_per_second: _Limit | None = Field(
        default=200,
        description="Telemetry requests; one more is told to wait, and its connection is not read from for "
        "as long as it came too early, at most a second.",
    )
    rejected_bytes_per_minute: _Limit | None = Field(
        default=67_108_864,
        description="Bytes of pushes that were refused for what they held; from then on its pushes are told "
        "to wait and not looked into.",
    )


class LimitsSettings(Settings):
    """Limits by source address and by principal, so that one client can't take what is everybody's."""

    source_address: PeerLimitsSettings = PeerLimitsSettings()
    principal: PeerLimitsSettings = PeerLimitsSettings(
        connections=10_000,
        new_instances_per_minute=3_000,
        telemetry_requests_per_second=1_000,
        rejected_bytes_per_minute=268_435_456,
    )
    max_peers: int = Field(
        default=65_536,
        ge=16,
        le=10_000_000,
        description="Peers remembered of each kind; the least recently seen goes first.",
    )
    max_held_bytes: int = Field(
        default=268_435_456,
        ge=1_048_576,
        description="Memory for telemetry requests that have begun and are not whole, of all connections "
        "together; who needs more is closed.",
    )
    request_timeout_ms: int = Field(
        default=30_000,
        ge=100,
        le=600_000,
        description="How long a telemetry request may take from its first byte to its last.",
    )
