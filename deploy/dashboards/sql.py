# ruff: noqa: S608 - made of this package's own words; what users choose is quoted by Grafana (:sqlstring).
"""Owns the SQL that several panels share: which table, which clients, which part of time.

Only macros and variables that Grafana's PostgreSQL data source and its front end both know are used. Nothing
here says how a result is drawn.

A variable's "All" is the word ``NULL``, so that ``(${client_id:sqlstring}) IS NULL`` is a constant to the
planner, which leaves the unused branches of a query out.

Grafana expands macros after it has put variables into a query, inside of quotes too. A client id such as
``$__timeFrom()`` would end its own literal. So no variable has a client's text as its value: values are keys,
the hexadecimal digits of :func:`key`, which :func:`choices` decodes in PostgreSQL. People see the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import indent
from typing import Final

__all__ = [
    "BUCKETS",
    "BY_CLIENT",
    "BY_FLEET",
    "GRAINS",
    "MANY_GRAINS",
    "SEEN",
    "SLOT",
    "TIME",
    "Source",
    "as_they_are",
    "choices",
    "chosen",
    "either",
    "everybody",
    "held",
    "is_chosen",
    "key",
    "key_column",
    "name_of_software",
    "of_metrics",
    "options",
    "over_range",
    "over_time",
    "per_bucket",
    "per_second",
    "quantiles",
    "quoted",
    "union",
    "whole",
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


_WHOLE_UNTIL: Final = "(SELECT whole_until FROM telemetry.progress)"
_MINUTES_KEPT: Final = "$__timeFrom()::timestamptz >= (SELECT minutes_from FROM telemetry.progress)"
_HOURS_KEPT: Final = "$__timeFrom()::timestamptz >= (SELECT hours_from FROM telemetry.progress)"
_RANGE_S: Final = "($__to - $__from) / 1000"
_HOUR_S: Final = 3_600
_DAY_S: Final = 86_400
#: A bucket or step that is not over is shown from so much of it on: two push intervals of five minutes.
_ENOUGH_S: Final = 600


def _by_range(*, minutes_up_to_s: int, hours_up_to_s: int) -> tuple[Grain, ...]:
    return (
        Grain(name="1m", seconds=60, when=f"{_RANGE_S} <= {minutes_up_to_s} AND {_MINUTES_KEPT}"),
        Grain(
            name="1h",
            seconds=_HOUR_S,
            when=f"({_RANGE_S} > {minutes_up_to_s} OR NOT {_MINUTES_KEPT})\n"
            f"  AND {_RANGE_S} <= {hours_up_to_s} AND {_HOURS_KEPT}",
        ),
        Grain(name="1d", seconds=_DAY_S, when=f"({_RANGE_S} > {hours_up_to_s} OR NOT {_HOURS_KEPT})"),
    )


#: For panels over time: minutes up to a day (of 25 hours, when summer time ends), hours up to a month, and
#: coarser ones where the store keeps finer ones no longer.
GRAINS: Final = _by_range(minutes_up_to_s=26 * _HOUR_S, hours_up_to_s=32 * _DAY_S)
#: The same, where many clients' rows are read.
MANY_GRAINS: Final = _by_range(minutes_up_to_s=6 * _HOUR_S, hours_up_to_s=8 * _DAY_S)
#: For one number or row out of the whole range: as coarse as does, because every client's rows are read.
RANGE_GRAINS: Final = _by_range(minutes_up_to_s=_HOUR_S, hours_up_to_s=26 * _HOUR_S)
#: For quantiles, which read a row for each value of each bucket.
SPREAD_GRAINS: Final = _by_range(minutes_up_to_s=3 * _HOUR_S, hours_up_to_s=3 * _DAY_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where rows come from.

    Attributes:
        view: The views without their grain, such as ``fleet``.
        condition: Which of their rows.
        grains: The tables to choose from.
    """

    view: str
    condition: str
    grains: Sequence[Grain] = GRAINS


#: The step of time that a row is in; Grafana's own expression for it is too slow for every row, and so
#: only says what is to be filled with NULL.
SLOT: Final = "date_bin($__interval_ms * interval '1 millisecond', bucket, timestamptz 'epoch') AS slot"
TIME: Final = "$__timeGroupAlias(slot, $__interval, NULL)"

#: How many buckets a step has of which rows are shown: each is a mean over its own minutes already.
BUCKETS: Final = f"greatest(1, floor((seconds + base - least(base, {_ENOUGH_S})) / base))"

#: The condition that a client or finding was there at any time of the range.
SEEN: Final = "last_seen >= $__timeFrom() AND first_seen <= $__timeTo()"

