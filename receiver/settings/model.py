"""The configuration as types: every key of ``receiver.yaml``, its default, its bounds and what it does.

Owns the outer contract's names and nothing else: no file, no environment, no I/O. The configuration
reference in docs/ is made from these types.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "BrokerSettings",
    "CompressionName",
    "DrainSettings",
    "ListenerSettings",
    "LogSettings",
    "QuirkSettings",
    "ReceiverSettings",
    "RestSettings",
    "SubscriptionStoreSettings",
    "TelemetrySettings",
]

#: KIP-714's compression types by name; ``none`` is always accepted and never advertised.
CompressionName = Literal["gzip", "snappy", "lz4", "zstd"]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class BrokerSettings(_Settings):
    """The broker that the sidecar stands beside."""

    id: int = Field(ge=0, description="Node id of the broker; the `broker_id` label.")
    cluster_id: str | None = Field(
        default=None, description="Id of the cluster; null: asked from the broker."
    )


class ListenerSettings(_Settings):
    """One listener: where clients connect, and the broker's listener behind it."""

    name: str = Field(description="Name of the broker's advertised listener; the `listener` label.")
    bind: str = Field(description="host:port to listen on.")
    upstream: str = Field(description="host:port of the broker's own listener.")
    security_protocol: Literal["PLAINTEXT", "SASL_PLAINTEXT"] = Field(
        default="PLAINTEXT", description="What the broker's listener speaks; the `security_protocol` label."
    )
    connect_timeout_ms: int = Field(
        default=3000, ge=1, le=60_000, description="How long connecting to the broker may take."
    )
    max_connections: int = Field(
        default=10_000, ge=1, description="Open client connections; one more is closed at once and counted."
    )
    max_frame_bytes: int = Field(
        default=104_857_600,
        ge=1024,
        le=2_147_483_647,
        description="Largest request a client may announce (the broker's socket.request.max.bytes).",
    )


class SubscriptionStoreSettings(_Settings):
    """Where subscriptions are kept."""

    store: Literal["sqlite"] = Field(default="sqlite", description="The kind of store.")
    path: Path = Field(default=Path("./subscriptions.db"), description="The SQLite file.")


class RestSettings(_Settings):
    """The REST API."""

    bind: str = Field(default="127.0.0.1:8642", description="host:port of the REST API; loopback only.")


class QuirkSettings(_Settings):
    """A rule for clients of a certain software: what they are sent differently."""

    client_software_name: str = Field(description="Regular expression (RE2) for the whole software name.")
    client_software_version: str = Field(
        default=".*",
        description="Regular expression (RE2) for the whole version, or a range such as `>=2.5.0,<=2.5.2`.",
    )
    compression: tuple[CompressionName, ...] | None = Field(
        default=None, description="Codecs to offer instead, in order of preference."
    )
    metrics: tuple[str, ...] | None = Field(
        default=None,
        description="Prefixes the client has: only these are ever asked for; empty: it is asked for nothing.",
    )
    reason: str = Field(default="", description="Why the rule exists, for the log and the REST API.")


class TelemetrySettings(_Settings):
    """The telemetry core: limits and defaults."""

    max_bytes: int = Field(
        default=1_048_576,
        ge=1024,
        le=104_857_600,
        description="Largest compressed push in bytes; told to clients as TelemetryMaxBytes.",
    )
    max_inflated_bytes: int = Field(
        default=8_388_608, ge=1024, le=1_073_741_824, description="Largest push in bytes once inflated."
    )
    compression: tuple[CompressionName, ...] = Field(
        default=("zstd", "lz4", "gzip", "snappy"), description="Codecs offered, in order of preference."
    )
    default_interval_ms: int = Field(
        default=300_000,
        ge=100,
        le=3_600_000,
        description="Push interval of a client that no subscription matches.",
    )
    max_instances: int = Field(
        default=16_384, ge=1, description="Client instances remembered; the least recently used goes first."
    )
    delta_temporality: bool = Field(default=True, description="Ask for deltas (true) or cumulative sums.")
    quirks: tuple[QuirkSettings, ...] = Field(
        default=(), description="Rules for certain clients, tried before the built-in ones."
    )


class DrainSettings(_Settings):
    """What happens on SIGTERM."""

    timeout_s: Annotated[float, Field(ge=0, le=600)] = Field(
        default=10.0,
        description="How long answers in flight and queued exports may take to finish, in seconds.",
    )


class LogSettings(_Settings):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level logged."
    )
    format: Literal["console", "json"] = Field(default="json", description="Form of a log line, on stderr.")
    requests: bool = Field(
        default=False,
        description="Log every ApiVersions and telemetry request with the client's information (KIP-511).",
    )


class ReceiverSettings(_Settings):
    """The whole of ``receiver.yaml``."""

    broker: BrokerSettings
    listeners: tuple[ListenerSettings, ...] = Field(
        min_length=1, description="One for each advertised listener."
    )
    subscriptions: SubscriptionStoreSettings = SubscriptionStoreSettings()
    rest: RestSettings = RestSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    plugins: tuple[dict[str, Any], ...] = Field(
        default=(), description="Destinations; each has a `type` and its plugin's own settings."
    )
    drain: DrainSettings = DrainSettings()
    log: LogSettings = LogSettings()
