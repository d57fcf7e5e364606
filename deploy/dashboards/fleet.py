# ruff: noqa: S608 - constants of this package; Grafana quotes what users choose (:sqlstring).
"""The dashboard *Fleet*: live and silent clients, versions, open findings."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.choices import cluster, software
from deploy.dashboards.findings import OF_CHOSEN, findings, findings_over_time, marks, tiles
from deploy.dashboards.grafana import Dashboard
from deploy.dashboards.metrics import standard
from deploy.dashboards.panels import NOTHING_FOUND, Panel, column, lines, link_to_client, number, rows
from deploy.dashboards.ranges import latest
from deploy.dashboards.ranked import LAG, LAG_WARNINGS
from deploy.dashboards.sql import (
    BY_FLEET,
    SEEN,
    Source,
    chosen,
    key_column,
    name_of_software,
    of_metrics,
    over_time,
    per_bucket,
    per_second,
)
from deploy.dashboards.status import status
from deploy.dashboards.tops import worst_ten

_CHOSEN: Final = chosen(BY_FLEET)
_FLEET: Final = Source(view="fleet", condition=_CHOSEN)
_VERSION: Final = f"{name_of_software} || ' ' || coalesce(client_software_version, '')"
_CLIENTS: Final = "kafka.client.telemetry.clients"
_PUSHES: Final = "kafka.client.telemetry.pushes"


def fleet() -> Dashboard:
    """Build it."""
    board = Dashboard(
        "kct-fleet", "Kafka clients: fleet",
        "All client instances that push telemetry, by software and version, with their findings.",
    )  # fmt: skip
    board.sources().variables(cluster(), software()).resolution()
    board.marks(*marks()).panel(status())
    board.row(
        "Now",
        *tiles(),
        _groups_behind(),
        number(
            "Live clients",
            "Client instances that sent no terminating push, and have pushed within three of their push "
            "intervals. Measured against the pushes that were read: see the banner.",
            "short",
            _count("state = 'live'"),
            width=3,
        ),
        number(
            "Silent clients",
            "Client instances that pushed in this time, sent no terminating push, and have pushed nothing "
            "for three push intervals, while other clients of the cluster did. They were killed, lost the "
            "network, or hang.",
            "short",
            _count("state = 'silent' AND last_seen >= $__timeFrom()"),
            warnings={1: "orange"},
            width=3,
        ),
        number(
            "Client ids",
            "Different client ids among the live clients.",
            "short",
            _count("state = 'live'", what="DISTINCT client_id"),
            width=3,
        ),
        number(
            "Versions",
            "Different versions of client software among the live clients.",
            "short",
            _count("state = 'live'", what="DISTINCT (client_software_name, client_software_version)"),
            width=3,
        ),
    )
    board.row(
        "Findings",
        findings("Findings", OF_CHOSEN),
        findings_over_time(OF_CHOSEN, width=12),
        _silent(),
    )
    board.row(
        "Worst ten, in this time",
        worst_ten("Lag", LAG, with_group=True),
        worst_ten("Produce throttling", "producer.produce.throttle.time.max"),
        worst_ten("Fetch throttling", "consumer.fetch.manager.fetch.throttle.time.max"),
        worst_ten("Produce latency", "producer.node.request.latency.max"),
        worst_ten("Failed records", "producer.record.error.total", counted=True),
        worst_ten("Rebalances", "consumer.coordinator.rebalance.total", counted=True, with_group=True),
    )
    board.row(
        "Clients over time",
        clients_by_version(),
        lines(
            "Pushes a minute by software",
            f"`{_PUSHES}`: accepted pushes. Each counts once, however often it was delivered.",
            "count:pushes/min",
            f"{per_second(_rolled_up(_PUSHES, name_of_software), factor=60.0)}\nORDER BY 1, 2",
            stacked=True,
        ),
    )
    return board


def _groups_behind() -> Panel:
    behind = min(LAG_WARNINGS)
    source = Source(view="metric", condition=f"group_id IS NOT NULL AND {_CHOSEN}")
    newest = latest(by=["cluster_id", "group_id"], sources=of_metrics([standard(LAG).name], [source]))
    return number(
        "Groups behind",
        f"Groups with a partition that is {behind:,} records behind or more, by the newest values. Java "
        "clients alone measure lag.",
        "short",
        f"SELECT count(*)::float8 AS value FROM (\n{newest}\n) AS groups\nWHERE newest_most >= {behind}",
        warnings={1: "orange"},
        width=3,
    )


def _silent() -> Panel:
    return rows(
        "Silent clients",
        "Client instances that fell silent without a terminating push in this time, the latest first.",
        "SELECT client_id, last_seen, client_software_name, client_software_version,\n"
        "  client_source_address, push_interval_ms, client_instance_id, cluster_id,\n"
        f"  {key_column('client_id')}\n"
        "FROM telemetry.client\n"
        f"WHERE state = 'silent' AND {SEEN}\n  AND {_CHOSEN}\n"
        "ORDER BY last_seen DESC LIMIT 200",
        {
            "client_id": column("Client id", links=link_to_client()),
            "last_seen": column("Last push", "dateTimeFromNow"),
            "client_software_name": column("Software"),
            "client_software_version": column("Version"),
            "client_source_address": column("Address"),
            "push_interval_ms": column("Push interval", "ms"),
            "client_instance_id": column("Instance"),
            "cluster_id": column("Cluster"),
        },
        width=12,
        nothing=NOTHING_FOUND,
    )


def clients_by_version(*, width: int = 12) -> Panel:
    """Build the panel of client instances over time by software and version."""
    return lines(
        "Clients by software and version",
        f"`{_CLIENTS}`: client instances, each until its terminating push or three push intervals of "
        "silence.",
        "short",
        f"{per_bucket(_rolled_up(_CLIENTS, _VERSION))}\nORDER BY 1, 2",
        width=width,
        stacked=True,
    )


def _rolled_up(metric: str, series: str) -> str:
    return over_time(series=series, value="sum(sum)", sources=of_metrics([metric], [_FLEET]))


def _count(condition: str, *, what: str = "*") -> str:
    return f"SELECT count({what})::float8 AS value FROM telemetry.client\nWHERE {condition} AND {_CHOSEN}"
