# ruff: noqa: S608 - made of this package's own words; what users choose is quoted by Grafana (:sqlstring).
"""Owns the SQL that several panels share: which table, which clients, which part of time.

Only macros and variables that Grafana's PostgreSQL data source and its front end both know are used. Nothing
here says how a result is drawn.

A variable's "All" is the word ``NULL``, so that ``(${client_id:sqlstring}) IS NULL`` is a constant to the
planner, which leaves the unused branches of a query out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Final

__all__ = [
    "BY_CLIENT",
    "BY_FLEET",
    "GRAINS",
    "RANGE_GRAINS",
    "Grain",
    "buckets",
    "chosen",
    "everybody",
    "name_of_software",
    "over_time",
    "per_bucket",
    "per_second",
    "quantiles",
    "quoted",
    "seconds",
    "union",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grain:
    """One of the tables of a roll-up.

    Attributes:
        name: What its views end in.
        seconds: How long a bucket is.
        when: The condition, constant in a query, under which it is the one to read.
    """

    name: str
    seconds: int
    when: str


_MINUTES_KEPT: Final = "$__timeFrom()::timestamptz >= now() - interval '7 days'"
_HOURS_KEPT: Final = "$__timeFrom()::timestamptz >= now() - interval '90 days'"
_RANGE_S: Final = "($__to - $__from) / 1000"

#: For panels over time: what the interval asks for, or coarser where a finer table no longer reaches back to
#: (the roll-up's default retention).
GRAINS: Final = (
    Grain(name="1m", seconds=60, when=f"$__interval_ms < 3600000 AND {_MINUTES_KEPT}"),
    Grain(
        name="1h",
        seconds=3600,
        when=f"($__interval_ms >= 3600000 OR NOT {_MINUTES_KEPT})\n"
        f"  AND $__interval_ms < 86400000 AND {_HOURS_KEPT}",
    ),
    Grain(name="1d", seconds=86400, when=f"($__interval_ms >= 86400000 OR NOT {_HOURS_KEPT})"),
)


def _by_range(minutes_up_to_s: int) -> tuple[Grain, ...]:
    hours_up_to_s = 259200
    return (
        Grain(name="1m", seconds=60, when=f"{_RANGE_S} <= {minutes_up_to_s} AND {_MINUTES_KEPT}"),
        Grain(
            name="1h",
            seconds=3600,
            when=f"({_RANGE_S} > {minutes_up_to_s} OR NOT {_MINUTES_KEPT})\n"
            f"  AND {_RANGE_S} <= {hours_up_to_s} AND {_HOURS_KEPT}",
        ),
        Grain(name="1d", seconds=86400, when=f"({_RANGE_S} > {hours_up_to_s} OR NOT {_HOURS_KEPT})"),
    )


#: For one number or row out of the whole range: as coarse as does, because every client's rows are read.
RANGE_GRAINS: Final = _by_range(3600)
#: For quantiles, which read a row for each value of each bucket.
SPREAD_GRAINS: Final = _by_range(10800)

#: Dimensions that a dashboard's variables choose, by the variable's name.
BY_FLEET: Final = {"cluster": "cluster_id", "software": "client_software_name"}
BY_CLIENT: Final = {"principal": "principal", "group": "group_id", "client_id": "client_id"}

#: What a client calls itself, for a legend.
name_of_software: Final = "coalesce(client_software_name, 'unknown')"


def buckets(grain: Grain) -> str:
    """How many buckets there are from the first to the last of a group's rows, as an aggregate."""
    return f"extract(epoch FROM max(bucket) - min(bucket)) / {grain.seconds} + 1"


def seconds(grain: Grain) -> str:
    """How much time a total of a group's rows is of, as an aggregate.

    Minutes without a push belong to it as well; an hour or day may not be over.
    """
    now = "extract(epoch FROM now())"
    if grain.seconds == 60:
        return f"greatest(60, least($__to / 1000, {now}) - $__from / 1000)"
    end = f"least(extract(epoch FROM max(bucket)) + {grain.seconds}, {now})"
    return f"greatest(60, {end} - extract(epoch FROM min(bucket)))"


def chosen(columns: dict[str, str]) -> str:
    """The condition that rows are of what the variables choose.

    Args:
        columns: The columns by the variables' names.
    """
    return " AND ".join(
        f"((${{{name}:sqlstring}}) IS NULL OR {column} IN (${{{name}:sqlstring}}))"
        for name, column in columns.items()
    )


