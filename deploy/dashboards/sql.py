# ruff: noqa: S608 - constants of this package; Grafana quotes what users choose (:sqlstring).
"""SQL that several panels share: the table, the clients and the time to read.

It uses only macros and variables that Grafana's PostgreSQL data source and front end both expand.
It does not decide how a result is drawn.

A variable's "All" is the word ``NULL``. ``(${client_id:sqlstring}) IS NULL`` is then a constant,
and the planner removes the unused branches of a query.

Grafana expands macros after variables, even inside quotes. A client id such as ``$__timeFrom()``
would end its own literal. So no variable has a client's text as its value. Values are keys, the
hexadecimal digits of :func:`key`, which :func:`choices` decodes in PostgreSQL. Users see the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import indent
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Grain:
    """One of the tables of a roll-up, with buckets of some seconds."""

    #: The end of its views' names.
    name: str
    seconds: int
    #: The condition, constant in a query, that selects this table.
    when: str


#: The columns of ``progress`` that say how far the rows of each grain are computed. Those of hours
#: and days may be some minutes older.
_UNTIL_COLUMNS: Final = {"1m": "whole_until", "1h": "hours_until", "1d": "days_until"}
_UNTIL: Final = {
    grain: f"(SELECT {column} FROM telemetry.progress)" for grain, column in _UNTIL_COLUMNS.items()
}
#: The same of a row, by its column ``base``.
_UNTIL_OF_BASE: Final = (
    f"extract(epoch FROM CASE base WHEN 60 THEN {_UNTIL['1m']}\n"
    f"      WHEN 3600 THEN {_UNTIL['1h']} ELSE {_UNTIL['1d']} END)"
)
_MINUTES_KEPT: Final = "$__timeFrom()::timestamptz >= (SELECT minutes_from FROM telemetry.progress)"
_HOURS_KEPT: Final = "$__timeFrom()::timestamptz >= (SELECT hours_from FROM telemetry.progress)"
#: The length of the range.
RANGE_S: Final = "($__to - $__from) / 1000"
HOUR_S: Final = 3_600
DAY_S: Final = 86_400
#: The longest window of a packed row.
WINDOWS_S: Final = {"1m": HOUR_S, "1h": DAY_S, "1d": 31 * DAY_S}
#: An unfinished bucket or step is shown after this time: two push intervals of five minutes.
_ENOUGH_S: Final = 600


def _by_range(*, minutes_up_to_s: int, hours_up_to_s: int) -> tuple[Grain, ...]:
    return (
        Grain(name="1m", seconds=60, when=f"{RANGE_S} <= {minutes_up_to_s} AND {_MINUTES_KEPT}"),
        Grain(
            name="1h",
            seconds=HOUR_S,
            when=f"({RANGE_S} > {minutes_up_to_s} OR NOT {_MINUTES_KEPT})\n"
            f"  AND {RANGE_S} <= {hours_up_to_s} AND {_HOURS_KEPT}",
        ),
        Grain(name="1d", seconds=DAY_S, when=f"({RANGE_S} > {hours_up_to_s} OR NOT {_HOURS_KEPT})"),
    )


#: For panels over time: minutes up to a day (25 hours when summer time ends), hours up to a month,
#: and coarser tables where the finer ones have expired.
GRAINS: Final = _by_range(minutes_up_to_s=26 * HOUR_S, hours_up_to_s=32 * DAY_S)
#: The same, for queries that read the rows of many clients.
MANY_GRAINS: Final = _by_range(minutes_up_to_s=6 * HOUR_S, hours_up_to_s=8 * DAY_S)
#: For one number or row of the whole range: coarse, because the query reads every client's rows.
RANGE_GRAINS: Final = _by_range(minutes_up_to_s=HOUR_S, hours_up_to_s=26 * HOUR_S)
#: For quantiles, which read a row for each value of each bucket; of minutes that are not packed,
#: one for each load.
SPREAD_GRAINS: Final = _by_range(minutes_up_to_s=HOUR_S, hours_up_to_s=3 * DAY_S)


#: For the mean and the extreme beside quantiles.
BESIDE_SPREAD_GRAINS: Final = _by_range(minutes_up_to_s=2 * HOUR_S, hours_up_to_s=32 * DAY_S)
#: For the series of all members of all groups.
GROUP_GRAINS: Final = _by_range(minutes_up_to_s=2 * HOUR_S, hours_up_to_s=2 * DAY_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The views that a query reads, and the condition on their rows."""

    #: The name without the grain, such as ``fleet``.
    view: str
    condition: str
    grains: Sequence[Grain] = GRAINS
    #: A further condition on minutes, of which there are many; empty: none.
    of_minutes: str = ""
    #: Add up the rows of each series before those of a group, for totals of many series in
    #: :func:`deploy.dashboards.ranges.over_range`. Only for ``metric`` and ``topic``.
    by_series: bool = False


