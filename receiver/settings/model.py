"""The settings of ``receiver.yaml``: keys, defaults, bounds and descriptions.

The reference of settings is generated from these models. The larger sections have modules of their
own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from receiver.settings.backpressure import BackPressureSettings
from receiver.settings.base import KeyMistakeError, Settings
from receiver.settings.bridge import BridgeSettings
from receiver.settings.broker import BrokerSettings
from receiver.settings.cluster import ClusterSettings
from receiver.settings.gateway import GatewaySettings
from receiver.settings.hostport import HostPort
from receiver.settings.limits import SCARCE_BUFFER_BYTES, SOURCE_SHARE_DIVISOR, LimitsSettings
from receiver.settings.listeners import ListenerSettings
from receiver.settings.metric_processing import (
    NormalizationSettings,
    PrivacySettings,
    RegularExpression,
    SeriesSettings,
)
from receiver.settings.owners import OwnersSettings
from receiver.settings.rest import RestSettings
from receiver.settings.rollup import RollupSettings
from receiver.settings.subscriptions import SubscriptionStoreSettings
from receiver.settings.usage import UsageSettings

#: KIP-714's compression types. ``none`` is always accepted and never advertised.
CompressionName = Literal["gzip", "snappy", "lz4", "zstd"]


def _unique(names: tuple[CompressionName, ...]) -> tuple[CompressionName, ...]:
    if len(set(names)) != len(names):
        raise ValueError("a codec is given twice")
    return names


def _with_type(entry: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(entry.get("type"), str) or not entry["type"]:
        raise ValueError("`type` is required: the plugin's name, for example otlp or console")
    return entry


_Compression = Annotated[tuple[CompressionName, ...], AfterValidator(_unique)]
_PluginEntry = Annotated[dict[str, Any], AfterValidator(_with_type)]


class QuirkSettings(Settings):
    """A rule that works around the defects of certain client versions."""

    client_software_name: RegularExpression
    """Regular expression (RE2) that must match the whole software name."""
    client_software_version: str = ".*"
    """Regular expression (RE2) that must match the whole version, or a range such as
    `>=2.5.0,<=2.5.2`."""
    compression: _Compression | None = None
    """Codecs to offer these clients, in order of preference."""
    metrics: tuple[str, ...] | None = None
    """Metric name prefixes that the client supports; it is asked for no others. Empty: none."""
    max_interval_ms: int | None = Field(default=None, ge=100, le=3_600_000)
    """Longest push interval in milliseconds that the client supports."""
    bad_metrics: tuple[RegularExpression, ...] = ()
    """Regular expressions (RE2) that must match the whole names of metrics that the client reports
    wrongly. `telemetry.normalization.known_bad_values` sets what happens to them."""
    reason: str = ""
    """Reason for the rule, shown in the log and the REST API."""


class TelemetrySettings(Settings):
    """Limits, defaults and processing of pushes."""

    max_bytes: int = Field(default=1_048_576, ge=1024, le=104_857_600)
    """Largest compressed push in bytes, sent to clients as TelemetryMaxBytes. The default is that
    of Kafka's `telemetry.max.bytes`."""
    max_inflated_bytes: int = Field(default=2_097_152, ge=1024, le=1_073_741_824)
    """Largest push in bytes after decompression. Raise it together with `max_entries`."""
    max_entries: int = Field(default=100_000, ge=1000, le=100_000_000)
    """Most protobuf messages in a push: ResourceMetrics, metrics, data points, attributes, values
    and so on. A Java client sends up to eleven for each data point, so the default allows about
    9,000 data points: a consumer of a thousand partitions. Raise it with care, because all clients
    wait while a push is parsed."""
    compression: _Compression = ("zstd", "lz4", "gzip", "snappy")
    """Codecs offered to clients, in order of preference."""
    default_interval_ms: int = Field(default=60_000, ge=100, le=3_600_000)
    """How often a client that no subscription matches asks again, in milliseconds: the longest time
    until a new subscription reaches it. Kafka's is 300,000."""
    unsubscribed_metrics: Literal["drop", "keep"] = "drop"
    """What happens to metrics that a client pushes although no subscription asks it for them:
    `drop` and count them, or `keep` them. A broker asks the clients behind a bridge itself, so
    theirs are kept."""
    max_instances: int = Field(default=16_384, ge=1)
    """Most client instances that are remembered. The least recently used is forgotten first."""
    latest_pushes_bytes: int = Field(default=16_777_216, ge=0, le=1_073_741_824)
    """Most bytes of OTLP that are kept of the clients' latest pushes, to show their values in the
    console and at `/v1/clients/{id}/values`. Clients that have pushed least recently are shown
    without. 0 keeps none."""
    delta_temporality: bool = True
    """Ask clients for deltas (true) or cumulative sums (false)."""
    quirks: tuple[QuirkSettings, ...] = ()
    """Rules for certain client versions. They apply before the built-in ones."""
    normalization: NormalizationSettings = NormalizationSettings()
    series: SeriesSettings = SeriesSettings()
    privacy: PrivacySettings = PrivacySettings()
    backpressure: BackPressureSettings = BackPressureSettings()

    @field_validator("max_inflated_bytes")
    @classmethod
    def _room_for_one_push(cls, limit: int, info: ValidationInfo) -> int:
        # An uncompressed push of max_bytes must fit.
        if limit < info.data.get("max_bytes", 0):
            raise ValueError(f"must not be less than telemetry.max_bytes ({info.data['max_bytes']})")
        return limit


