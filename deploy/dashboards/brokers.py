"""The heatmap of the request latency by broker."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import Final

from deploy.dashboards.metrics import standard
from deploy.dashboards.panels import Panel, cells
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
    found = (
        "SELECT time, 'broker ' || coalesce(metric, '(unknown)') AS metric, value, base\n"
        f"FROM (\n{indent(by_node, '  ')}\n) AS by_node"
    )
    names = ", ".join(f"`{metric.name}`" for metric in metrics)
    return cells(
        title,
        f"{names}: the mean over clients, by the broker that answered. A dark row is a slow broker, a dark "
        "column is a time at which all were slow.",
        "ms",
        f"{gauges(found)}\nORDER BY 1, 2",
        width=width,
    )