#: The step of time that a row belongs to. Grafana's own expression is too slow for every row, so it
#: only fills gaps with NULL.
SLOT: Final = "date_bin($__interval_ms * interval '1 millisecond', bucket, timestamptz 'epoch') AS slot"
TIME: Final = "$__timeGroupAlias(slot, $__interval, NULL)"

#: The number of shown buckets in a step; each is already a mean over its own minutes.
BUCKETS: Final = f"greatest(1, floor((seconds + base - least(base, {_ENOUGH_S})) / base))"

#: The condition that a client or finding existed in the range.
SEEN: Final = "last_seen >= $__timeFrom() AND first_seen <= $__timeTo()"

#: Dimensions that a dashboard's variables choose, by the variable's name.
BY_FLEET: Final = {"cluster": "cluster_id", "software": "client_software_name"}
BY_CLIENT: Final = {"principal": "principal", "group": "group_id", "client_id": "client_id"}


def points_with(column: str) -> str:
    """Return the number of points of rows in which a column has a value."""
    return f"sum(points) FILTER (WHERE {column} IS NOT NULL)"


#: The mean of a view's rows, without those of histograms that have no sum.
MEAN: Final = f"sum(sum) / nullif({points_with('sum')}, 0)"
#: The client's software name, for a legend.
name_of_software: Final = "coalesce(client_software_name, 'unknown')"


def either(condition: str, some: Sequence[Grain], others: Sequence[Grain]) -> tuple[Grain, ...]:
    """Return grains that depend on a condition that is constant in a query, from fine to coarse."""
    return tuple(
        replace(column, when=f"CASE WHEN {condition} THEN {column.when}\n  ELSE {other.when} END")
        for column, other in zip(some, others, strict=True)
    )


def in_range(name: str, *, before_s: int = 0, table: str = "") -> str:
    """Return the condition that a bucket is in the range.

    It bounds ``since`` as well, by constants, because PostgreSQL finds packed rows by it. A packed
    row begins up to the length of its window before its buckets.

    Args:
        name: The grain.
        before_s: Include buckets that begin so long before the range, in seconds.
        table: The name of the view's rows, with a dot.
    """
    begins = (
        "$__timeFilter({})"
        if before_s == 0
        else (f"{{0}} > $__timeFrom()::timestamptz - interval '{before_s} seconds' AND {{0}} <= $__timeTo()")
    )
    return (
        f"{begins.format(f'{table}bucket')}\n"
        f"  AND {table}since >= to_timestamp($__from / 1000 - {before_s + WINDOWS_S[name]})"
        f" AND {table}since <= to_timestamp($__to / 1000)"
    )


def whole(grain: Grain) -> str:
    """Return the condition that enough of a row's bucket is rolled up for a rate or mean.

    It is no second upper bound of ``bucket``, because PostgreSQL would then plan for hardly any
    rows. A subtraction from the ``bucket`` of each row would cost more.
    """
    enough = f"interval '{min(grain.seconds, _ENOUGH_S)} seconds'"
    return (
        f"timestamptz_cmp(bucket, (SELECT {_UNTIL_COLUMNS[grain.name]} - {enough} FROM telemetry.progress))"
        " <= 0"
    )


def chosen(columns: dict[str, str]) -> str:
    """Return the condition that the variables select a row; ``columns`` are by variable."""
    return " AND ".join(
        f"((${{{name}:sqlstring}}) IS NULL OR {column} = ANY ({choices(name)}))"
        for name, column in columns.items()
    )


def key(column: str) -> str:
    """Return the key of a text: an array with it as the only element, in hexadecimal digits.

    Always in quotation marks, as the links of alerts write it, whose templates know no array.
    """
    escaped = f"replace(replace({column}, '\\', '\\\\'), '\"', '\\\"')"
    array = f"coalesce('{{\"' || {escaped} || '\"}}', '{{NULL}}')"
    return f"encode(convert_to({array}, 'UTF8'), 'hex')"


def key_column(column: str) -> str:
    """Return the column with a text's key for links, see :func:`deploy.dashboards.panels.link`."""
    return f"{key(column)} AS {column}_key"