class DrainSettings(Settings):
    """The end of the process after SIGTERM or SIGINT."""

    timeout_s: Annotated[float, Field(ge=0, le=600)] = 8.0
    """Seconds in which responses in flight and queued exports may finish. Docker kills a container
    after 10 seconds by default, Kubernetes a pod after 30."""


class LogSettings(Settings):
    """The log on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    format: Literal["console", "json"] = "json"
    """Format of a log line."""
    requests: bool = False
    """Log each ApiVersions and telemetry request with the client's name and version. Off by
    default, because it is a line for each request."""


class DebugSettings(Settings):
    """Options for debugging the receiver."""

    dumpable: bool = False
    """Allow core files, and let other processes of the same user trace the receiver and read its
    memory (ptrace, `/proc/PID/mem`). gdb, strace and py-spy need it without CAP_SYS_PTRACE. Off by
    default, because the memory holds passwords and keys. It also applies to processes of plugins
    that start afterwards."""


class Kip1313Settings(Settings):
    """KIP-1313, which is a proposal under discussion."""

    translate_all: bool = False
    """Offer request header v3 for every RPC if the broker lacks it, and translate requests. Off by
    default, because every request must then be rewritten."""


#: What the receiver itself keeps for a slow reader, at most.
_BACKLOG_BYTES: Final = 262_144

#: Listening ports of clients. One message passes all their sockets to a relay.
_MAX_PORTS: Final = 250


class ReceiverSettings(Settings):
    """The whole of ``receiver.yaml``."""

    #: The default of ``listeners[].broker``.
    broker: BrokerSettings = BrokerSettings()
    gateway: GatewaySettings = GatewaySettings()
    listeners: tuple[ListenerSettings, ...] = ()
    """The listeners, one for each advertised listener of the broker. Required without `bridge`."""
    bridge: BridgeSettings | None = None
    """The listener for plugins in brokers; none by default."""
    subscriptions: SubscriptionStoreSettings = SubscriptionStoreSettings()
    rest: RestSettings = RestSettings()
    cluster: ClusterSettings | None = None
    """The other receivers of the Kafka cluster, so that each of them can answer for all
    (`scope=cluster`); none by default."""
    rollup: RollupSettings | None = None
    """The roll-up, so that the console shows its findings; none by default."""
    owners: OwnersSettings = OwnersSettings()
    """The teams that clients belong to."""
    telemetry: TelemetrySettings = TelemetrySettings()
    limits: LimitsSettings = LimitsSettings()
    kip1313: Kip1313Settings = Kip1313Settings()
    # Not in the repr, because only the plugin knows which of its settings are secrets.
    plugins: tuple[_PluginEntry, ...] = Field(default=(), repr=False)
    """The destinations. Each has a `type` and the settings of that plugin."""
    usage: UsageSettings = UsageSettings()
    drain: DrainSettings = DrainSettings()
    log: LogSettings = LogSettings()
    debug: DebugSettings = DebugSettings()

    @field_validator("listeners")
    @classmethod
    def _distinct(
        cls, listeners: tuple[ListenerSettings, ...], info: ValidationInfo
    ) -> tuple[ListenerSettings, ...]:
        for index, listener in enumerate(listeners):
            for other, earlier in enumerate(listeners[:index]):
                if listener.name == earlier.name:
                    raise KeyMistakeError(f"the name of listeners[{other}] too", index, "name")
                if taken := _taken(listener, earlier):
                    raise KeyMistakeError(
                        f"listeners[{other}] listens on {taken} already"
                        if taken == earlier.bind and taken.port == listener.bind.port
                        else f"listeners[{other}] listens on {taken} already, with the ports of nodes: "
                        "change bind or rewrite.first_port",
                        index,
                        "bind",
                    )
            if listener.bind in listener.upstream:
                raise KeyMistakeError(
                    "the listener's own bind; give the address of the broker's listener", index, "upstream"
                )
        default = info.data.get("broker", BrokerSettings())
        return tuple(
            candidate if candidate.broker is not None else candidate.model_copy(update={"broker": default})
            for candidate in listeners
        )

    @property
    def owners_file(self) -> Path | None:
        """The file of the owners that are put over REST; None: there is none."""
        subscriptions = self.subscriptions
        if self.owners.file is not None or subscriptions.store == "file":
            return self.owners.file
        beside = subscriptions.copy_file if subscriptions.store == "kafka" else subscriptions.sqlite_file
        return beside.with_name(f"{beside.stem}-owners.json")

    @model_validator(mode="after")
    def _has_a_way_in(self) -> Self:
        if not self.listeners and self.bridge is None:
            raise KeyMistakeError(
                "required: a list of mappings, one for each listener; or `bridge`", "listeners"
            )
        return self

    @model_validator(mode="after")
    def _bridge_apart(self) -> Self:
        if self.bridge is not None and isinstance(self.bridge.bind, HostPort):
            taken = [
                (f"listeners[{index}]", bind)
                for index, candidate in enumerate(self.listeners)
                for bind in candidate.binds
            ]
            for owner, bind in (*taken, ("rest", self.rest.bind)):
                if _collide(self.bridge.bind, bind):
                    raise KeyMistakeError(f"{owner} listens on {bind} already", "bridge", "bind")
        return self

    @model_validator(mode="after")
    def _can_rewrite(self) -> Self:
        for index, listener in enumerate(self.listeners):
            broker = listener.broker
            if listener.rewrite is not None and broker is not None and broker.id != "auto":
                raise KeyMistakeError(
                    f"listener {listener.name} has a broker for each node: set it to auto, or give the "
                    "listener `broker: {id: auto}`",
                    *(() if broker is self.broker else ("listeners", index)),
                    *("broker", "id"),
                )
        ports = len(self.listeners) + sum(len(listener.node_binds) for listener in self.listeners)
        if ports > _MAX_PORTS:
            raise ValueError(
                f"the listeners and their nodes need {ports} ports, and at most {_MAX_PORTS} are possible: "
                "lower listeners[].rewrite.nodes"
            )
        return self

    @model_validator(mode="after")
    def _room_for_a_slow_reader(self) -> Self:
        for index, listener in enumerate(self.listeners):
            # Linux doubles what it is asked for. The broker's socket has a buffer too.
            buffer_bytes = listener.socket_buffer_bytes or SCARCE_BUFFER_BYTES
            slow_reader = 4 * buffer_bytes + _BACKLOG_BYTES
            least = SOURCE_SHARE_DIVISOR * slow_reader
            if self.limits.max_held_bytes < least:
                raise KeyMistakeError(
                    "one source address may use a quarter of it, but one slow reader takes "
                    f"{slow_reader}: set it to at least {least}, or lower "
                    f"listeners[{index}].socket_buffer_bytes ({buffer_bytes})",
                    *("limits", "max_held_bytes"),
                )
        return self

    @field_validator("rest")
    @classmethod
    def _rest_apart(cls, rest: RestSettings, info: ValidationInfo) -> RestSettings:
        for index, listener in enumerate(info.data.get("listeners", ())):
            for bind in listener.binds:
                if _collide(rest.bind, bind):
                    raise KeyMistakeError(f"listeners[{index}] listens on {bind} already", "bind")
        return rest


def _taken(listener: ListenerSettings, earlier: ListenerSettings) -> HostPort | None:
    """Return an address of an earlier listener that another one would bind too."""
    theirs = {bind.port: bind for bind in earlier.binds}
    return next(
        (
            theirs[address.port]
            for address in listener.binds
            if address.port in theirs and _collide(address, theirs[address.port])
        ),
        None,
    )


def _collide(one: HostPort, other: HostPort) -> bool:
    if one.port != other.port or one.port == 0:
        return False
    return one.host.lower() == other.host.lower() or one.is_wildcard or other.is_wildcard
