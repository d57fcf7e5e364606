"""Prometheus rules that record series of groups, topics and peers.

Dashboards on Prometheus read them instead of the series of all clients, which take seconds with
thousands of clients. A rate is over 15 minutes: three push intervals of five minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deploy.dashboards.metrics import standard
from deploy.dashboards.series import by_topic, of_instance, series, whole
from receiver.catalogue import StandardMetric

_RATE: Final = "15m"
_FETCH: Final = "consumer.fetch.manager"
_COORDINATOR: Final = "consumer.coordinator"
#: What dashboards choose of recorded series; they have no client ids.
RECORDED: Final = (
    'cluster_id=~"$cluster",client_software_name=~"$software",principal=~"$principal",group_id=~"$group"'
)
_CLIENTS: Final = ("cluster_id", "client_software_name", "principal", "group_id")
_GROUP: Final = 'group_id!=""'
#: The metrics of which one client is drawn beside its peers.
PEERS: Final = (
    "producer.record.send.total",
    f"{_FETCH}.records.consumed.total",
    "producer.record.error.total",
    f"{_FETCH}.records.lag.max",
    "consumer.poll.idle.ratio.avg",
    "consumer.time.between.poll.max",
    "producer.node.request.latency.max",
    f"{_FETCH}.fetch.latency.max",
    "producer.produce.throttle.time.max",
    f"{_FETCH}.fetch.throttle.time.max",
    f"{_COORDINATOR}.assigned.partitions",
)
_SHARES: Final = {"p25": 0.25, "p50": 0.5, "p75": 0.75}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A series that a rule records."""

    name: str
    expression: str
    metric: StandardMetric

    def written(self) -> dict[str, object]:
        """Return it as an entry of a rule file."""
        return {"record": self.name, "expr": self.expression}


def _of_group(name: str, word: str, how: str) -> Recorded:
    by = ", ".join(_CLIENTS)
    selector = whole(name, _GROUP)
    if how.startswith("rate"):
        expression = f"sum by ({by}) (rate({selector}[{_RATE}]))"
    elif how == "worst":
        expression = f"max by ({by}) (sum by ({by}, client_id) (rate({selector}[{_RATE}])))"
        how = f"max_rate{_RATE}"
    else:
        expression = f"{how} by ({by}) ({selector})"
    return Recorded(name=f"group:kafka_client_{word}:{how}", expression=expression, metric=standard(name))


def _of_topic(name: str, word: str, how: str) -> Recorded:
    by = ", ".join((*_CLIENTS, "topic"))
    selector = by_topic(name)
    expression = f"{how} by ({by}) ({selector})"
    if how.startswith("rate"):
        expression = f"sum by ({by}) (rate({selector}[{_RATE}]))"
    return Recorded(name=f"topic:kafka_client_{word}:{how}", expression=expression, metric=standard(name))


#: By a word that dashboards use.
GROUPS: Final = {
    "consumed": _of_group(f"{_FETCH}.records.consumed.total", "records_consumed", f"rate{_RATE}"),
    "lag": _of_group(f"{_FETCH}.records.lag.max", "records_lag", "max"),
    "rebalances": _of_group(f"{_COORDINATOR}.rebalance.total", "rebalances", "worst"),
}
TOPICS: Final = {
    "sent": _of_topic("producer.topic.record.send.total", "records_sent", f"rate{_RATE}"),
    "consumed": _of_topic(f"{_FETCH}.records.consumed.total", "records_consumed", f"rate{_RATE}"),
    "failed": _of_topic("producer.topic.record.error.total", "records_failed", f"rate{_RATE}"),
    "lag": _of_topic(f"{_FETCH}.records.lag.max", "records_lag", "max"),
}


def peers(name: str) -> dict[str, Recorded]:
    """Return the recorded quartiles of a metric over a cluster's clients of one software."""
    found = of_instance(name, whole(name), _RATE)
    return {
        word: Recorded(
            name=f"peers:{series(name).removeprefix('org_apache_')}:{word}",
            expression=f"quantile by (cluster_id, client_software_name) ({share:g}, {found})",
            metric=standard(name),
        )
        for word, share in _SHARES.items()
    }


def recording_rules() -> dict[str, object]:
    """Return the rule file for Prometheus."""
    groups = {
        "groups": [*GROUPS.values()],
        "topics": [*TOPICS.values()],
        "peers": [peer for name in PEERS for peer in peers(name).values()],
    }
    return {
        "groups": [
            {
                "name": f"kafka-client-telemetry-{name}",
                "interval": "1m",
                "rules": [rule.written() for rule in rules],
            }
            for name, rules in groups.items()
        ]
    }
