"""What an operator may set for any plugin, whatever its type: its name, queue, batches and retries.

Owns the host's own keys of an entry of ``plugins:`` with their defaults and bounds. A plugin's own
keys are its ``Config``'s, never known here.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

__all__ = [
    "BatchSettings",
    "BreakerSettings",
    "Delivery",
    "HostSettings",
    "Isolation",
    "ProcessSettings",
    "QueueSettings",
    "RetrySettings",
    "SpoolSettings",
]


class Delivery(StrEnum):
    """What of a plugin's pushes is kept on disk until its destination has them."""

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
    """What is held in memory between clients' pushes and the plugin."""

    max_items: int = Field(default=10_000, ge=1, le=10_000_000, description="Most pushes held.")
    max_bytes: int = Field(
        default=67_108_864, ge=1024, description="Most OTLP bytes held; a push larger than this is dropped."
    )


class BatchSettings(_Settings):
    """How pushes are put together for a plugin that takes several in one export."""

    max_items: int = Field(
        default=200,
        ge=1,
        le=100_000,
        description="Most pushes in one export; the plugin's own limit applies too.",
    )
    max_bytes: int = Field(
        default=2_097_152,
        ge=1024,
        description="Most OTLP bytes in one export, unless a single push is larger; the default is half of "
        "what a gRPC server takes by default.",
    )
    linger_ms: int = Field(
        default=200, ge=0, le=60_000, description="How long the first push of a batch waits for others."
    )


class RetrySettings(_Settings):
    """What happens to an export that the destination could not take now."""

    initial_ms: int = Field(
        default=1000, ge=1, le=3_600_000, description="The first back-off; each next one doubles."
    )
    max_ms: int = Field(default=30_000, ge=1, le=3_600_000, description="The longest back-off.")
    max_elapsed_s: Annotated[float, Field(ge=0, le=86_400)] | None = Field(
        default=None,
        description="How long one export is tried again before its pushes are dropped and counted; 0: "
        "without end. Null: 300 with `delivery: memory`, without end with a spool, whose bound then decides.",
    )


class BreakerSettings(_Settings):
    """The circuit breaker: when a destination is not asked for a while, and how it is tried again."""

    failures: int = Field(
        default=5,
        ge=1,
        le=1_000_000,
        description="Failures in a row that open the circuit; the next export, after `retry.max_ms`, is of "
        "one push, and the circuit closes when it succeeds.",
    )


class SpoolSettings(_Settings):
    """The segment log on disk, which holds what the destination could not take yet."""

    path: Path | None = Field(
        default=None,
        description="Its folder, which no other plugin may have. Null: `./spool/` and the plugin's name.",
    )
    max_bytes: int = Field(
        default=1_073_741_824,
        ge=1_048_576,
        description="Most bytes on disk; at the bound the oldest pushes go, counted.",
    )
    segment_bytes: int = Field(
        default=16_777_216,
        ge=65_536,
        le=1_073_741_824,
        description="Size at which a segment file is closed and the next begun; the oldest go by segments.",
    )
    after_ms: int = Field(
        default=1_000,
        ge=0,
        le=600_000,
        description="With `spool_when_behind`: how long a push waits in memory before it is written to disk.",
    )

    @field_validator("path")
    @classmethod
    def _its_own(cls, path: Path | None) -> Path | None:
        # The empty text is the same path.
        if path == Path():
            raise ValueError("is the working directory: name a folder of its own, for example ./spool/otlp")
        return path


class ProcessSettings(_Settings):
    """The process that a plugin runs in with `isolation: process`."""

    max_memory_bytes: int = Field(
        default=536_870_912,
        ge=134_217_728,
        description="Address space that it may take beyond what it has once started; more is refused to it.",
    )
    call_timeout_s: float = Field(
        default=60.0,
        ge=0.1,
        le=3_600,
        description="How long one call may take before the process is killed and started anew.",
    )


class HostSettings(_Settings):
    """The host's keys of one entry of ``plugins:``."""

    name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
        description="Name in logs, metrics and the REST API; unique. "
        "Default: the type, numbered from the second on.",
    )
    delivery: Delivery = Field(
        default=Delivery.SPOOL_WHEN_BEHIND,
        description="`memory`: nothing on disk. `spool_when_behind`: on disk when the destination is slow or "
        "away. `spool_always`: a push is answered after it is on disk.",
    )
    isolation: Isolation = Field(
        default=Isolation.THREAD,
        description="`thread`: in the receiver's process. `process`: in one of its own, which is killed when "
        "it hangs and started again when it ends.",
    )
    queue: QueueSettings = QueueSettings()
    spool: SpoolSettings = SpoolSettings()
    batch: BatchSettings = BatchSettings()
    retry: RetrySettings = RetrySettings()
    breaker: BreakerSettings = BreakerSettings()
    process: ProcessSettings = ProcessSettings()