#: Dimensions that a dashboard's variables choose, by the variable's name.
BY_FLEET: Final = {"cluster": "cluster_id", "software": "client_software_name"}
BY_CLIENT: Final = {"principal": "principal", "group": "group_id", "client_id": "client_id"}

#: What a client calls itself, for a legend.
name_of_software: Final = "coalesce(client_software_name, 'unknown')"


def either(condition: str, some: Sequence[Grain], others: Sequence[Grain]) -> tuple[Grain, ...]:
    """Some grains where a condition holds that is constant in a query, else others; from fine to coarse."""
    return tuple(
        replace(one, when=f"CASE WHEN {condition} THEN {one.when}\n  ELSE {other.when} END")
        for one, other in zip(some, others, strict=True)
    )


def whole(grain: Grain) -> str:
    """The condition that a row's bucket is rolled up, or enough of it to make a rate or mean of.

    As a second upper bound of ``bucket`` it would have PostgreSQL expect hardly any rows, and plan for those.
    """
    return f"{_WHOLE_UNTIL} - bucket >= interval '{min(grain.seconds, _ENOUGH_S)} seconds'"


def chosen(columns: dict[str, str]) -> str:
    """The condition that rows are of what the variables choose.

    Args:
        columns: The columns by the variables' names.
    """
    return " AND ".join(
        f"((${{{name}:sqlstring}}) IS NULL OR {column} = ANY ({choices(name)}))"
        for name, column in columns.items()
    )


def key(column: str) -> str:
    """The value of a variable that stands for a text: an array of one element, in hexadecimal digits."""
    return f"encode(convert_to(ARRAY[{column}]::text, 'UTF8'), 'hex')"


def key_column(column: str) -> str:
    """The column that links take a text's key from, see :func:`deploy.dashboards.panels.link`."""
    return f"{key(column)} AS {column}_key"


def choices(variable: str) -> str:
    """The texts that a variable's keys stand for, an array; it has no elements for "All".

    The keys become one array literal of arrays: 2c is a comma. No function in it is volatile, so that the
    planner knows the texts and can use indexes.
    """
    joined = f"array_to_string(ARRAY[${{{variable}:sqlstring}}]::text[], '2c')"
    return f"('{{' || convert_from(decode({joined}, 'hex'), 'UTF8') || '}}')::text[]"


def is_chosen(column: str, variable: str) -> str:
    """The condition that rows are of what a variable of one choice chooses."""
    return f"{column} = ({choices(variable)})[1][1]"


