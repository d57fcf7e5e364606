"""Schema of the section ``findings``, with the reason for every default."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from spark_streaming.findings.versions import SoftwareVersions


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class _Kind(_Settings):
    enabled: bool = True
    """Look for this kind. If false, its open findings are resolved after `forget_after_minutes`."""


class _WindowedKind(_Kind):
    window_minutes: int = Field(default=15, ge=2, le=1440)
    """Minutes to look back. 15 minutes are three pushes at the default interval of 5 minutes."""


class ThrottledSettings(_WindowedKind):
    """Clients that brokers throttle because they exceed a quota."""

    throttle_ms: float = Field(default=100, gt=0)
    """Longest throttling of a push, in ms, from which it counts. A quota that smooths a burst
    throttles for less, which is small beside ordinary latencies."""
    severe_ms: float = Field(default=1000, gt=0)
    """Throttling, in ms, that makes it a warning. The default is one quota window
    (`quota.window.size.seconds`, 1 s): the client demands far more than its quota."""
    min_minutes: int = Field(default=2, ge=1)
    """Minutes with throttling needed, counted over all instances of the client id. One may be a
    single burst."""


class RebalanceStormSettings(_WindowedKind):
    """Groups that rebalance too often or spend too much time rebalancing."""

    window_minutes: int = Field(default=30, ge=2, le=1440)
    """Minutes to look back. 30 minutes are longer than an ordinary rolling restart."""
    rebalances: int = Field(default=10, ge=1)
    """Rebalances of one member in the window. A stable group has none, and every membership change
    causes a few."""
    rebalances_per_member: float = Field(default=2, ge=0)
    """The count must also exceed this number times the live members, because each instance leaves
    and joins in a rolling restart."""
    time_share: float = Field(default=0.2, gt=0, le=1)
    """Share of the window that one member spent rebalancing. Eager members consume nothing during a
    rebalance, so at 0.2 the group loses a fifth of its capacity."""
    severe_time_share: float = Field(default=0.5, gt=0, le=1)
    """Share that makes it critical. The group is stopped most of the time."""


class ConnectionChurnSettings(_WindowedKind):
    """Instances and client ids that open far more connections than their peers."""

    factor: float = Field(default=5, gt=1)
    """Multiple of the peers' median. Peers differ two- or threefold, depending on the brokers they
    use."""
    min_connections: int = Field(default=30, ge=1)
    """Fewest connections in the window. The default is two a minute. Raise it in clusters of more
    than about 25 brokers, where starting a client opens that many."""
    min_peers: int = Field(default=4, ge=3)
    """Other instances or client ids needed. A median of fewer is not meaningful."""


class SlowClientSettings(_WindowedKind):
    """Clients whose requests take far longer than those of their peers."""

    factor: float = Field(default=5, gt=1)
    """Multiple of the peers' median. Other racks and zones stay below it."""
    deviations: float = Field(default=6, gt=0)
    """Robust standard deviations (1.4826 median absolute deviations) above the median, so that
    widely differing peers cause no finding."""
    producer_floor_ms: float = Field(default=200, gt=0)
    """Lowest latency, in ms, of a slow producer. A produce request to all replicas normally takes
    tens of ms."""
    consumer_floor_ms: float = Field(default=1000, gt=0)
    """Lowest latency, in ms, of a slow consumer. Set it to twice `fetch.max.wait.ms` (500 ms by
    default), because brokers hold empty fetches that long."""
    min_peers: int = Field(default=4, ge=3)
    """Other instances needed. A median of fewer is not meaningful."""


class PollBoundSettings(_WindowedKind):
    """Consumers limited by their application, not by Kafka."""

    idle_ratio: float = Field(default=0.1, gt=0, lt=1)
    """A member with a mean `poll.idle.ratio.avg` below this is bound. At 0.1 its application uses
    90 % of the time (89 % in Java, whose ratio is at most 0.5 in steady work), so a little more
    load makes it fall behind."""
    bound_share: float = Field(default=0.5, gt=0, le=1)
    """Share of bound members that makes it a warning. The other members can hardly take over."""
    min_points: int = Field(default=2, ge=1)
    """Values needed from a member. A single push may cover one long batch."""


class LaggingSettings(_WindowedKind):
    """Consumers that fall behind, by the partition that is furthest behind."""

    window_minutes: int = Field(default=30, ge=6, le=1440)
    """Minutes to look back. 30 minutes have six pushes at the default interval of 5 minutes, enough
    for a trend."""
    records: int = Field(default=10_000, ge=1)
    """Lag from which it counts. Below, a pause of the consumer explains it."""
    growth: float = Field(default=0.02, gt=0)
    """Growth in the window, as a share of the lag, from which a lag grows or falls. Less is
    steady."""
    behind_minutes: float = Field(default=15, gt=0)
    """A steady lag counts if reading it takes this long, at the client's rate. A window of pushes
    is a delay that users see."""
    severe_minutes: float = Field(default=60, gt=0)
    """Delay that makes it critical. A client that reads nothing is critical too."""


class SharedInstanceSettings(_WindowedKind):
    """Instances that several processes push as."""

    window_minutes: int = Field(default=30, ge=2, le=1440)
    """Minutes to look back. 30 minutes are six pushes at the default interval of 5 minutes."""
    factor: float = Field(default=1.5, gt=1)
    """Pushes, as a multiple of those of one process. One process has 1, two have 2."""
    min_pushes: int = Field(default=6, ge=3)
    """Pushes needed. A client may push early after a change of its subscription."""


class SilentSettings(_Kind):
    """Clients that stopped pushing without a terminating push."""

    intervals: float = Field(default=3, ge=2)
    """Push intervals without a push. Clients spread their pushes over half an interval."""
    max_minutes: int = Field(default=60, ge=1)
    """Minutes after these intervals until a silent client counts as gone. It was killed, and this
    instance will not push again."""


class VersionSettings(_Kind):
    """Client versions to report, beside or instead of the built-in ones."""

    built_in: bool = True
    """Use the built-in list of versions."""
    further: tuple[SoftwareVersions, ...] = Field(default=(), max_length=256)
    """Your own versions, for example those that your company supports."""


class FindingSettings(_Settings):
    """Which findings to look for, their thresholds, and when they are resolved."""

    max_open: int = Field(default=100, ge=1, le=10_000)
    """Maximum number of open findings of a kind. The worst are kept."""
    resolve_after_minutes: int = Field(default=15, ge=0, le=1440)
    """Minutes without the condition until a finding is resolved. This keeps a value near the
    threshold from opening and resolving it again and again."""
    forget_after_minutes: int = Field(default=60, ge=1, le=10_080)
    """Minutes without data of the clients of a finding, while others of the cluster push, until its
    condition counts as gone. The clients were stopped or no longer measure it."""
    throttled: ThrottledSettings = ThrottledSettings()
    rebalance_storm: RebalanceStormSettings = RebalanceStormSettings()
    connection_churn: ConnectionChurnSettings = ConnectionChurnSettings()
    slow_client: SlowClientSettings = SlowClientSettings()
    poll_bound: PollBoundSettings = PollBoundSettings()
    lagging: LaggingSettings = LaggingSettings()
    shared_instance: SharedInstanceSettings = SharedInstanceSettings()
    silent: SilentSettings = SilentSettings()
    old_version: VersionSettings = VersionSettings()
    known_bad_version: VersionSettings = VersionSettings()


#: The kinds of findings.
KINDS: Final = tuple(
    name
    for name, field in FindingSettings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, _Kind)
)
