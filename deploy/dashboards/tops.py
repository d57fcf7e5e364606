# ruff: noqa: S608 - constants of this package; Grafana quotes what users choose (:sqlstring).
"""The table of the client ids with the most traffic, with links to *One client*."""

from __future__ import annotations

import re
from typing import Final

from deploy.dashboards.metrics import standard
from deploy.dashboards.panels import Panel, column, link_to_client, rows
from deploy.dashboards.sql import (
    BY_CLIENT,
    BY_FLEET,
    Source,
    chosen,
    key_column,
    of_metrics,
    over_range,
    quoted,
)
from deploy.dashboards.units import unit_of
from receiver.catalogue import Combination, StandardMetric

__all__ = ["top_clients"]

_LIMIT: Final = 100


def top_clients(title: str, columns: dict[str, str]) -> Panel:
    """Build a table with a row for each client id and software, ordered by the first column.

    A cell distinguishes "not sent by it" (NaN), no data (empty) and zero. ``columns`` has the
    metrics, without ``org.apache.kafka.``, by column.
    """
    metrics = {name: standard(metric) for name, metric in columns.items()}
    clients = Source(view="metric", condition=chosen(BY_FLEET | BY_CLIENT))
    found = over_range(
        by=["client_id", "client_software_name", "metric"],
        sources=of_metrics([metric.name for metric in metrics.values()], [clients]),
    )
    cells = ",\n  ".join(f"{_cell(metric)} AS {name}" for name, metric in metrics.items())
    query = (
        "SELECT * FROM (\n"
        f"SELECT client_id, client_software_name,\n  {cells},\n  {key_column('client_id')}\n"
        f"FROM (\n{found}\n) AS found\n"
        "LEFT JOIN telemetry.software USING (client_software_name)\n"
        "GROUP BY client_id, client_software_name, software.client\n"
        ") AS cells\n"
        # PostgreSQL sorts NaN above every number.
        f"ORDER BY nullif({next(iter(columns))}, 'NaN') DESC NULLS LAST\nLIMIT {_LIMIT}"
    )
    shown = {
        "client_id": column("Client id", width=220, links=link_to_client()),
        "client_software_name": column("Software", width=180),
    }
    for name, metric in metrics.items():
        unit, _ = unit_of(metric)
        # The heading says what is counted.
        shown[name] = column(name.replace("_", " ").capitalize(), re.sub(r"^count:\w+/", "count:/", unit))
    legend = "\n".join(
        f"- *{name.replace('_', ' ')}*: {metric.description}" for name, metric in metrics.items()
    )
    return rows(
        title,
        f"The first {_LIMIT} client ids, each with all its instances. Totals are per second.\n\n{legend}",
        query,
        shown,
    )


def _cell(metric: StandardMetric) -> str:
    _, factor = unit_of(metric)
    value = {
        Combination.SUM: f"added * {factor!r} / seconds",
        Combination.MAX: "most",
        Combination.DISTRIBUTION: "added / nullif(points, 0)",
    }.get(metric.combines, "added / buckets")
    # A sent value needs no test of whether its software has the metric.
    clients = quoted(sorted(metric.clients))
    return (
        f"coalesce(\n    max({value}) FILTER (WHERE metric = '{metric.name}'),\n"
        f"    CASE WHEN software.client <> ALL (ARRAY[{clients}]::text[]) THEN 'NaN'::float8 END)"
    )
