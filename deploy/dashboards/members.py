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
    DAY_S,
    GROUP_GRAINS,
    MANY_GRAINS,
    RANGE_S,
    Source,
    are_all,
    chosen,
    either,
    gauges,
    most_in_hours,
    of_metrics,
    over_time,
    top_series,
    union,
)

#: How many members have a row.
MEMBERS: Final = 12
#: Rebalances of a member in a step, and the colours from there on.
REBALANCE_COLOURS: Final[Mapping[float, str]] = {1: "yellow", 3: "red"}
REBALANCED: Final = (
    "Green: none. Yellow: one or two, as in a restart. Red: three or more. The row that turns red first "
    "is the member to look at. Java clients alone count rebalances."
)
#: Each member counts its group's rebalances, so their sum counts each many times.
OF_MEMBER: Final = "Of the client id with the most, because each member counts its group's rebalances."
_METRIC: Final = standard("consumer.coordinator.rebalance.total")
_CHOSEN: Final = chosen(BY_FLEET | BY_CLIENT)
_MINUTES, _HOURS, _ = MANY_GRAINS
#: Instances have no daily table, and the hours of a longer range are too many.
_INSTANCES_UP_TO_S: Final = 2 * DAY_S
_OF_CLIENT_IDS: Final = f"({are_all(list(BY_CLIENT))} OR {RANGE_S} > {_INSTANCES_UP_TO_S})"
_IN_GROUPS: Final = f"group_id IS NOT NULL AND {_CHOSEN}"
#: Without a choice: client ids, because the rows of all instances are too many.
_CLIENT_IDS: Final = Source(
    view="metric",
    condition=f"{_IN_GROUPS} AND {_OF_CLIENT_IDS}",
    grains=either(are_all(list(BY_CLIENT)), GROUP_GRAINS, MANY_GRAINS),
    of_minutes=most_in_hours(
        "client_id",
        view="metric",
        rows=f"metric = '{_METRIC.name}'",
        value="sum(sum)",
        condition=_IN_GROUPS,
        limit=MEMBERS,
    ),
)
_INSTANCES: Final = Source(
    view="client",
    condition=f"rebalances IS NOT NULL AND {_IN_GROUPS} AND NOT {_OF_CLIENT_IDS}",
    grains=(_MINUTES, replace(_HOURS, when=f"NOT ({_MINUTES.when})")),
    of_minutes=most_in_hours(
        "client_instance_id",
        view="client",
        rows="rebalances IS NOT NULL",
        value="sum(rebalances)",
        condition=_IN_GROUPS,
        limit=MEMBERS,
    ),
)


def rebalances_of_members(title: str, *, width: int = 12) -> Panel:
    """Build the timeline of the rebalances of the members with the most of them."""
    found = union(
        [
            over_time(
                series="coalesce(client_id, '(none)')",
                value="sum(sum)",
                sources=of_metrics([_METRIC.name], [_CLIENT_IDS]),
            ),
            over_time(
                series="coalesce(client_id, '(none)') || ' ' || left(client_instance_id, 8)",
                value="sum(rebalances)",
                sources=[_INSTANCES],
            ),
        ]
    )
    query = f"{gauges(top_series(found, limit=MEMBERS))}\nORDER BY 1, 2"
    return states(
        title,
        f"`{_METRIC.name}`: rebalances in each step, of the {MEMBERS} members with the most; of client ids "
        "as long as no principal, group or client id is chosen, and in more than two days. In longer "
        f"ranges a step is an hour or a day. {REBALANCED}",
        query,
        REBALANCE_COLOURS,
        width=width,
    )
