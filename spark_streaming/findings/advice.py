"""What to change about a finding, and why.

No client reports its configuration. So an advice names the default, and what it can't see.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

_QUOTAS: Final = "https://kafka.apache.org/documentation/#design_quotas"
_JAVA_CONSUMER: Final = "https://kafka.apache.org/documentation/#consumerconfigs"
_JAVA_PRODUCER: Final = "https://kafka.apache.org/documentation/#producerconfigs"
_KIP: Final = "https://cwiki.apache.org/confluence/display/KAFKA/KIP-"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Advice:
    rule: str
    now: str
    """What the evidence shows, with fields of the evidence."""
    java: str
    """The change in the keys of the Java client."""
    librdkafka: str = ""
    """The same in librdkafka's; empty: the same keys."""
    why: str
    source: str
    blind: str
    """What the rule can't see."""


_ADVICE: Final[dict[str, tuple[_Advice, ...]]] = {
    "throttled": (
        _Advice(
            rule="raise_quota",
            now="throttled for up to {throttle_ms_max:.0f} ms, in {throttled_minutes} minutes of "
            "{window_minutes}",
            java="kafka-configs.sh --alter --add-config producer_byte_rate=... (or consumer_byte_rate, "
            "request_percentage) for the principal or client id",
            why="the broker delays each response until the client is below its quota",
            source=_QUOTAS,
            blind="the quota's value, and whether it is one of bytes or of request time",
        ),
        _Advice(
            rule="send_less",
            now="throttled for up to {throttle_ms_max:.0f} ms",
            java="compression.type=lz4 or zstd (default none); linger.ms=20 (default 5, before 4.0: 0); "
            "batch.size=131072 (default 16384)",
            librdkafka="compression.type=lz4 or zstd (default none); linger.ms=20 (default 5); "
            "batch.size=1000000 is the default",
            why="larger, compressed batches need fewer bytes and requests for the same records",
            source=_JAVA_PRODUCER,
            blind="the values in force, how well the records compress, and whether the quota is on fetches",
        ),
    ),
    "poll_bound": (
        _Advice(
            rule="add_members",
            now="{members_bound} of {members} members with a poll idle ratio down to {poll_idle_ratio_min}",
            java="more members, at most one for each partition; or process the records of a poll in parallel",
            why="the application takes the time, not Kafka",
            source=_KIP + "517%3A+Add+consumer+metrics+to+observe+user+poll+behavior",
            blind="the number of partitions, and what the application does",
        ),
        _Advice(
            rule="max_poll_records",
            now="poll idle ratio down to {poll_idle_ratio_min}",
            java="max.poll.records=100 (default 500), or max.poll.interval.ms=600000 (default 300000)",
            librdkafka="max.poll.interval.ms=600000 (default 300000); librdkafka has no max.poll.records, so "
            "call the poll function with smaller batches",
            why="a member that takes longer than max.poll.interval.ms for a poll's records leaves the group",
            source=_JAVA_CONSUMER,
            blind="the time that the application needs for one record",
        ),
    ),
    "lagging": (
        _Advice(
            rule="read_faster",
            now="{lag:.0f} records behind in a partition, {per_minute} more a minute",
            java="more members, at most one for each partition; if the poll idle ratio is high, "
            "max.partition.fetch.bytes above 1048576 (the default) and fetch.min.bytes above 1",
            librdkafka="more members, at most one for each partition; fetch.message.max.bytes above 1048576 "
            "(the default), queued.min.messages above 100000 (the default)",
            why="producers write more to the partition than its consumer reads",
            source=_JAVA_CONSUMER,
            blind="the number of partitions, and whether one of them gets most records",
        ),
    ),
    "rebalance_storm": (
        _Advice(
            rule="static_membership",
            now="{rebalances} rebalances in {window_minutes} minutes, {members} members",
            java="group.instance.id=NAME, one for each process; session.timeout.ms above a restart's "
            "duration (default 45000)",
            why="a member with a static id that restarts within the session timeout causes no rebalance",
            source=_KIP + "345%3A+Introduce+static+membership+protocol+to+reduce+consumer+rebalances",
            blind="whether members have an instance id, and why they leave",
        ),
        _Advice(
            rule="incremental_rebalances",
            now="{time_share} of the time spent on rebalances",
            java="group.protocol=consumer (brokers from 4.0), or partition.assignment.strategy="
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
            librdkafka="group.protocol=consumer (brokers from 4.0), or partition.assignment.strategy="
            "cooperative-sticky (default range,roundrobin)",
            why="members keep the partitions that don't move, and consume during a rebalance",
            source=_KIP + "848%3A+The+Next+Generation+of+the+Consumer+Rebalance+Protocol",
            blind="the protocol and the strategy in force",
        ),
    ),
    "connection_churn": (
        _Advice(
            rule="reuse_clients",
            now="{connections:.0f} connections in {window_minutes} minutes; the median of peers is "
            "{peers_median}",
            java="one client for the process's lifetime; reconnect.backoff.max.ms=10000 (default 1000)",
            librdkafka="one client for the process's lifetime; connections.max.idle.ms=0 (the default) keeps "
            "idle connections",
            why="each connection costs a TLS handshake, a login, and memory of the broker",
            source=_JAVA_CONSUMER,
            blind="failed logins, and what closes the connections",
        ),
    ),
    "slow_client": (
        _Advice(
            rule="look_at_the_path",
            now="{latency_ms} ms; the median of {peers} peers is {peers_median_ms} ms",
            java="client.rack of the client's zone, for consumers; fetch.max.wait.ms and fetch.min.bytes as "
            "the peers have them (defaults 500 and 1)",
            librdkafka="client.rack of the client's zone, for consumers; fetch.wait.max.ms and "
            "fetch.min.bytes as the peers have them (defaults 500 and 1)",
            why="a broker in another zone, and fetches that wait for data, take longer",
            source=_KIP + "392%3A+Allow+consumers+to+fetch+from+closest+replica",
            blind="the network and the host; for consumers the latency contains the broker's wait for data",
        ),
    ),
    "shared_instance": (
        _Advice(
            rule="one_client_a_process",
            now="{pushes} pushes, as of {processes} processes",
            java="create the client after a fork; let the broker give the instance id",
            why="processes with one instance id hide each other's values, and brokers throttle their pushes",
            source=_KIP + "714%3A+Client+metrics+and+observability",
            blind="pushes through the same receiver that were throttled",
        ),
    ),
    "silent": (
        _Advice(
            rule="look_at_the_process",
            now="no push for {silent_s:.0f} s, one each {push_interval_ms} ms was asked for",
            java="check whether the process runs",
            why="a killed process and one that hangs look the same",
            source=_KIP + "714%3A+Client+metrics+and+observability",
            blind="closed producers that were idle, and deleted subscriptions",
        ),
    ),
    "old_version": (),
    "known_bad_version": (),
}
_LIBRDKAFKA: Final = ("librdkafka", "confluent-kafka")


