"""Thresholds of the findings as types: every default with the reason for it.

Owns the configuration's section ``findings`` and nothing else: no query, no I/O.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from spark_streaming.findings.versions import SoftwareVersions

__all__ = [
    "ConnectionChurnSettings",
    "FindingSettings",
    "PollBoundSettings",
    "RebalanceStormSettings",
    "SilentSettings",
    "SlowClientSettings",
    "ThrottledSettings",
    "VersionSettings",
]


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class _Kind(_Settings):
    enabled: bool = Field(
        default=True,
        description="Whether this kind is looked for. Its open findings are resolved after "
        "`forget_after_minutes` once it is not.",
    )


class _WindowedKind(_Kind):
    window_minutes: int = Field(
        default=15,
        ge=2,
        le=1440,
        description="Minutes looked back on; 15 are three pushes at the default interval of five minutes.",
    )


class ThrottledSettings(_WindowedKind):
    """Clients that brokers slow down, because they are over a quota."""

    throttle_ms: float = Field(
        default=100,
        gt=0,
        description="Longest throttling, in ms, from which on a push counts: less is what a quota does to "
        "smooth a burst, and is not felt beside ordinary latencies.",
    )
    severe_ms: float = Field(
        default=1000,
        gt=0,
        description="Throttling, in ms, that makes it a warning: a whole window of the quota "
        "(`quota.window.size.seconds`, 1 s by default), so the client wants far more than it may have.",
    )
    min_minutes: int = Field(
        default=2,
        ge=1,
        description="Minutes of the client id's instances, counted together, that must show it: one may be "
        "a single burst.",
    )


class RebalanceStormSettings(_WindowedKind):
    """Groups that rebalance too often, or spend too much of their time on it."""

    window_minutes: int = Field(
        default=30,
        ge=2,
        le=1440,
        description="Minutes looked back on: long enough that an ordinary rolling restart is a part of it.",
    )
    rebalances: int = Field(
        default=10,
        ge=1,
        description="Rebalances of one member in the window: a group at rest has none, and a few come "
        "with every change.",
    )
    rebalances_per_member: float = Field(
        default=2,
        ge=0,
        description="It must be more than so many for each live member, too: when all instances are "
        "restarted one after the other, each leaves and joins.",
    )
    time_share: float = Field(
        default=0.2,
        gt=0,
        le=1,
        description="Share of the window that one member spent rebalancing: eager members consume nothing "
        "meanwhile, so a fifth of the group's capacity is lost.",
    )
    severe_time_share: float = Field(
        default=0.5, gt=0, le=1, description="Share that makes it critical: the group mostly stands still."
    )


class ConnectionChurnSettings(_WindowedKind):
    """Instances and client ids that open connections far more often than their peers."""

    factor: float = Field(
        default=5,
        gt=1,
        description="How many times the peers' median: peers differ two- or threefold by the brokers that "
        "they happen to talk to.",
    )
    min_connections: int = Field(
        default=30,
        ge=1,
        description="Connections in the window from which on it matters: two a minute. Raise it where a "
        "start alone opens that many, in clusters of more than some 25 brokers.",
    )
    min_peers: int = Field(
        default=4, ge=3, description="Other instances or client ids needed: a median of fewer says nothing."
    )


class SlowClientSettings(_WindowedKind):
    """Clients whose requests take far longer than those of their peers."""

    factor: float = Field(
        default=5, gt=1, description="How many times the peers' median: other racks and zones stay below it."
    )
    deviations: float = Field(
        default=6,
        gt=0,
        description="How many robust standard deviations (1.4826 median absolute deviations) above the "
        "median, so that peers which differ much among themselves make no finding.",
    )
    producer_floor_ms: float = Field(
        default=200,
        gt=0,
        description="Latency, in ms, from which on a producer can be slow: a produce request to all "
        "replicas ordinarily takes some tens.",
    )
    consumer_floor_ms: float = Field(
        default=1000,
        gt=0,
        description="The same of a consumer: brokers hold a fetch that finds nothing for `fetch.max.wait.ms` "
        '(500 ms by default), so idle consumers are "slow" by design. Set it to twice yours.',
    )
    min_peers: int = Field(
        default=4, ge=3, description="Other instances needed: a median of fewer says nothing."
    )


class PollBoundSettings(_WindowedKind):
    """Consumers whose application, not Kafka, is the limit."""

    idle_ratio: float = Field(
        default=0.1,
        gt=0,
        lt=1,
        description="Mean of `poll.idle.ratio.avg` below which a member is bound: its application has some "
        "90 % of the time (89 % in Java, whose ratio is 0.5 at most in steady work), so a little more load "
        "makes it fall behind.",
    )
    bound_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Share of the group's members that makes it a warning: the others can hardly take over.",
    )
    min_points: int = Field(
        default=2, ge=1, description="Values of a member needed: one push may have seen one long batch."
    )


class SilentSettings(_Kind):
    """Clients that pushed, sent no terminating push and push no more."""

    intervals: float = Field(
        default=3, ge=2, description="Push intervals without a push; clients spread pushes over half of one."
    )
    max_minutes: int = Field(
        default=60,
        ge=1,
        description="Minutes beyond these intervals after which a silent client counts as gone, not as one "
        "that should push: it was killed, and nobody will ever hear of that instance again.",
    )


class VersionSettings(_Kind):
    """Versions beyond or instead of the built-in ones."""

    built_in: bool = Field(default=True, description="Whether the versions that are built in count.")
    further: tuple[SoftwareVersions, ...] = Field(
        default=(), max_length=256, description="Versions of one's own, for example of what a firm supports."
    )


class FindingSettings(_Settings):
    """What to look for in the clients' telemetry, from which thresholds on, and how long to keep it open."""

    max_open: int = Field(
        default=100,
        ge=1,
        le=10_000,
        description="Open findings of a kind: the worst come first. Of more, nobody reads the rest.",
    )
    resolve_after_minutes: int = Field(
        default=15,
        ge=0,
        le=1440,
        description="Minutes for which a finding must have been untrue: near a threshold it comes and goes.",
    )
    forget_after_minutes: int = Field(
        default=60,
        ge=1,
        le=10_080,
        description="Minutes after which a finding is taken for untrue whose clients tell nothing any more, "
        "while others of the cluster do: they were stopped or no longer measure it.",
    )
    throttled: ThrottledSettings = ThrottledSettings()
    rebalance_storm: RebalanceStormSettings = RebalanceStormSettings()
    connection_churn: ConnectionChurnSettings = ConnectionChurnSettings()
    slow_client: SlowClientSettings = SlowClientSettings()
    poll_bound: PollBoundSettings = PollBoundSettings()
    silent: SilentSettings = SilentSettings()
    old_version: VersionSettings = VersionSettings()
    known_bad_version: VersionSettings = VersionSettings()