def choices(variable: str) -> str:
    """Return the array of the texts of a variable's keys; it is empty for "All".

    The keys become one array literal of arrays; 2c is a comma. No function in it is volatile, so
    the planner knows the texts. Without ``COLLATE`` they have the collation of the encoding's name,
    in which no index is sorted.
    """
    joined = f"array_to_string(ARRAY[${{{variable}:sqlstring}}]::text[], '2c')"
    return f"('{{' || convert_from(decode({joined}, 'hex'), 'UTF8') COLLATE \"default\" || '}}')::text[]"


def is_chosen(column: str, variable: str) -> str:
    """Return the condition that a variable with one value selects a row.

    The value may be the key of a missing text, of clients without a client id.
    """
    text = text_of(variable)
    return f"({column} = {text} OR {column} IS NULL AND {text} IS NULL)"


def text_of(variable: str) -> str:
    """Return the text of a variable with one value; NULL for the key of a missing text."""
    return f"({choices(variable)})[1][1]"


def options(column: str, distinct: str) -> str:
    """Return the query of a variable: the text and the key of each option.

    The query ``distinct`` returns each text once, in order.
    """
    return (
        f'SELECT coalesce({column}, \'(none)\') AS "__text", {key(column)} AS "__value"\n'
        f"FROM (\n{indent(distinct, '  ')}\n) AS found"
    )


def are_all(variables: Sequence[str]) -> str:
    """Return the condition, constant in a query, that all of the variables are "All"."""
    return "(" + " AND ".join(f"(${{{name}:sqlstring}}) IS NULL" for name in variables) + ")"


def quoted(words: Sequence[str]) -> str:
    """Return constants of this package as a list of SQL literals."""
    return ", ".join("'" + word.replace("'", "''") + "'" for word in words)


def most_in_hours(dimension: str, *, view: str, rows: str, value: str, condition: str, limit: int) -> str:
    """Return the condition that a row is one of those that have the most in the hours of the range.

    The hours have a tenth of the rows of minutes, or less. What they lack until they are computed
    comes last, by the labels of clients.

    Args:
        rows: The condition on the rows of hours.
        value: Aggregates them.
        condition: A further condition on the rows, and on clients.
    """
    hours = (
        f"SELECT {dimension} AS name, {value} AS value FROM telemetry.{view}_1h\n"
        f"WHERE {in_range('1h', before_s=HOUR_S)} AND {rows} AND {condition} GROUP BY 1"
    )
    known = f"SELECT {dimension}, NULL::float8 FROM telemetry.client WHERE {SEEN} AND {condition} GROUP BY 1"
    return (
        f"{dimension} = ANY (ARRAY(\n  SELECT name FROM (\n{indent(union([hours, known]), '    ')}\n"
        f"  ) AS candidates GROUP BY 1 ORDER BY max(value) DESC NULLS LAST, 1 LIMIT {limit}))"
    )


def union(branches: Sequence[str]) -> str:
    """Return the query of the rows of all branches."""
    return "\nUNION ALL\n".join(branches)


def over_time(*, series: str, value: str, sources: Sequence[Source]) -> str:
    """Return a query of rows (time, metric, value, base) of the grain that fits the range.

    ``series`` names a series, and ``value`` aggregates its rows in one step of time. ``base`` is
    the length of a bucket. Apply :func:`per_second`, :func:`per_bucket` or :func:`gauges` to
    the result.
    """
    return union(
        [
            f"SELECT {TIME}, metric, value, {grain.seconds} AS base\nFROM (\n"
            f"  SELECT {SLOT}, {series} AS metric, {value} AS value\n"
            f"  FROM telemetry.{source.view}_{grain.name}\n"
            f"  WHERE {grain.when}\n"
            f"    AND {in_range(grain.name)} AND {whole(grain)}\n"
            f"    AND {source.condition}\n"
            + (f"    AND {source.of_minutes}\n" if source.of_minutes and grain.seconds < HOUR_S else "")
            + "  GROUP BY 1, 2\n) AS slots"
            for source in sources
            for grain in source.grains
        ]
    )


def top_series(rows: str, *, limit: int) -> str:
    """Return a query of those rows of :func:`over_time` whose series add up to the most.

    Apply it before :func:`per_step`, which repeats the rows of days for each step.
    """
    return (
        f"WITH found AS (\n{indent(rows, '  ')}\n)\nSELECT * FROM found\n"
        "WHERE metric IN (\n"
        f"  SELECT metric FROM found GROUP BY 1 ORDER BY sum(value) DESC NULLS LAST, 1 LIMIT {limit})"
    )


