# ruff: noqa: S608 - constants of this package; Grafana quotes what users choose (:sqlstring).
"""The dashboard *Topics and groups*: who writes and reads a topic, and how groups get on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deploy.dashboards.choices import client_variables
from deploy.dashboards.grafana import Dashboard, choice
from deploy.dashboards.metrics import standard
from deploy.dashboards.panels import Panel, column, lines, link, link_to_client, rows
from deploy.dashboards.sql import (
    BY_CLIENT,
    BY_FLEET,
    GRAINS,
    MANY_GRAINS,
    RANGE_GRAINS,
    SEEN,
    Source,
    as_they_are,
    chosen,
    either,
    everybody,
    key_column,
    of_metrics,
    options,
    over_range,
    over_time,
    per_second,
    quoted,
)
from deploy.dashboards.status import status
from deploy.dashboards.units import unit_of

__all__ = ["topics_and_groups"]

_PREFIX: Final = "org.apache.kafka."
_SENT: Final = standard("producer.topic.record.send.total").name
_SENT_BYTES: Final = standard("producer.topic.byte.total").name
_FAILED: Final = standard("producer.topic.record.error.total").name
_RETRIED: Final = standard("producer.topic.record.retry.total").name
_CONSUMED: Final = standard("consumer.fetch.manager.records.consumed.total").name
_CONSUMED_BYTES: Final = standard("consumer.fetch.manager.bytes.consumed.total").name
_LAG: Final = standard("consumer.fetch.manager.records.lag.max").name
_ASSIGNED: Final = standard("consumer.coordinator.assigned.partitions").name
_REBALANCES: Final = standard("consumer.coordinator.rebalance.total").name
_IDLE: Final = standard("consumer.poll.idle.ratio.avg").name

_CLIENTS: Final = chosen(BY_FLEET | BY_CLIENT)
_TOPICS: Final = f"{chosen({'topic': 'topic'})} AND {_CLIENTS}"
_OF_ALL: Final = everybody(["topic", *BY_CLIENT])
_TOP: Final = 10
#: Every client's series have to be read where nothing is chosen: then as coarse as does.
_GRAINS: Final = either(_OF_ALL, RANGE_GRAINS, either(everybody(["client_id"]), MANY_GRAINS, GRAINS))
_BY: Final = {
    "topic": Source(view="topic", condition=_TOPICS, grains=_GRAINS),
    "group_id": Source(view="metric", condition=f"group_id IS NOT NULL AND {_CLIENTS}", grains=_GRAINS),
}
_ONLY_JAVA: Final = "Java clients alone tell topics apart."


def topics_and_groups() -> Dashboard:
    """Build it."""
    board = Dashboard(
        "kct-topics-and-groups",
        "Kafka clients: topics and groups",
        "What clients write to and read from topics, and how consumer groups get on.",
    )
    board.sources().variables(
        *client_variables(),
        choice(
            "topic",
            "Topic",
            "Topics that clients tell of",
            options(
                "topic",
                "SELECT DISTINCT topic FROM telemetry.topic_1d\n"
                "WHERE bucket > $__timeFrom()::timestamptz - interval '1 day' AND bucket <= $__timeTo()\n"
                f"  AND metric IN ({quoted([_SENT, _CONSUMED])}) AND {chosen(BY_FLEET)}\n"
                "ORDER BY 1 LIMIT 5000",
            ),
        ),
    ).resolution()
    board.panel(status())
    board.row(
        "Topics",
        _topics(),
        _top("Records sent by topic", _SENT, "topic", f"The {_TOP} topics with the most. {_ONLY_JAVA}"),
        _top(
            "Records consumed by topic", _CONSUMED, "topic", f"The {_TOP} topics with the most. {_ONLY_JAVA}"
        ),
        _top(
            "Records that failed by topic", _FAILED, "topic", f"The {_TOP} topics with the most. {_ONLY_JAVA}"
        ),
        _worst("Records lag, maximum, by topic", _LAG, "topic", f"Of the worst partition. {_ONLY_JAVA}"),
    )
    board.row(
        "Groups",
        _groups(),
        _top("Records consumed by group", _CONSUMED, "group_id", "Java clients alone count records."),
        _worst("Records lag, maximum, by group", _LAG, "group_id", "Of the worst partition of any member."),
        _top(
            "Rebalances by group",
            _REBALANCES,
            "group_id",
            "Each member counts its own: divide by members. librdkafka does not count them.",
            width=24,
        ),
        _members(),
    )
    return board


def _topics() -> Panel:
    metrics = {
        "sent": _SENT, "sent_bytes": _SENT_BYTES, "failed": _FAILED, "retried": _RETRIED,
        "consumed": _CONSUMED, "consumed_bytes": _CONSUMED_BYTES,
    }  # fmt: skip
    found = _found("topic", [*metrics.values(), _LAG])
    cells = ",\n  ".join(f"{_rate(metric)} AS {name}" for name, metric in metrics.items())
    query = (
        f"SELECT topic,\n  {cells},\n  max(most) FILTER (WHERE metric = '{_LAG}') AS lag_max,\n"
        f"  {key_column('topic')}\n"
        f"FROM (\n{found}\n) AS found\nGROUP BY topic\n"
        "ORDER BY sent DESC NULLS LAST, consumed DESC NULLS LAST, topic LIMIT 200"
    )
    shown = {"topic": column("Topic", width=260, links=link("topic", "kct-topics-and-groups", "topic"))}
    for name in metrics:
        shown[name] = column(
            name.replace("_", " ").capitalize(), "binBps" if "bytes" in name else "count:records/s"
        )
    return rows(
        "Topics",
        f"Topics by traffic per second. {_ONLY_JAVA} An empty cell means no data.",
        query,
        {**shown, "lag_max": column("Records lag, maximum", "short")},
    )


def _groups() -> Panel:
    found = _found("group_id", [_CONSUMED, _CONSUMED_BYTES, _LAG, _ASSIGNED, _REBALANCES, _IDLE])
    query = (
        "SELECT group_id, members, versions,\n"
        f"  {_rate(_CONSUMED)} AS consumed,\n  {_rate(_CONSUMED_BYTES)} AS consumed_bytes,\n"
        f"  max(most) FILTER (WHERE metric = '{_LAG}') AS lag_max,\n"
        f"  max(added / buckets) FILTER (WHERE metric = '{_ASSIGNED}') AS partitions,\n"
        f"  {_rate(_REBALANCES)} * 3600 AS rebalances,\n"
        f"  max(added / nullif(points, 0)) FILTER (WHERE metric = '{_IDLE}') AS idle,\n"
        f"  {key_column('group_id')}\n"
        f"FROM (\n{found}\n) AS found\n"
        "LEFT JOIN (\n"
        "  SELECT group_id, count(*)::float8 AS members,\n"
        "    string_agg(DISTINCT client_software_name || ' ' || client_software_version, ', ') AS versions\n"
        f"  FROM telemetry.client WHERE group_id IS NOT NULL AND state = 'live' AND {_CLIENTS}\n"
        "  GROUP BY 1\n"
        ") AS live USING (group_id)\n"
        "GROUP BY group_id, members, versions\nORDER BY consumed DESC NULLS LAST, group_id LIMIT 200"
    )
    return rows(
        "Groups",
        "Consumer groups with their live members. Each member counts each rebalance of its group: divide by "
        "members. An empty cell means no data, or clients without the metric.",
        query,
        {
            "group_id": column("Group", width=180, links=link("group_id", "kct-consumers", "group")),
            "members": column("Live members", "short"),
            "versions": column("Versions", width=220),
            "consumed": column("Records", "count:records/s"),
            "consumed_bytes": column("Bytes", "binBps"),
            "lag_max": column("Records lag, maximum", "short"),
            "partitions": column("Partitions", "short"),
            "rebalances": column("Rebalances an hour, all members", "short"),
            "idle": column("Poll idle ratio", "percentunit"),
        },
    )


def _members() -> Panel:
    return rows(
        "Members",
        "Client instances with a group, ordered by their last push.",
        "SELECT group_id, client_id, client_instance_id, group_instance_id, state,\n"
        "  client_software_name, client_software_version, client_source_address, last_seen,\n"
        f"  {key_column('client_id')}\n"
        "FROM telemetry.client\n"
        f"WHERE group_id IS NOT NULL AND {SEEN}\n  AND {_CLIENTS}\nORDER BY last_seen DESC LIMIT 200",
        {
            "group_id": column("Group"),
            "client_id": column("Client id", links=link_to_client()),
            "client_instance_id": column("Instance"),
            "group_instance_id": column("Static member"),
            "state": column("State", colours={"live": "green", "silent": "orange", "left": "text"}),
            "client_software_name": column("Software"),
            "client_software_version": column("Version"),
            "client_source_address": column("Address"),
            "last_seen": column("Last push", "dateTimeFromNow"),
        },
        height=8,
    )


def _found(by: str, metrics: Sequence[str]) -> str:
    return over_range(by=[by, "metric"], sources=of_metrics(metrics, [_BY[by]]))


def _rate(metric: str) -> str:
    return f"max(added / seconds) FILTER (WHERE metric = '{metric}')"


def _top(title: str, metric: str, by: str, description: str, *, width: int = 12) -> Panel:
    added = over_time(series=by, value="sum(sum)", sources=of_metrics([metric], [_BY[by]]))
    _, factor = unit_of(standard(metric.removeprefix(_PREFIX)))
    return _most(title, metric, per_second(added, factor=factor), description, width)


def _worst(title: str, metric: str, by: str, description: str) -> Panel:
    extremes = over_time(series=by, value="max(max)", sources=of_metrics([metric], [_BY[by]]))
    return _most(title, metric, as_they_are(extremes), description, 12)


def _most(title: str, metric: str, series: str, description: str, width: int) -> Panel:
    query = (
        f"WITH series AS (\n{series}\n)\nSELECT time, metric, value FROM series\n"
        f"WHERE metric IN (SELECT metric FROM series GROUP BY 1 ORDER BY sum(value) DESC, 1 LIMIT {_TOP})\n"
        "ORDER BY 1, 2"
    )
    unit, _ = unit_of(standard(metric.removeprefix(_PREFIX)))
    return lines(title, f"`{metric}`: {description}", unit, query, width=width)
