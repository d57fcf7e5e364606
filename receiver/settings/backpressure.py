"""Back-pressure to clients as types: when less is asked of them because a destination stays behind.

Owns the keys below ``telemetry.backpressure``. The control loop is the telemetry core's.
"""

from __future__ import annotations

from pydantic import Field

from receiver.settings.base import Settings

__all__ = ["BackPressureSettings", "OffenderSettings"]


class OffenderSettings(Settings):
    """Client instances that are asked for less, because they push too much."""

    max_too_large: int = Field(
        default=3,
        ge=1,
        le=1_000,
        description="Pushes in a row that were refused as too large (TelemetryMaxBytes); then the instance "
        "is asked for the standard metrics only, and after as many more for none.",
    )
    max_bytes_per_minute: int | None = Field(
        default=None,
        ge=1024,
        le=1_000_000_000_000,
        description="Inflated bytes that one instance may push in a minute before it is asked for less; "
        "null: no budget.",
    )
    relax_after_s: float = Field(
        default=3_600.0,
        ge=1,
        le=604_800,
        description="How long an instance has to be without offence before it is asked for more again.",
    )


class BackPressureSettings(Settings):
    """Asks clients for less while a destination stays behind, and for as much as before afterwards."""

    enabled: bool = Field(
        default=False, description="Whether intervals are lengthened and offenders narrowed."
    )
    max_factor: int = Field(
        default=8,
        ge=2,
        le=64,
        description="How many times as long as asked for a push interval may become; it is doubled each "
        "time, because every change costs each client one more request.",
    )
    behind_s: float = Field(
        default=60.0,
        ge=1,
        le=86_400,
        description="A destination is behind while the oldest push that waits for it is older than this.",
    )
    step_s: float = Field(
        default=60.0,
        ge=1,
        le=86_400,
        description="How long it has to be behind before intervals are doubled, and again before they are "
        "doubled again; without anything waiting for half of `behind_s` it takes as long to halve them.",
    )
    offenders: OffenderSettings = OffenderSettings()
