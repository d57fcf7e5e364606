"""The configuration as types: every key of ``receiver.yaml``, its default, its bounds and what it does.

Owns the outer contract's names, with the modules of its larger sections beside it, and nothing else: no
file, no environment, no I/O. The configuration reference in docs/ is made from these types.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from receiver.settings.backpressure import BackPressureSettings
from receiver.settings.base import Settings
from receiver.settings.hostport import HostPort
from receiver.settings.limits import LimitsSettings
from receiver.settings.listeners import ListenerSettings
from receiver.settings.meaning import (
    NormalizationSettings,
    PrivacySettings,
    RegularExpression,
    SeriesSettings,
)
from receiver.settings.rest import RestSettings

__all__ = [
    "BrokerSettings",
    "CompressionName",
    "DebugSettings",
    "DrainSettings",
    "Kip1313Settings",
    "LogSettings",
    "QuirkSettings",
    "ReceiverSettings",
    "SubscriptionStoreSettings",
    "TelemetrySettings",
]

#: KIP-714's compression types by name; ``none`` is always accepted and never advertised.
CompressionName = Literal["gzip", "snappy", "lz4", "zstd"]


#: A node id on the wire is an int32, and a broker's own is never negative.
_MAX_BROKER_ID = 2_147_483_647


def _without_repetition(names: tuple[CompressionName, ...]) -> tuple[CompressionName, ...]:
    if len(set(names)) != len(names):
        raise ValueError("a codec is given twice")
    return names


def _with_type(entry: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(entry.get("type"), str) or not entry["type"]:
        raise ValueError("`type` is required: the plugin's name, for example otlp or console")
    return entry


_Compression = Annotated[tuple[CompressionName, ...], AfterValidator(_without_repetition)]
_PluginEntry = Annotated[dict[str, Any], AfterValidator(_with_type)]


class BrokerSettings(Settings):
    """The broker that the sidecar stands beside."""

    id: int = Field(ge=0, le=_MAX_BROKER_ID, description="Node id of the broker; the `broker_id` label.")
    cluster_id: str | None = Field(
        default=None, min_length=1, description="Id of the cluster; null: asked from the broker."
    )


class SubscriptionStoreSettings(Settings):
    """Where subscriptions are kept."""

    store: Literal["sqlite"] = Field(default="sqlite", description="The kind of store.")
    path: Path = Field(default=Path("./subscriptions.db"), description="The SQLite file.")


class QuirkSettings(Settings):
    """A rule for clients of a certain software: what they are sent differently."""

    client_software_name: RegularExpression = Field(
        description="Regular expression (RE2) for the whole software name."
    )
    client_software_version: str = Field(
        default=".*",
        description="Regular expression (RE2) for the whole version, or a range such as `>=2.5.0,<=2.5.2`.",
    )
    compression: _Compression | None = Field(
        default=None, description="Codecs to offer instead, in order of preference."
    )
    metrics: tuple[str, ...] | None = Field(
        default=None,
        description="Prefixes the client has: only these are ever asked for; empty: it is asked for nothing.",
    )
    max_interval_ms: int | None = Field(
        default=None, ge=100, le=3_600_000, description="Longest push interval the client can keep."
    )
    bad_metrics: tuple[RegularExpression, ...] = Field(
        default=(),
        description="Regular expressions (RE2) for whole names of metrics whose values the client gets "
        "wrong; `telemetry.normalization.known_bad_values` says what becomes of them.",
    )
    reason: str = Field(default="", description="Why the rule exists, for the log and the REST API.")


class TelemetrySettings(Settings):
    """The telemetry core: limits and defaults."""

    max_bytes: int = Field(
        default=1_048_576,
        ge=1024,
        le=104_857_600,
        description="Largest compressed push in bytes; told to clients as TelemetryMaxBytes.",
    )
    max_inflated_bytes: int = Field(
        default=2_097_152,
        ge=1024,
        le=1_073_741_824,
        description="Largest push in bytes once inflated; raise it together with `max_entries`.",
    )
    max_entries: int = Field(
        default=100_000,
        ge=1000,
        le=100_000_000,
        description="Messages nested in a push: ResourceMetrics, metrics, data points, attributes, their "
        "values and so on. A Java client sends up to eleven for each data point, so that the default is some "
        "9,000 data points, or a consumer of a thousand partitions. It can be raised; all clients wait while "
        "the push of one is read.",
    )
    compression: _Compression = Field(
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
    normalization: NormalizationSettings = NormalizationSettings()
    series: SeriesSettings = SeriesSettings()
    privacy: PrivacySettings = PrivacySettings()
    backpressure: BackPressureSettings = BackPressureSettings()

    @field_validator("max_inflated_bytes")
    @classmethod
    def _room_for_one_push(cls, limit: int, info: ValidationInfo) -> int:
        # An uncompressed push is its own inflated form.
        if limit < info.data.get("max_bytes", 0):
            raise ValueError(f"must not be less than telemetry.max_bytes ({info.data['max_bytes']})")
        return limit


class DrainSettings(Settings):
    """What happens on SIGTERM."""

    timeout_s: Annotated[float, Field(ge=0, le=600)] = Field(
        default=10.0,
        description="How long answers in flight and queued exports may take to finish, in seconds.",
    )


class LogSettings(Settings):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level logged."
    )
    format: Literal["console", "json"] = Field(default="json", description="Form of a log line, on stderr.")
    requests: bool = Field(
        default=False,
        description="Log every ApiVersions and telemetry request with the client's information (KIP-511).",
    )


class DebugSettings(Settings):
    """For the search for a fault."""

    dumpable: bool = Field(
        default=False,
        description="Allow core files, and let other processes of the same user trace this one and read "
        "its memory (ptrace, `/proc/PID/mem`). gdb, strace and py-spy need it without CAP_SYS_PTRACE. "
        "The memory holds passwords and keys. It applies to processes of plugins too.",
    )


class Kip1313Settings(Settings):
    """KIP-1313, which is under discussion."""

    translate_all: bool = Field(
        default=False,
        description="Offer request header v3 for every RPC in front of a broker that lacks it, "
        "and translate.",
    )


class ReceiverSettings(Settings):
    """The whole of ``receiver.yaml``."""

    broker: BrokerSettings
    listeners: tuple[ListenerSettings, ...] = Field(
        min_length=1, description="One for each advertised listener."
    )
    subscriptions: SubscriptionStoreSettings = SubscriptionStoreSettings()
    rest: RestSettings = RestSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    limits: LimitsSettings = LimitsSettings()
    kip1313: Kip1313Settings = Kip1313Settings()
    # Not in the repr: what a plugin's settings hold in place of a secret's file is known to the plugin only.
    plugins: tuple[_PluginEntry, ...] = Field(
        default=(), repr=False, description="Destinations; each has a `type` and its plugin's own settings."
    )
    drain: DrainSettings = DrainSettings()
    log: LogSettings = LogSettings()
    debug: DebugSettings = DebugSettings()

    @field_validator("listeners")
    @classmethod
    def _distinct(cls, listeners: tuple[ListenerSettings, ...]) -> tuple[ListenerSettings, ...]:
        for index, listener in enumerate(listeners):
            for other, earlier in enumerate(listeners[:index]):
                if listener.name == earlier.name:
                    raise ValueError(
                        f"listeners[{index}].name: {listener.name} is the name of listeners[{other}] too"
                    )
                if _collide(listener.bind, earlier.bind):
                    raise ValueError(
                        f"listeners[{index}].bind: listeners[{other}] listens on {earlier.bind} already"
                    )
            if listener.bind == listener.upstream:
                raise ValueError(
                    f"listeners[{index}].upstream: {listener.upstream} is the listener's own bind, "
                    "it must be the broker's listener"
                )
        return listeners

    @field_validator("rest")
    @classmethod
    def _rest_apart(cls, rest: RestSettings, info: ValidationInfo) -> RestSettings:
        for index, listener in enumerate(info.data.get("listeners", ())):
            if _collide(rest.bind, listener.bind):
                raise ValueError(f"rest.bind: listeners[{index}] listens on {listener.bind} already")
        return rest


def _collide(one: HostPort, other: HostPort) -> bool:
    if one.port != other.port or one.port == 0:
        return False
    return one.host.lower() == other.host.lower() or one.is_wildcard or other.is_wildcard
