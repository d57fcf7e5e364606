"""The heatmap of the request latency by broker."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import Final

from deploy.dashboards.metrics import STEP, WAITS, standard
from deploy.dashboards.panels import NO_DATA, Panel, cells
from deploy.dashboards.sql import (
    BY_CLIENT,
    BY_FLEET,
    GRAINS,
    MANY_GRAINS,
    MEAN,
    RANGE_GRAINS,
    Source,
    are_all,
    chosen,
    either,
    gauges,
    of_metrics,
    over_time,
)

#: Until a client knows the brokers, it counts the addresses of `bootstrap.servers` down from -1.
_BROKER: Final = (
    "CASE WHEN metric LIKE '-%' THEN 'bootstrap ' || substr(metric, 2)"
    " ELSE 'broker ' || coalesce(metric, '(unknown)') END"
)
_ROLES: Final = ("producer", "consumer")
#: The series of the chosen clients. Each client has one for each broker that it talks to.
EVERY_BROKER: Final = Source(
    view="metric",
    condition=f"node_id IS NOT NULL AND {chosen(BY_FLEET | BY_CLIENT)}",
    grains=either(
        are_all(list(BY_CLIENT)),
        RANGE_GRAINS,
        either(are_all(["client_id"]), MANY_GRAINS, GRAINS),
    ),
)


def latency_by_broker(title: str, source: Source, roles: Sequence[str] = _ROLES, *, width: int = 12) -> Panel:
    """Build the heatmap of the mean request latency of a source's clients by broker."""
    metrics = [standard(f"{role}.node.request.latency.avg") for role in roles]
    by_node = over_time(
        series="node_id",
        value=MEAN,
        sources=of_metrics([metric.name for metric in metrics], [source]),
    )
    # PostgreSQL makes the text of each group, and not of each row.
    found = f"SELECT time, {_BROKER} AS metric, value, base\nFROM (\n{indent(by_node, '  ')}\n) AS by_node"
    # Without any row the frame has no column of numbers, and Grafana's heatmap fails.
    query = (
        f"WITH drawn AS (\n{indent(gauges(found), '  ')}\n)\nSELECT * FROM drawn\nUNION ALL\n"
        f"SELECT {STEP}, '{NO_DATA}', NULL WHERE NOT EXISTS (SELECT FROM drawn)\nORDER BY 1, 2"
    )
    names = ", ".join(f"`{metric.name}`" for metric in metrics)
    return cells(
        title,
        f"{names}: the mean over clients, by the broker that answered. A red row is a slow broker, a red "
        "column is a time at which all were slow. *bootstrap* is the first connection of a client, to an "
        "address of `bootstrap.servers`." + (f" Of consumers: {WAITS}" if "consumer" in roles else ""),
        "ms",
        query,
        width=width,
    )
