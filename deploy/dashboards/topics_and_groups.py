# ruff: noqa: S608 - constants of this package; Grafana quotes what users choose (:sqlstring).
"""The dashboard *Topics and groups*: who writes and reads a topic, and how groups get on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from deploy.dashboards.choices import client_variables, sending
from deploy.dashboards.findings import OF_CHOSEN, OF_CHOSEN_CLIENTS, SEVERITY_COLOURS, marks
from deploy.dashboards.grafana import Dashboard, choice
from deploy.dashboards.members import OF_MEMBER, rebalances_of_members
from deploy.dashboards.metrics import standard
from deploy.dashboards.panels import Panel, column, link, link_to_client, rows
from deploy.dashboards.ranges import TREND_S, latest, over_range, trend
from deploy.dashboards.ranked import BY_GROUP, LAG_WARNINGS, largest, most_added
from deploy.dashboards.sql import (
    BY_CLIENT,
    BY_FLEET,
    DAY_S,
    GRAINS,
    MANY_GRAINS,
    RANGE_GRAINS,
    SEEN,
    Source,
    are_all,
    chosen,
    either,
    in_range,
    key_column,
    of_metrics,
    options,
    quoted,
    union,
)
from deploy.dashboards.status import status

_SENT: Final = "producer.topic.record.send.total"
_SENT_BYTES: Final = "producer.topic.byte.total"
_FAILED: Final = "producer.topic.record.error.total"
_RETRIED: Final = "producer.topic.record.retry.total"
_CONSUMED: Final = "consumer.fetch.manager.records.consumed.total"
_CONSUMED_BYTES: Final = "consumer.fetch.manager.bytes.consumed.total"
_LAG: Final = "consumer.fetch.manager.records.lag.max"
_ASSIGNED: Final = "consumer.coordinator.assigned.partitions"
_REBALANCES: Final = "consumer.coordinator.rebalance.total"
_IDLE: Final = "consumer.poll.idle.ratio.avg"

_CLIENTS: Final = chosen(BY_FLEET | BY_CLIENT)
_BY_TOPIC: Final = Source(
    view="topic",
    condition=f"{chosen({'topic': 'topic'})} AND {_CLIENTS}",
    grains=either(
        are_all(["topic", *BY_CLIENT]),
        RANGE_GRAINS,
        either(are_all(["client_id"]), MANY_GRAINS, GRAINS),
    ),
)
_ONLY_JAVA: Final = "Java clients alone tell topics apart."
_EVERY_CLIENT: Final = ("kafka.client.telemetry.pushes",)


def topics_and_groups() -> Dashboard:
    """Build it."""
    board = Dashboard(
        "kct-topics-and-groups",
        "Kafka clients: topics and groups",
        "What clients write to and read from topics, and how consumer groups get on.",
        start="now-1h",
    )
    board.sources().variables(
        *client_variables(),
        sending(_EVERY_CLIENT, "clients"),
        choice(
            "topic",
            "Topic",
            "Topics that clients tell of",
            options(
                "topic",
                "SELECT DISTINCT topic FROM telemetry.topic_1d\n"
                f"WHERE {in_range('1d', before_s=DAY_S)}\n"
                f"  AND metric IN ({quoted([_name(_SENT), _name(_CONSUMED)])}) AND {chosen(BY_FLEET)}\n"
                "ORDER BY 1 LIMIT 5000",
            ),
        ),
    ).resolution()
    board.marks(*marks(OF_CHOSEN_CLIENTS, clients=_CLIENTS)).panel(status())
    board.row(
        "Topics",
        _topics(),
        most_added("Records sent by topic", _SENT, "topic", _BY_TOPIC, _ONLY_JAVA),
        most_added("Records consumed by topic", _CONSUMED, "topic", _BY_TOPIC, _ONLY_JAVA),
        most_added("Records that failed by topic", _FAILED, "topic", _BY_TOPIC, _ONLY_JAVA),
        largest(
            "Records lag by topic",
            _LAG,
            "topic",
            _BY_TOPIC,
            f"Of the worst partition. {_ONLY_JAVA}",
            warnings=LAG_WARNINGS,
        ),
    )
    board.row(
        "Groups",
        _groups(),
        most_added(
            "Records consumed by group", _CONSUMED, "group_id", BY_GROUP, "Java clients alone count records."
        ),
        largest(
            "Records lag by group",
            _LAG,
            "group_id",
            BY_GROUP,
            "Of the worst partition of any member.",
            warnings=LAG_WARNINGS,
        ),
        most_added(
            "Rebalances by group",
            _REBALANCES,
            "group_id",
            BY_GROUP,
            f"{OF_MEMBER} librdkafka does not count them.",
            of_member=True,
        ),
        rebalances_of_members("Rebalances of each member"),
        _members(),
    )
    return board


def _topics() -> Panel:
    metrics = {
        "sent": _SENT, "sent_bytes": _SENT_BYTES, "consumed": _CONSUMED, "consumed_bytes": _CONSUMED_BYTES,
    }  # fmt: skip
    counts = {"failed": _FAILED, "retried": _RETRIED}
    found = _found("topic", [*metrics.values(), *counts.values()], [_LAG])
    cells = [f"{_rate(metric)} AS {name}" for name, metric in metrics.items()]
    cells += [f"{_added(metric)} AS {name}" for name, metric in counts.items()]
    query = (
        f"SELECT topic,\n  max(newest_most) AS lag_max,\n  {f',{chr(10)}  '.join(cells)},\n"
        f"  {key_column('topic')}\n"
        f"FROM (\n{found}\n) AS found\n"
        "GROUP BY topic\n"
        "ORDER BY lag_max DESC NULLS LAST, failed DESC NULLS LAST, sent DESC NULLS LAST, topic LIMIT 200"
    )
    shown = {
        "topic": column("Topic", width=260, links=link("topic", "kct-topics-and-groups", "topic")),
        "lag_max": column("Largest lag now", "short", warnings=LAG_WARNINGS),
    }
    for name in metrics:
        shown[name] = column(
            name.replace("_", " ").capitalize(), "binBps" if "bytes" in name else "count:records/s"
        )
    return rows(
        "Topics",
        f"Topics: those with the largest lag first. *Failed* and *retried* are numbers of records in this "
        f"time. {_ONLY_JAVA} An empty cell means no data.",
        query,
        {**shown, "failed": column("Failed", "short"), "retried": column("Retried", "short")},
    )


def _groups() -> Panel:
    found = union(
        [
            _found("group_id", [_CONSUMED, _CONSUMED_BYTES, _IDLE], [_LAG, _ASSIGNED]),
            _rebalances_of_groups(),
        ]
    )
    cells = {
        "lag_max": _or_not_sent(f"max(newest_most) FILTER (WHERE metric = '{_name(_LAG)}')", _LAG),
        "idle": _or_not_sent(f"min(least) FILTER (WHERE metric = '{_name(_IDLE)}')", _IDLE),
        "rebalances": _or_not_sent(_added(_REBALANCES), _REBALANCES),
        "partitions": _or_not_sent(f"max(newest) FILTER (WHERE metric = '{_name(_ASSIGNED)}')", _ASSIGNED),
        "consumed": _or_not_sent(_rate(_CONSUMED), _CONSUMED),
        "consumed_bytes": _or_not_sent(_rate(_CONSUMED_BYTES), _CONSUMED_BYTES),
    }
    columns = ",\n  ".join(f"{value} AS {name}" for name, value in cells.items())
    query = (
        "SELECT group_id, severity, kinds, lag_max,\n"
        f"  {_CATCH_UP} AS catch_up,\n"
        "  idle, rebalances, members, partitions, consumed, consumed_bytes, versions, group_id_key, rank\n"
        "FROM (\n"
        "SELECT group_id, severity, kinds, members, versions,\n"
        f"  {columns},\n  {key_column('group_id')}, rank\n"
        f"FROM (\n{found}\n) AS found\n"
        "LEFT JOIN (\n"
        "  SELECT group_id, count(*) FILTER (WHERE state = 'live')::float8 AS members,\n"
        "    string_agg(DISTINCT client_software_name || ' ' || client_software_version, ', ') AS versions,\n"
        "    array_agg(DISTINCT software.client) FILTER (WHERE software.client IS NOT NULL)\n"
        "      AS kinds_of_client\n"
        "  FROM telemetry.client LEFT JOIN telemetry.software USING (client_software_name)\n"
        f"  WHERE group_id IS NOT NULL AND {SEEN} AND {_CLIENTS}\n"
        "  GROUP BY 1\n"
        ") AS live USING (group_id)\n"
        "LEFT JOIN (\n"
        "  SELECT group_id, min(rank) AS rank,\n"
        "    (ARRAY['critical', 'warning', 'info'])[min(rank)] AS severity,\n"
        "    string_agg(DISTINCT kind, ', ') AS kinds\n"
        "  FROM (\n"
        "    SELECT group_id, kind, array_position(ARRAY['critical', 'warning', 'info'], severity) AS rank\n"
        f"    FROM telemetry.finding WHERE resolved_at IS NULL AND group_id IS NOT NULL AND {OF_CHOSEN}\n"
        "  ) AS open_findings\n"
        "  GROUP BY 1\n"
        ") AS problems USING (group_id)\n"
        "GROUP BY group_id, severity, kinds, rank, members, versions, kinds_of_client\n"
        ") AS cells\n"
        f"LEFT JOIN (\n{trend(by='group_id', source=of_metrics([_name(_LAG)], [BY_GROUP])[0])}\n"
        ") AS trend USING (group_id)\n"
        # A group that falls further behind is a problem, also before there is a finding.
        f"ORDER BY least(rank, CASE WHEN lag_max >= {_MUCH_LAG} AND {_GROWS} THEN 2 END) NULLS LAST,\n"
        "  nullif(lag_max, 'NaN') DESC NULLS LAST, group_id LIMIT 200"
    )
    return rows(
        "Groups",
        "Consumer groups, those with problems first. Lag and partitions are the newest values, the poll idle "
        "ratio is the smallest of any member, rebalances are their number in this time, of the client id "
        "with the most. *Time to catch up*: how long until the largest lag "
        "of a partition is gone, as it falls in the last half hour of this time; or by how much it grows. "
        "An empty cell means no data.",
        query,
        {
            "group_id": column("Group", width=180, links=link("group_id", "kct-consumers", "group")),
            "severity": column("Severity", width=90, colours=SEVERITY_COLOURS),
            "kinds": column("Findings", width=160),
            "lag_max": column("Largest lag now", "short", warnings=LAG_WARNINGS),
            "catch_up": column("Time to catch up", width=160, patterns={"^grows": "red"}),
            "idle": column("Poll idle, least", "percentunit"),
            "rebalances": column("Rebalances", "short"),
            "members": column("Live members", "short"),
            "partitions": column("Partitions", "short"),
            "versions": column("Versions", width=220),
            "consumed": column("Records", "count:records/s"),
            "consumed_bytes": column("Bytes", "binBps"),
            "rank": column("Rank", hidden=True),
        },
    )


#: A group with so much lag that grows comes first.
_MUCH_LAG: Final = min(LAG_WARNINGS)
#: Whether the lag changes by a fiftieth of its size within the time of the trend.
_GROWS: Final = f"per_minute * {TREND_S / 60} > now / 50"
_FALLS: Final = f"-per_minute * {TREND_S / 60} > now / 50"
_CATCH_UP: Final = (
    "CASE\n"
    "    WHEN lag_max = 'NaN' OR now IS NULL OR per_minute IS NULL THEN NULL\n"
    "    WHEN now = 0 THEN 'no lag'\n"
    f"    WHEN {_GROWS} THEN 'grows by ' || trim_scale(round(per_minute::numeric,\n"
    "      CASE WHEN per_minute < 10 THEN 1 ELSE 0 END)) || '/min'\n"
    f"    WHEN NOT {_FALLS} THEN 'steady'\n"
    "    WHEN now / -per_minute < 120 THEN ceil(now / -per_minute) || ' min'\n"
    "    WHEN now / -per_minute < 2880 THEN round((now / -per_minute / 60)::numeric, 1) || ' h'\n"
    "    ELSE round((now / -per_minute / 1440)::numeric, 1) || ' d'\n"
    "  END"
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
            "state": column(
                "State", colours={"live": "green", "silent": "orange", "disconnected": "text", "left": "text"}
            ),
            "client_software_name": column("Software"),
            "client_software_version": column("Version"),
            "client_source_address": column("Address"),
            "last_seen": column("Last push", "dateTimeFromNow"),
        },
        height=8,
    )


def _name(metric: str) -> str:
    return standard(metric).name


def _found(by: str, of_range: Sequence[str], newest: Sequence[str]) -> str:
    source = replace(_BY_TOPIC if by == "topic" else BY_GROUP, by_series=True)
    return union(
        [
            over_range(
                by=[by, "metric"],
                sources=of_metrics([*map(_name, of_range)], [source]),
                clients=_CLIENTS,
                rates=True,
            ),
            latest(by=[by, "metric"], sources=of_metrics([_name(item) for item in newest], [source])),
        ]
    )


def _rebalances_of_groups() -> str:
    """Return a query as :func:`_found` does: of each group's client id with the most rebalances."""
    by_client = over_range(
        by=["group_id", "client_id", "metric"],
        sources=of_metrics([_name(_REBALANCES)], [replace(BY_GROUP, by_series=True)]),
        clients=_CLIENTS,
    )
    others = ("rate", "mean", "points", "least", "most", "newest", "newest_most")
    missing = ", ".join(f"NULL::float8 AS {name}" for name in others)
    return (
        f"SELECT group_id, metric, max(added) AS added, {missing}\n"
        f"FROM (\n{by_client}\n) AS clients\nGROUP BY group_id, metric"
    )


def _rate(metric: str) -> str:
    """Return the rate of a total of a topic, or of a group."""
    return f"max(rate) FILTER (WHERE metric = '{_name(metric)}')"


def _added(metric: str) -> str:
    return f"max(added) FILTER (WHERE metric = '{_name(metric)}')"


def _or_not_sent(value: str, metric: str) -> str:
    """Return the value, or NaN if no member's software has the metric."""
    clients = quoted(sorted(standard(metric).clients))
    return (
        f"coalesce({value}, CASE WHEN NOT kinds_of_client && ARRAY[{clients}]::text[] THEN 'NaN'::float8 END)"
    )