def everybody(variables: Sequence[str]) -> str:
    """The condition, constant in a query, that none of the variables chooses anything."""
    return "(" + " AND ".join(f"(${{{name}:sqlstring}}) IS NULL" for name in variables) + ")"


def quoted(words: Sequence[str]) -> str:
    """Texts of ours as a list of SQL."""
    return ", ".join("'" + word.replace("'", "''") + "'" for word in words)


def union(branches: Sequence[str]) -> str:
    """The rows of all branches."""
    return "\nUNION ALL\n".join(branches)


def over_time(
    *,
    metrics: Sequence[str],
    series: str,
    value: str,
    sources: Sequence[tuple[str, str]],
    grains: Sequence[Grain] = GRAINS,
) -> str:
    """Rows (time, metric, value, base) of the grain that fits; ``base`` is the length of its buckets.

    Args:
        metrics: Names of the metrics.
        series: The expression that names a series.
        value: The aggregate over a series' rows in one step of time.
        sources: Views without their grain, such as ``fleet``, each with the condition for its rows.
        grains: The tables to choose from.
    """
    return union(
        [
            f"SELECT $__timeGroupAlias(bucket, $__interval, NULL), {series} AS metric, {value} AS value, "
            f"{grain.seconds} AS base\n"
            f"FROM telemetry.{view}_{grain.name}\n"
            f"WHERE {grain.when}\n"
            f"  AND $__timeFilter(bucket) AND metric IN ({quoted(metrics)})\n"
            f"  AND {condition}\n"
            f"GROUP BY 1, 2"
            for view, condition in sources
            for grain in grains
        ]
    )


_END: Final = "least(time + greatest(base, $__interval_ms / 1000), (floor($__to / 1000 / base) + 1) * base"
_BEGIN: Final = "greatest(time, ceil($__from / 1000.0 / base) * base)"


def per_second(rows: str, *, factor: float = 1.0) -> str:
    """Rows (time, metric, value) of sums per second of the step, or of its part in the range and the past."""
    seconds = f"greatest(60, {_END}, extract(epoch FROM now())) - {_BEGIN})"
    scale = "" if factor == 1.0 else f" * {factor!r}"
    return _divided(rows, f"value{scale} / {seconds}")


def per_bucket(rows: str) -> str:
    """Rows (time, metric, value) of the mean over time of what was added up over clients."""
    buckets = (
        f"greatest(1, ({_END}, (floor(extract(epoch FROM now()) / base) + 1) * base) - {_BEGIN}) / base)"
    )
    return _divided(rows, f"value / {buckets}")


def _divided(rows: str, value: str) -> str:
    return f"SELECT time, metric, {value} AS value\nFROM (\n{indent(rows, '  ')}\n) AS step"


def quantiles(*, metric: str, shares: dict[str, float], condition: str) -> str:
    """Rows (time, metric, value) of quantiles over clients, each client counting once a minute.

    Args:
        metric: The metric's name.
        shares: The quantiles by the name of their series.
        condition: Of which rows of the spread.
    """
    observed = union(
        [
            f"SELECT $__timeGroupAlias(bucket, $__interval, NULL), value, sum(observations) AS observations\n"
            f"FROM telemetry.spread_{grain.name}\n"
            f"WHERE {grain.when}\n"
            f"  AND $__timeFilter(bucket) AND metric = '{metric}'\n"
            f"  AND {condition}\n"
            f"GROUP BY 1, 2"
            for grain in SPREAD_GRAINS
        ]
    )
    wanted = ", ".join(f"('{name}', {share})" for name, share in shares.items())
    return (
        "SELECT time, wanted.name AS metric,\n"
        "  min(value) FILTER (WHERE up_to >= wanted.share * total) AS value\n"
        "FROM (\n"
        "  SELECT time, value, sum(observations) OVER (PARTITION BY time ORDER BY value) AS up_to,\n"
        "    sum(observations) OVER (PARTITION BY time) AS total\n"
        f"  FROM (\n{indent(observed, '    ')}\n  ) AS observed\n"
        ") AS ranked\n"
        f"CROSS JOIN (VALUES {wanted}) AS wanted (name, share)\n"
        "GROUP BY 1, 2"
    )