def of_metrics(names: Sequence[str], sources: Sequence[Source]) -> tuple[Source, ...]:
    """Return the sources, narrowed to some metrics."""
    return tuple(
        replace(source, condition=f"metric IN ({quoted(names)})\n    AND {source.condition}")
        for source in sources
    )


def per_second(rows: str, *, factor: float = 1.0) -> str:
    """Return a query of rows (time, metric, value): sums per second of the step."""
    scale = "" if factor == 1.0 else f" * {factor!r}"
    return per_step(rows, f"value{scale} / seconds")


def per_bucket(rows: str) -> str:
    """Return a query of rows (time, metric, value): means over time of sums over clients."""
    return per_step(rows, f"value / {BUCKETS}")


def gauges(rows: str) -> str:
    """Return a query of rows (time, metric, value): values that are not totals."""
    return per_step(rows, "value")


def per_step(rows: str, value: str) -> str:
    """Return a query of rows (time, metric, value), repeated for each step within a longer bucket.

    ``value`` uses columns of the rows, which are those of :func:`over_time` or more, and
    ``seconds``: the part of a step that is in the range and rolled up. A step with a small part is
    left out, because clients push rarely and the rate of a short time is random.
    """
    step = "greatest(base, $__interval_ms / 1000)"
    end = f"least(time + {step}, (floor($__to / 1000 / base) + 1) * base,\n    {_UNTIL_OF_BASE})"
    begin = "greatest(time, ceil($__from / 1000.0 / base) * base)"
    return (
        f"SELECT time + ahead AS time, metric, {value} AS value\n"
        f"FROM (\n  SELECT *, {end} - {begin} AS seconds\n"
        f"  FROM (\n{indent(rows, '    ')}\n  ) AS rows_of_steps\n) AS steps\n"
        "CROSS JOIN LATERAL generate_series(0, base - 1, greatest(1, $__interval_ms / 1000)) AS ahead\n"
        f"WHERE seconds >= least({step}, {_ENOUGH_S}, {RANGE_S} / 3) AND ahead < seconds"
    )


def quantiles(*, metric: str, shares: dict[str, float], condition: str) -> str:
    """Return a query of rows (time, metric, value): quantiles over clients, once a minute each.

    The quantiles are by the name of their series. The condition is on rows of the spread and of the
    fleet. A value is the middle of a bucket of the spread, so it is kept within the step's least
    and largest value.
    """
    observed = union(
        [
            f"SELECT {TIME}, value, observations, {grain.seconds} AS base\nFROM (\n"
            f"  SELECT {SLOT}, value, sum(observations) AS observations\n"
            f"  FROM telemetry.spread_{grain.name}\n"
            f"  WHERE {grain.when}\n"
            f"    AND {in_range(grain.name)} AND {whole(grain)} AND metric = '{metric}'\n"
            f"    AND {condition}\n"
            "  GROUP BY 1, 2\n) AS slots"
            for grain in SPREAD_GRAINS
        ]
    )
    extremes = union(
        [
            f"SELECT {TIME}, least, most\nFROM (\n"
            f"  SELECT {SLOT}, min(min) AS least, max(max) AS most\n"
            f"  FROM telemetry.fleet_{grain.name}\n"
            f"  WHERE {grain.when}\n"
            f"    AND {in_range(grain.name)} AND {whole(grain)} AND metric = '{metric}'\n"
            f"    AND {condition}\n"
            "  GROUP BY 1\n) AS slots"
            for grain in SPREAD_GRAINS
        ]
    )
    wanted = ", ".join(f"('{name}', {share})" for name, share in shares.items())
    return gauges(
        "SELECT time, metric, base, greatest(least, least(most, value)) AS value\n"
        "FROM (\n"
        "  SELECT time, wanted.name AS metric, base,\n"
        "    min(value) FILTER (WHERE up_to >= wanted.share * total) AS value\n"
        "  FROM (\n"
        "    SELECT time, base, value, sum(observations) OVER (PARTITION BY time ORDER BY value) AS up_to,\n"
        "      sum(observations) OVER (PARTITION BY time) AS total\n"
        f"    FROM (\n{indent(observed, '      ')}\n    ) AS observed\n"
        "  ) AS ranked\n"
        f"  CROSS JOIN (VALUES {wanted}) AS wanted (name, share)\n"
        "  GROUP BY 1, 2, 3\n"
        ") AS middles\n"
        f"JOIN (\n{indent(extremes, '  ')}\n) AS extremes USING (time)"
    )
