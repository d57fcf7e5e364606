"""Back-pressure settings: ask clients for less while a destination is behind."""

from __future__ import annotations

from pydantic import Field

from receiver.settings.base import Settings


class OffenderSettings(Settings):
    """Reduces the subscriptions of client instances that push too much."""

    max_too_large: int = Field(default=3, ge=1, le=1_000)
    """Number of consecutive pushes refused as too large (TelemetryMaxBytes) after which an instance
    is asked for the standard metrics only. After the same number again it is asked for no metrics.
    The default tolerates a burst; Java clients repeat such a push for ever."""
    max_bytes_per_minute: int | None = Field(default=None, ge=1024, le=1_000_000_000_000)
    """Inflated bytes that one instance may push in a minute before its subscriptions are reduced.
    Null (default): no budget, because `limits` already bound each source and principal."""
    relax_after_s: float = Field(default=3_600.0, ge=1, le=604_800)
    """Seconds without an offence after which an instance is asked for more again. The default of an
    hour keeps a client that always offends from alternating every few minutes."""


class BackPressureSettings(Settings):
    """Lengthens push intervals while a destination is behind."""

    enabled: bool = False
    """Lengthen push intervals and narrow the subscriptions of offenders. Off by default, because it
    changes what clients send."""
    max_factor: int = Field(default=8, ge=2, le=64)
    """Largest factor by which a push interval is lengthened. The factor is doubled each time,
    because every change costs each client one more request."""
    behind_s: float = Field(default=60.0, ge=1, le=86_400)
    """Age in seconds of the oldest waiting push at which a destination counts as behind. The
    default is longer than a restart of a collector usually takes."""
    step_s: float = Field(default=60.0, ge=1, le=86_400)
    """Seconds that a destination must be behind before intervals are doubled, and again before the
    next doubling. Intervals are halved after as many seconds in which no push is older than half of
    `behind_s`."""
    offenders: OffenderSettings = OffenderSettings()
