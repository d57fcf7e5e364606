"""Settings of every plugin: name, queue, batches, retries, spool, isolation.

Owns the host's keys of an entry of ``plugins:``, with their defaults and bounds. A plugin's own
keys are in its ``Config``.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator


class Delivery(StrEnum):
    """Which of a plugin's pushes are kept on disk until its destination has them."""

    MEMORY = "memory"
    SPOOL_WHEN_BEHIND = "spool_when_behind"
    SPOOL_ALWAYS = "spool_always"


class Isolation(StrEnum):
    """Where a plugin runs."""

    THREAD = "thread"
    PROCESS = "process"


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class QueueSettings(_Settings):
    """Bounds of the pushes in memory."""

    max_items: int = Field(default=10_000, ge=1, le=10_000_000)
    """The most pushes in memory."""
    max_bytes: int = Field(default=67_108_864, ge=1024)
    """The most OTLP bytes in memory; a push larger than this is dropped."""


class BatchSettings(_Settings):
    """Bounds of a batch, for plugins that export several pushes in one call."""

    max_items: int = Field(default=200, ge=1, le=100_000)
    """The most pushes in one export; the plugin's own limit applies too."""
    max_bytes: int = Field(default=2_097_152, ge=1024)
    """The most OTLP bytes in one export, unless a single push is larger. The default is half of a
    gRPC server's default limit."""
    linger_ms: int = Field(default=200, ge=0, le=60_000)
    """How long the first push of a batch waits for others."""


class RetrySettings(_Settings):
    """Retries of an export that failed for now."""

    initial_ms: int = Field(default=1000, ge=1, le=3_600_000)
    """The first back-off; each next one doubles."""
    max_ms: int = Field(default=30_000, ge=1, le=3_600_000)
    """The longest back-off."""
    max_elapsed_s: Annotated[float, Field(ge=0, le=86_400)] | None = None
    """How long one export is retried before its pushes are dropped and counted; 0 for no limit.
    Null: 300 with `delivery: memory`; no limit with a spool, whose own bound applies."""


class BreakerSettings(_Settings):
    """The circuit breaker, which pauses exports to a failing destination."""

    failures: int = Field(default=5, ge=1, le=1_000_000)
    """Failures in a row that open the circuit. The next export, after `retry.max_ms`, has one push;
    the circuit closes if it succeeds."""


class SpoolSettings(_Settings):
    """The segment log on disk, for pushes that the destination could not accept yet."""

    path: Path | None = None
    """The spool's folder, which no other plugin may use. Null: `./spool/` and the plugin's name."""
    max_bytes: int = Field(default=1_073_741_824, ge=1_048_576)
    """The most bytes on disk; at the bound the oldest pushes are dropped and counted."""
    segment_bytes: int = Field(default=16_777_216, ge=65_536, le=1_073_741_824)
    """Size at which a new segment file is started; at the bound whole segments are deleted."""
    after_ms: int = Field(default=1_000, ge=0, le=600_000)
    """With `spool_when_behind`: how long a push waits in memory before it is written to disk."""

    @field_validator("path")
    @classmethod
    def _its_own(cls, path: Path | None) -> Path | None:
        # An empty text gives the same path.
        if path == Path():
            raise ValueError("is the working directory: set a separate folder, for example ./spool/otlp")
        return path


class ProcessSettings(_Settings):
    """Limits of a plugin's process with `isolation: process`."""

    max_memory_bytes: int = Field(default=536_870_912, ge=134_217_728)
    """Address space that the process may allocate once it has started."""
    call_timeout_s: float = Field(default=60.0, ge=0.1, le=3_600)
    """How long one call may take before the process is killed and restarted."""


class HostSettings(_Settings):
    """The host's keys of one entry of ``plugins:``."""

    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """Unique name in logs, metrics and the REST API. Default: the type, numbered from the second
    plugin of the type on."""
    delivery: Delivery = Delivery.SPOOL_WHEN_BEHIND
    """`memory`: no pushes on disk. `spool_when_behind`: pushes go to disk when the destination is
    slow or away. `spool_always`: a push is answered after it is on disk."""
    isolation: Isolation = Isolation.THREAD
    """`thread`: in the receiver's process. `process`: in its own process, which is killed if it
    hangs and restarted if it ends."""
    queue: QueueSettings = QueueSettings()
    spool: SpoolSettings = SpoolSettings()
    batch: BatchSettings = BatchSettings()
    retry: RetrySettings = RetrySettings()
    breaker: BreakerSettings = BreakerSettings()
    process: ProcessSettings = ProcessSettings()