def advice(kind: str, evidence: Mapping[str, Any], software: Collection[str | None]) -> list[dict[str, Any]]:
    """Return what to change about a finding.

    Returns:
        For each change: ``rule``, ``now``, ``change`` by client library, ``why``, ``source`` and
        ``cannot_see``.
    """
    if "reasons" in evidence:
        return [
            {
                "rule": "upgrade",
                "now": f"{evidence.get('clients', 0)} clients",
                "change": {"all": "a release without this problem"},
                "why": reason,
                "source": source,
                "cannot_see": "whether the application meets the problem",
            }
            for reason, source in zip(evidence["reasons"], evidence.get("sources", ()), strict=False)
        ]
    values = {name: "an unknown number of" if value is None else value for name, value in evidence.items()}
    return [_written(change, values, software) for change in _ADVICE[kind] if _has(change, evidence)]


def _has(change: _Advice, evidence: Mapping[str, Any]) -> bool:
    try:
        change.now.format(**evidence)
    except (KeyError, TypeError, ValueError):
        return False
    return True


def _written(change: _Advice, values: Mapping[str, Any], software: Collection[str | None]) -> dict[str, Any]:
    names = {name for name in software if name}
    librdkafka = {name for name in names if name.startswith(_LIBRDKAFKA)}
    keys = {}
    if not change.librdkafka:
        keys["all"] = change.java
    else:
        if librdkafka != names or not names:
            keys["java"] = change.java
        if librdkafka:
            keys["librdkafka"] = change.librdkafka
    return {
        "rule": change.rule,
        "now": change.now.format(**values),
        "change": keys,
        "why": change.why,
        "source": change.source,
        "cannot_see": change.blind,
    }
