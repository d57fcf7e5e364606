# ruff: noqa: S608 - constants of this package; Grafana quotes what users choose (:sqlstring).
"""The table of client ids, those that have a problem first, with links to *One client*."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from deploy.dashboards.findings import SEVERITY_COLOURS, of_clients
from deploy.dashboards.metrics import standard, waits
from deploy.dashboards.panels import NOTHING_FOUND, Panel, column, link, link_to_client, rows
from deploy.dashboards.ranges import latest, over_range
from deploy.dashboards.ranked import LAG, LAG_WARNINGS
from deploy.dashboards.sql import (
    BY_CLIENT,
    BY_FLEET,
    Source,
    chosen,
    key_column,
    of_metrics,
    quoted,
    union,
)
from deploy.dashboards.units import unit_of
from receiver.catalogue import Combination, StandardMetric

_LIMIT: Final = 100
_WORST: Final = 10
_CHOSEN: Final = chosen(BY_FLEET | BY_CLIENT)


@dataclass(frozen=True, slots=True)
class Cell:
    """A column of the table."""

    metric: str
    """Its name without ``org.apache.kafka.``."""
    shows: Literal["mean", "counted", "newest", "most", "least"] = "mean"
    """``mean`` over the time that has data (totals: a second), the number ``counted`` in the range,
    the ``newest`` value, the ``most`` or the ``least``."""
    worse: Literal["largest", "smallest"] | None = None
    """Whether the largest or the smallest values are a problem, by which rows are ordered."""


def clients_by_problem(title: str, columns: Mapping[str, Cell]) -> Panel:
    """Build a table with a row for each client id and software.

    Clients with open findings come first, by severity. Then the columns that say what is worse
    decide, in their order. A cell distinguishes "not sent by it" (NaN), no data (empty) and zero.
    """
    metrics = {name: standard(cell.metric) for name, cell in columns.items()}
    clients = Source(view="metric", condition=_CHOSEN, by_series=True)
    by = ["client_id", "client_software_name", "metric"]
    newest = [metrics[name].name for name, cell in columns.items() if cell.shows == "newest"]
    of_range = [metric.name for metric in metrics.values() if metric.name not in newest]
    found = [over_range(by=by, sources=of_metrics(of_range, [clients]), clients=_CHOSEN, rates=True)]
    if newest:
        found.append(latest(by=by, sources=of_metrics(newest, [clients])))
    cells = ",\n  ".join(f"{_value(cell, metrics[name])} AS {name}" for name, cell in columns.items())
    query = (
        "SELECT * FROM (\n"
        f"SELECT client_id, client_software_name, severity, kinds,\n  {cells},\n"
        f"  {key_column('client_id')}, rank\n"
        f"FROM (\n{union(found)}\n) AS found\n"
        f"LEFT JOIN (\n{of_clients()}\n) AS problems USING (client_id)\n"
        "LEFT JOIN telemetry.software USING (client_software_name)\n"
        "GROUP BY client_id, client_software_name, software.client, severity, kinds, rank\n"
        ") AS cells\n"
        f"ORDER BY {', '.join(('rank NULLS LAST', *_order(columns)))}, client_id\nLIMIT {_LIMIT}"
    )
    shown = {
        "client_id": column("Client id", width=220, links=link_to_client()),
        "client_software_name": column("Software", width=180),
        "severity": column("Severity", width=90, colours=SEVERITY_COLOURS),
        "kinds": column("Findings", width=170),
        "rank": column("Rank", hidden=True),
    }
    for name, cell in columns.items():
        unit = "short" if cell.shows == "counted" else unit_of(metrics[name])[0]
        # The heading says what is counted.
        shown[name] = column(
            name.replace("_", " ").capitalize(),
            re.sub(r"^count:\w+/", "count:/", unit),
            warnings=LAG_WARNINGS if cell.metric == LAG else None,
        )
    legend = "\n".join(
        f"- *{name.replace('_', ' ')}*: {_HOW[cell.shows]}. {metrics[name].description}{waits(cell.metric)}"
        for name, cell in columns.items()
    )
    return rows(
        title,
        f"The first {_LIMIT} client ids, each with all its instances: those with open findings first.\n\n"
        f"{legend}",
        query,
        shown,
    )


def worst_ten(title: str, name: str, *, counted: bool = False, with_group: bool = False) -> Panel:
    """Build a table of the ten client ids with the largest values above zero in the range.

    ``with_group``: with their groups.
    """
    metric = standard(name)
    condition = chosen(BY_FLEET)
    clients = Source(view="metric", condition=condition, by_series=True)
    by = ["client_id", "group_id"] if with_group else ["client_id"]
    found = over_range(by=by, sources=of_metrics([metric.name], [clients]), clients=condition)
    value = "sum(added)" if counted else "max(most)"
    query = (
        f"SELECT {', '.join(by)}, {value} AS value,\n  {', '.join(map(key_column, by))}\n"
        f"FROM (\n{found}\n) AS found\nGROUP BY {', '.join(by)} HAVING {value} > 0\n"
        f"ORDER BY value DESC, client_id LIMIT {_WORST}"
    )
    unit = "short" if counted else unit_of(metric)[0]
    return rows(
        title,
        f"`{metric.name}`: {metric.description} {_HOW['counted' if counted else 'most'].capitalize()}.",
        query,
        {
            "client_id": column("Client id", links=link_to_client()),
            **({"group_id": column("Group", links=_TO_GROUP)} if with_group else {}),
            "value": column(
                "Number" if counted else "Largest",
                unit,
                width=130,
                warnings=LAG_WARNINGS if name == LAG else None,
            ),
        },
        width=8,
        height=8,
        nothing=NOTHING_FOUND,
    )


_TO_GROUP: Final = link("group_id", "kct-topics-and-groups", "group")
_HOW: Final = {
    "mean": "the mean over the time in which the client pushed",
    "counted": "the number in this time",
    "newest": "the newest value",
    "most": "the largest value",
    "least": "the smallest value",
}


def _order(columns: Mapping[str, Cell]) -> Sequence[str]:
    # PostgreSQL sorts NaN above every number.
    ways = {"largest": "DESC", "smallest": "ASC"}
    return [
        f"nullif({name}, 'NaN') {ways[cell.worse]} NULLS LAST" for name, cell in columns.items() if cell.worse
    ]


def _value(cell: Cell, metric: StandardMetric) -> str:
    _, factor = unit_of(metric)
    of_metric = f"FILTER (WHERE metric = '{metric.name}')"
    match cell.shows:
        case "counted":
            value = f"max(added) {of_metric}"
        case "most":
            value = f"max(most) {of_metric}"
        case "least":
            value = f"min(least) {of_metric}"
        case "newest":
            column = "newest_most" if metric.combines is Combination.MAX else "newest"
            value = f"max({column}) {of_metric}"
        case "mean" if metric.combines is Combination.SUM:
            value = f"max(rate * {factor!r}) {of_metric}"
        case "mean":
            value = f"max(mean) {of_metric}"
    # A sent value needs no test of whether its software has the metric.
    clients = quoted(sorted(metric.clients))
    return (
        f"coalesce(\n    {value},\n"
        f"    CASE WHEN software.client <> ALL (ARRAY[{clients}]::text[]) THEN 'NaN'::float8 END)"
    )
