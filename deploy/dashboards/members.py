# ruff: noqa: S608 - constants of this package; Grafana quotes what users choose (:sqlstring).
"""The timeline of the rebalances of each member."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from deploy.dashboards.metrics import standard
from deploy.dashboards.panels import Panel, states
from deploy.dashboards.sql import (
    BY_CLIENT,
    BY_FLEET,
    GROUP_GRAINS,
    MANY_GRAINS,
    Source,
    as_they_are,
    chosen,
    everybody,
    of_metrics,
    over_time,
    union,
)

__all__ = ["MEMBERS", "REBALANCED", "REBALANCE_COLOURS", "rebalances_of_members"]

#: How many members have a row.
MEMBERS: Final = 12
#: Rebalances of a member in a step, and the colours from there on.
REBALANCE_COLOURS: Final[Mapping[float, str]] = {1: "yellow", 3: "red"}
REBALANCED: Final = (
    "Green: none. Yellow: one or two, as in a restart. Red: three or more. The row that turns red first "
    "is the member to look at. Java clients alone count rebalances."
)
_METRIC: Final = standard("consumer.coordinator.rebalance.total")
_OF_ALL: Final = everybody(list(BY_CLIENT))
_CHOSEN: Final = chosen(BY_FLEET | BY_CLIENT)
#: Without a choice: client ids, because the rows of all instances are too many.
_CLIENT_IDS: Final = Source(
    view="metric", condition=f"group_id IS NOT NULL AND {_OF_ALL} AND {_CHOSEN}", grains=GROUP_GRAINS
)
_MINUTES, _HOURS, _ = MANY_GRAINS
#: Instances have no daily table.
_INSTANCES: Final = Source(
    view="client",
    condition=f"rebalances IS NOT NULL AND group_id IS NOT NULL AND NOT {_OF_ALL} AND {_CHOSEN}",
    grains=(_MINUTES, replace(_HOURS, when=f"NOT ({_MINUTES.when})")),
)


def rebalances_of_members(title: str, *, width: int = 12) -> Panel:
    """Build the timeline of the rebalances of the members with the most of them."""
    found = union(
        [
            as_they_are(
                over_time(
                    series="coalesce(client_id, '(none)')",
                    value="sum(sum)",
                    sources=of_metrics([_METRIC.name], [_CLIENT_IDS]),
                )
            ),
            as_they_are(
                over_time(
                    series="coalesce(client_id, '(none)') || ' ' || left(client_instance_id, 8)",
                    value="sum(rebalances)",
                    sources=[_INSTANCES],
                )
            ),
        ]
    )
    query = (
        f"WITH series AS (\n{found}\n)\nSELECT time, metric, value FROM series\n"
        "WHERE metric IN (\n"
        f"  SELECT metric FROM series GROUP BY 1 ORDER BY sum(value) DESC, 1 LIMIT {MEMBERS})\n"
        "ORDER BY 1, 2"
    )
    return states(
        title,
        f"`{_METRIC.name}`: rebalances in each step, of the {MEMBERS} members with the most; of client ids "
        "as long as no principal, group or client id is chosen. In longer ranges a step is an hour or a "
        f"day. {REBALANCED}",
        query,
        REBALANCE_COLOURS,
        width=width,
    )
