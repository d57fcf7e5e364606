"""Panels with a line for each topic or group that has the most of a metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from deploy.dashboards.metrics import not_sent, standard
from deploy.dashboards.panels import Panel, lines
from deploy.dashboards.sql import (
    BY_CLIENT,
    BY_FLEET,
    GRAINS,
    GROUP_GRAINS,
    MANY_GRAINS,
    Source,
    are_all,
    chosen,
    either,
    gauges,
    most_in_hours,
    of_metrics,
    over_time,
    per_second,
    top_series,
    union,
)
from deploy.dashboards.units import unit_of

#: How many topics or groups have a line.
TOP: Final = 10
_OF_ALL: Final = are_all(list(BY_CLIENT))
#: The series of clients with a group.
BY_GROUP: Final = Source(
    view="metric",
    condition=f"group_id IS NOT NULL AND {chosen(BY_FLEET | BY_CLIENT)}",
    # Without a choice every client's series are read.
    grains=either(_OF_ALL, GROUP_GRAINS, either(are_all(["client_id"]), MANY_GRAINS, GRAINS)),
)
LAG: Final = "consumer.fetch.manager.records.lag.max"
#: Records that a partition's reader is behind, and the colours of the lines there.
LAG_WARNINGS: Final[Mapping[float, str]] = {10_000: "orange", 100_000: "red"}


def most_added(
    title: str,
    name: str,
    by: str,
    source: Source,
    description: str,
    *,
    width: int = 12,
    of_member: bool = False,
) -> Panel:
    """Build lines of a total by a dimension, per second or hour, of those with the most.

    ``of_member``: of the client id with the most in each step, and not of all.
    """
    metric = standard(name)
    unit, factor = unit_of(metric)
    source = _narrowed(source, by, metric.name, "sum(sum)")
    series_by = f"ARRAY[{by}, client_id]" if of_member else by
    added = over_time(series=series_by, value="sum(sum)", sources=of_metrics([metric.name], [source]))
    if of_member:
        added = (
            "SELECT time, metric[1] AS metric, max(value) AS value, base\n"
            f"FROM (\n{added}\n) AS members\nGROUP BY time, metric[1], base"
        )
    series = per_second(top_series(added, limit=TOP), factor=factor)
    return _ranked(title, name, unit, series, description, width)


def largest(
    title: str,
    name: str,
    by: str,
    source: Source,
    description: str,
    *,
    width: int = 12,
    warnings: Mapping[float, str] | None = None,
) -> Panel:
    """Build lines of the largest value by a dimension, of those with the largest."""
    metric = standard(name)
    unit, _ = unit_of(metric)
    source = _narrowed(source, by, metric.name, "max(max)")
    extremes = over_time(series=by, value="max(max)", sources=of_metrics([metric.name], [source]))
    series = gauges(top_series(extremes, limit=TOP))
    return _ranked(title, name, unit, series, description, width, warnings)


def _narrowed(source: Source, by: str, metric: str, value: str) -> Source:
    """Read the minutes of those groups alone that may have a line."""
    if by != "group_id":
        return source
    narrowed = most_in_hours(
        by, view=source.view, rows=f"metric = '{metric}'", value=value, condition=source.condition, limit=TOP
    )
    return replace(source, of_minutes=narrowed)


def _ranked(
    title: str,
    name: str,
    unit: str,
    series: str,
    description: str,
    width: int,
    warnings: Mapping[float, str] | None = None,
) -> Panel:
    metric = standard(name)
    query = f"{union([series, not_sent([metric])])}\nORDER BY 1, 2"
    return lines(
        title,
        f"`{metric.name}`: {description} The {TOP} with the most.",
        unit,
        query,
        width=width,
        warnings=warnings,
    )
