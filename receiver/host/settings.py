"""What an operator may set for any plugin, whatever its type: its name, queue, batches and retries.

Owns the host's own keys of an entry of ``plugins:`` with their defaults and bounds. A plugin's own keys are
its ``Config``'s, never known here.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["BatchSettings", "HostSettings", "QueueSettings", "RetrySettings"]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class QueueSettings(_Settings):
    """The queue between clients' pushes and the plugin; when it is full the oldest pushes go, counted."""

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
    max_elapsed_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=300.0,
        description="How long one export is tried again before its pushes are dropped and counted; "
        "0: for as long as the receiver runs.",
    )


class HostSettings(_Settings):
    """The host's keys of one entry of ``plugins:``."""

    name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
        description="Name in logs, metrics and the REST API; unique. "
        "Default: the type, numbered from the second on.",
    )
    queue: QueueSettings = QueueSettings()
    batch: BatchSettings = BatchSettings()
    retry: RetrySettings = RetrySettings()