def options(column: str, distinct: str) -> str:
    """The query of a variable: what people see of each option, and its key.

    Args:
        column: The column of the texts.
        distinct: The query that finds each of them once, with its order.
    """
    return (
        f'SELECT {column} AS "__text", {key(column)} AS "__value"\n'
        f"FROM (\n{indent(distinct, '  ')}\n) AS found"
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


def over_time(*, series: str, value: str, sources: Sequence[Source]) -> str:
    """Rows (time, metric, value, base) of the grain that fits; ``base`` is the length of its buckets.

    What they are of is for :func:`per_second`, :func:`per_bucket` or :func:`as_they_are` to say.

    Args:
        series: The expression that names a series.
        value: The aggregate over a series' rows in one step of time.
        sources: Which rows.
    """
    return union(
        [
            f"SELECT {TIME}, metric, value, {grain.seconds} AS base\nFROM (\n"
            f"  SELECT {SLOT}, {series} AS metric, {value} AS value\n"
            f"  FROM telemetry.{source.view}_{grain.name}\n"
            f"  WHERE {grain.when}\n"
            f"    AND $__timeFilter(bucket) AND {whole(grain)}\n"
            f"    AND {source.condition}\n"
            "  GROUP BY 1, 2\n) AS slots"
            for source in sources
            for grain in source.grains
        ]
    )


def over_range(*, by: Sequence[str], sources: Sequence[Source]) -> str:
    """Rows (by..., added, points, least, most, buckets, seconds) out of the whole range.

    ``buckets`` are how many there are from the first to the last of a group's rows, ``seconds`` how much time
    their total is of. PostgreSQL leaves out the columns that a query doesn't ask for.

    Args:
        by: The columns of a group; none for one row of each source.
        sources: Which rows; of which grain, the range alone says.
    """
    grouped = f"\nGROUP BY {', '.join(by)}" if by else ""
    columns = "".join(f"{column}, " for column in by)
    return union(
        [
            f"SELECT {columns}sum(sum) AS added, sum(points) AS points,\n"
            "  min(min) AS least, max(max) AS most,\n"
            f"  extract(epoch FROM max(bucket) - min(bucket)) / {grain.seconds} + 1 AS buckets,\n"
            f"  {_seconds(grain)} AS seconds\n"
            f"FROM telemetry.{source.view}_{grain.name}\n"
            f"WHERE {grain.when} AND $__timeFilter(bucket) AND {whole(grain)}\n"
            f"  AND {source.condition}{grouped}"
            for source in sources
            for grain in RANGE_GRAINS
        ]
    )


def of_metrics(names: Sequence[str], sources: Sequence[Source]) -> tuple[Source, ...]:
    """Sources narrowed to some metrics."""
    return tuple(
        replace(source, condition=f"metric IN ({quoted(names)})\n    AND {source.condition}")
        for source in sources
    )


def per_second(rows: str, *, factor: float = 1.0) -> str:
    """Rows (time, metric, value) of sums per second of the step."""
    scale = "" if factor == 1.0 else f" * {factor!r}"
    return held(rows, f"value{scale} / seconds")


def per_bucket(rows: str) -> str:
    """Rows (time, metric, value) of the mean over time of what was added up over clients."""
    return held(rows, f"value / {BUCKETS}")


def as_they_are(rows: str) -> str:
    """Rows (time, metric, value) of values that are no totals."""
    return held(rows, "value")


def held(rows: str, value: str) -> str:
    """Rows (time, metric, value), for each step of a bucket that is longer than a step.

    ``seconds`` is the part of the step that is in the range and rolled up; a step with too little of it would
    show a rate by chance, as one client pushes only now and then, and is left out.

    Args:
        rows: What :func:`over_time` gives, and columns that ``value`` needs besides.
        value: The expression of the value, of columns of ``rows`` and ``seconds``.
    """
    step = "greatest(base, $__interval_ms / 1000)"
    end = (
        f"least(time + {step}, (floor($__to / 1000 / base) + 1) * base,\n"
        f"    extract(epoch FROM {_WHOLE_UNTIL}))"
    )
    begin = "greatest(time, ceil($__from / 1000.0 / base) * base)"
    return (
        f"SELECT time + ahead AS time, metric, {value} AS value\n"
        f"FROM (\n  SELECT *, {end} - {begin} AS seconds\n"
        f"  FROM (\n{indent(rows, '    ')}\n  ) AS rows_of_steps\n) AS steps\n"
        "CROSS JOIN LATERAL generate_series(0, base - 1, greatest(1, $__interval_ms / 1000)) AS ahead\n"
        f"WHERE seconds >= least({step}, {_ENOUGH_S}, {_RANGE_S} / 3) AND ahead < seconds"
    )


def quantiles(*, metric: str, shares: dict[str, float], condition: str) -> str:
    """Rows (time, metric, value) of quantiles over clients, each client counting once a minute.

    Args:
        metric: The metric's name.
        shares: The quantiles by the name of their series.
        condition: Of which rows of the spread.
    """
    observed = union(
        [
            f"SELECT {TIME}, value, observations, {grain.seconds} AS base\nFROM (\n"
            f"  SELECT {SLOT}, value, sum(observations) AS observations\n"
            f"  FROM telemetry.spread_{grain.name}\n"
            f"  WHERE {grain.when}\n"
            f"    AND $__timeFilter(bucket) AND {whole(grain)} AND metric = '{metric}'\n"
            f"    AND {condition}\n"
            "  GROUP BY 1, 2\n) AS slots"
            for grain in SPREAD_GRAINS
        ]
    )
    wanted = ", ".join(f"('{name}', {share})" for name, share in shares.items())
    return as_they_are(
        "SELECT time, wanted.name AS metric, base,\n"
        "  min(value) FILTER (WHERE up_to >= wanted.share * total) AS value\n"
        "FROM (\n"
        "  SELECT time, base, value, sum(observations) OVER (PARTITION BY time ORDER BY value) AS up_to,\n"
        "    sum(observations) OVER (PARTITION BY time) AS total\n"
        f"  FROM (\n{indent(observed, '    ')}\n  ) AS observed\n"
        ") AS ranked\n"
        f"CROSS JOIN (VALUES {wanted}) AS wanted (name, share)\n"
        "GROUP BY 1, 2, 3"
    )


def _seconds(grain: Grain) -> str:
    # Minutes without a push belong to it as well; an hour or day may not be over.
    now = f"extract(epoch FROM {_WHOLE_UNTIL})"
    if grain.seconds == 60:
        return f"greatest(60, least($__to / 1000, {now}) - $__from / 1000)"
    end = f"least(extract(epoch FROM max(bucket)) + {grain.seconds}, {now})"
    return f"greatest(60, {end} - extract(epoch FROM min(bucket)))"
