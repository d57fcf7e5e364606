# ruff: noqa: S608 - constants of this package; Grafana quotes what users choose (:sqlstring).
"""SQL of the values of a whole range: sums, extremes, newest values and rates.

**Range.** It has whole minutes only. Up to an hour, minutes are read. A longer range has the
minutes before its first whole hour, the hours, and the minutes after the newest computed one. More
than a day has whole days in place of most hours. So nothing is missing and nothing counts twice.

**Rate.** A rate is what was counted, divided by the time in which it was counted:

    rate = sum over clients (added * alive / pushed) / time

- *Clients* are those with data of the metric. Others don't matter.
- *added* is what a client's pushes in the range added.
- *alive* is the client's time in the range: from one push interval before its first push to its
  last push. A client that is due to push again is alive to the end of the range.
- *pushed* is the time that its pushes cover: the sum of their push intervals. It differs from
  *alive* by less than one interval at each end of the range that the client's life crosses. The
  quotient corrects that. A larger difference is a gap: then *alive* is *pushed*, because nobody
  knows what was done in the gap.
- *time* is the time in which any of these clients was there, but not more than the sum of *alive*.
  So a dead client counts for the part of the time in which it lived, and a young one alone is not
  diluted.

If more than :data:`FEW` instances are chosen, alive / pushed is left out, because the differences
cancel out, and the pushes of each instance would have to be read. *time* is then from the first
begin to the last end. A range of more than six hours then begins with its first whole hour, and
one of more than eight days with its first whole day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Final

from deploy.dashboards.sql import (
    DAY_S,
    HOUR_S,
    RANGE_S,
    SEEN,
    WINDOWS_S,
    Source,
    in_range,
    points_with,
    union,
)

#: Up to so many instances, each one's pushes decide.
FEW: Final = 1000
#: The longest ranges of minutes, and of hours.
_SHORT_S: Final = HOUR_S
_LONG_S: Final = 26 * HOUR_S
#: The longest ranges of many instances for which the minutes before the first whole hour are read,
#: and the hours before the first whole day.
_MINUTES_HEAD_S: Final = 6 * HOUR_S
_HOURS_HEAD_S: Final = 8 * DAY_S
#: A client whose last push is older than so many intervals is not due to push again.
_DUE: Final = 1.5
#: How far to look for the newest value: three push intervals of five minutes, or the last hour.
_NEWEST_S: Final = {"1m": 900, "1h": 2 * HOUR_S}
#: The condition on ``metric_series`` that a view's name stands for.
_OF_SERIES: Final = {"metric": "NOT breakdown", "topic": "topic IS NOT NULL"}


def _first(seconds: int) -> str:
    """Return the begin of the first whole bucket of the range, an epoch that is constant."""
    return f"ceil($__from / {seconds * 1000}.0) * {seconds}"


def _of_span(column: str) -> str:
    """Return a scalar of the row of :func:`_span`, which is constant in a query."""
    return f"(SELECT {column} FROM span)"


#: Whether the few chosen instances decide; only within :func:`over_range`.
IS_FEW: Final = _of_span("is_few")
_FEWEST: Final = f"{RANGE_S} <= {_SHORT_S}"
_LONGEST: Final = f"{RANGE_S} > {_LONG_S}"


def _span(condition: str) -> str:
    """Return a query of one row: how far each grain is read, and whether few instances are chosen.

    Where finer rows have expired, the ends are rounded up.
    """
    few = (
        f"SELECT count(*) <= {FEW} AS is_few FROM (\n"
        f"    SELECT FROM telemetry.client WHERE {SEEN} AND {condition} LIMIT {FEW + 1}) AS chosen_instances"
    )
    return (
        "SELECT *,\n"
        f"  CASE WHEN minutes_first THEN {_first(60)} WHEN hours_first THEN {_first(HOUR_S)}\n"
        f"    ELSE {_first(DAY_S)} END AS range_begins,\n"
        "  CASE WHEN minutes_last THEN minutes_end WHEN hours_last THEN hours_end ELSE days_end END\n"
        "    AS range_ends,\n"
        f"  {_LONGEST} OR NOT hours_first AS has_days\n"
        "FROM (\n  SELECT *, CASE WHEN hours_last\n"
        f"      THEN greatest({_first(DAY_S)}, floor(least(hours_end, days) / {DAY_S}) * {DAY_S})\n"
        f"      ELSE ceil(minutes_end / {DAY_S}) * {DAY_S} END AS days_end\n"
        f"  FROM (\n    SELECT *, greatest({_first(HOUR_S)}, CASE WHEN minutes_end >= hours THEN hours\n"
        f"        WHEN minutes_last THEN floor(minutes_end / {HOUR_S}) * {HOUR_S}\n"
        f"        ELSE ceil(minutes_end / {HOUR_S}) * {HOUR_S} END) AS hours_end\n"
        "    FROM (\n      SELECT is_few, $__timeFrom()::timestamptz >= minutes_from\n"
        f"          AND (is_few OR {RANGE_S} <= {_MINUTES_HEAD_S}) AS minutes_first,\n"
        "        $__timeFrom()::timestamptz >= hours_from\n"
        f"          AND (is_few OR {RANGE_S} <= {_HOURS_HEAD_S}) AS hours_first,\n"
        "        $__timeTo()::timestamptz >= minutes_from AS minutes_last,\n"
        "        $__timeTo()::timestamptz >= hours_from AS hours_last,\n"
        f"        least((floor($__to / 60000.0) + 1) * 60, {_minute_of('whole_until')}) AS minutes_end,\n"
        f"        {_minute_of('hours_until')} AS hours, {_minute_of('days_until')} AS days\n"
        f"      FROM telemetry.progress CROSS JOIN ({few}) AS size OFFSET 0\n"
        "    ) AS minutes\n  ) AS hours\n) AS days"
    )


def _minute_of(column: str) -> str:
    return f"floor(extract(epoch FROM {column})::float8 / 60) * 60"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A part of the range, and the grain of which it is read."""

    grain: str
    """The end of the views' names."""
    when: str
    """Whether there is such a piece."""
    begins: str = ""
    """A column of :func:`_span`; empty: the begin of the range."""
    ends: str
    """The same."""
    before: str = ""
    """A constant that it also ends before; empty: none."""

    def condition(self) -> str:
        """Return the condition on a row's bucket.

        The upper bound is hidden from the planner, which would plan for hardly any rows between two
        bounds of which it knows nothing.
        """
        rows = in_range(self.grain)
        if self.begins:
            begin = _of_span(f"to_timestamp({self.begins})")
            since = _of_span(f"to_timestamp({self.begins} - {WINDOWS_S[self.grain]})")
            rows += f"\n  AND bucket >= {begin} AND since >= {since}"
        if self.before:
            rows += f"\n  AND bucket < {self.before} AND since < {self.before}"
        return f"{rows}\n  AND timestamptz_cmp(bucket, {_of_span(f'to_timestamp({self.ends})')}) < 0"


def _up_to(short: str, seconds: int) -> str:
    """Return the end of finer rows at the begin of a range that is not short."""
    return f"CASE WHEN {short} THEN 'infinity' ELSE to_timestamp({_first(seconds)}) END"


_NOT_SHORT: Final = f"NOT ({_FEWEST} AND {_of_span('minutes_first')})"
_MINUTES: Final = (
    _Piece(grain="1m", when=_of_span("minutes_first"), ends="minutes_end", before=_up_to(_FEWEST, HOUR_S)),
    _Piece(
        grain="1m",
        when=f"{_NOT_SHORT} AND {_of_span('minutes_last')}",
        begins="hours_end",
        ends="minutes_end",
    ),
)
_PIECES: Final = (
    *_MINUTES,
    _Piece(
        grain="1h",
        when=f"{_NOT_SHORT} AND {_of_span('hours_first')}",
        ends="hours_end",
        before=_up_to(f"NOT {_LONGEST}", DAY_S),
    ),
    _Piece(
        grain="1h",
        when=f"{_of_span('has_days')} AND {_of_span('hours_last')}",
        begins="days_end",
        ends="hours_end",
    ),
    _Piece(grain="1d", when=_of_span("has_days"), ends="days_end"),
)
#: For tables that have no days.
_HOURS_ALONE: Final = (*_MINUTES, _Piece(grain="1h", when=_NOT_SHORT, ends="hours_end"))


def over_range(*, by: Sequence[str], sources: Sequence[Source], clients: str, rates: bool = False) -> str:
    """Return a query of one row for each group of the range.

    Its columns are ``by``, ``added`` (the sum), ``rate`` (a second, see the module), ``mean`` (of
    the pushed values), ``points``, ``least``, ``most``, and the columns of :func:`latest`, which
    are null. ``clients`` is the condition on the clients that are chosen. Without ``rates``, the
    rate is null.
    """
    keys = [*by]
    selected = [*by]
    if rates:
        keys += ["client_of_rate", "software_of_rate"]
        client = "client_id" if "client_id" in by else f"CASE WHEN {IS_FEW} THEN client_id END"
        selected += [f"{client} AS client_of_rate", "client_software_name AS software_of_rate"]
    of_pieces = union(
        [
            (_of_series if source.by_series else _of_rows)(keys, _columns(selected, source), source, piece)
            for source in sources
            for piece in _PIECES
        ]
    )
    rate, present = "NULL::float8", ""
    if rates:
        # The lives are joined as texts, because PostgreSQL 14 can't aggregate multiranges.
        rate = (
            "sum(added * coalesce(alive_s / pushed_s, 1))\n"
            "    / nullif(least(\n"
            "      coalesce(\n"
            "        (SELECT sum(upper(life) - lower(life)) / 1000.0::float8\n"
            "          FROM unnest(('{' || string_agg(btrim(lives::text, '{}'), ',')\n"
            "            || '}')::int8multirange) AS life),\n"
            "        max(coalesce(ends, range_ends)) - min(coalesce(begins, range_begins))),\n"
            "      sum(coalesce(alive_s, range_ends - range_begins))), 0)"
        )
        present = _joined(by, clients)
    grouped = f"\nGROUP BY {', '.join(by)}"
    return (
        f"SELECT * FROM (WITH span AS MATERIALIZED (\n{indent(_span(clients), '  ')}\n)\n"
        f"SELECT {', '.join(by)}, sum(added) AS added, {rate} AS rate,\n"
        "  sum(averaged) / nullif(sum(averaged_points), 0) AS mean, sum(points) AS points,\n"
        "  min(least) AS least, max(most) AS most, NULL::float8 AS newest, NULL::float8 AS newest_most\n"
        f"FROM (\n  SELECT {', '.join(keys)}, sum(added) AS added, sum(averaged) AS averaged,\n"
        "    sum(averaged_points) AS averaged_points, sum(points) AS points, min(least) AS least,\n"
        f"    max(most) AS most\n  FROM (\n{indent(of_pieces, '    ')}\n  ) AS pieces\n"
        f"  GROUP BY {', '.join(keys)}\n) AS counted{present}{grouped}) AS of_range"
    )


def _columns(selected: Sequence[str], source: Source) -> str:
    """Return the columns of a branch. The fleet's rows have no client id."""
    if source.view == "fleet":
        selected = ["NULL::text AS client_of_rate" if "of_rate" in item and "client_id" in item else item
                    for item in selected]  # fmt: skip
    return ", ".join(selected)


def _of_rows(keys: Sequence[str], columns: str, source: Source, piece: _Piece) -> str:
    return (
        f"SELECT {columns}, sum(sum) AS added, sum(avg * points) AS averaged,\n"
        f"  {points_with('avg')} AS averaged_points, sum(points) AS points, min(min) AS least,\n"
        "  max(max) AS most\n"
        f"FROM telemetry.{source.view}_{piece.grain}\n"
        f"WHERE {piece.when}\n  AND {piece.condition()}\n"
        f"  AND {source.condition}\nGROUP BY {', '.join(keys)}"
    )


def _of_series(keys: Sequence[str], columns: str, source: Source, piece: _Piece) -> str:
    """Return a query as :func:`_of_rows` does, which groups series by their texts, and no rows.

    Of rules *rate* and *last* it has no ``added``.
    """
    return (
        f"SELECT {columns}, sum(CASE WHEN rule NOT IN (1, 2) THEN added END) AS added,\n"
        "  sum(averaged) AS averaged, sum(averaged_points) AS averaged_points, sum(points) AS points,\n"
        "  min(least) AS least, max(most) AS most\n"
        "FROM telemetry.metric_series AS s CROSS JOIN LATERAL (\n"
        "  SELECT sum(sum) AS added, sum(pushed_sum) AS averaged, sum(points) AS points,\n"
        f"    {points_with('pushed_sum')} AS averaged_points, min(min) AS least,\n"
        "    max(max) AS most\n"
        f"  FROM telemetry.metric_series_{piece.grain} AS r\n"
        f"  WHERE r.series_id = s.series_id AND {piece.condition()}\n"
        "  HAVING count(*) > 0\n"
        ") AS of_series\n"
        f"WHERE {piece.when} AND {_OF_SERIES[source.view]}\n"
        f"  AND {source.condition}\nGROUP BY {', '.join(keys)}"
    )


def _joined(by: Sequence[str], condition: str) -> str:
    """Return joins with the range and with the clients' time in it."""
    group = "\n  AND coalesce(present.of_group, '') = coalesce(group_id, '')" if "group_id" in by else ""
    return (
        "\nCROSS JOIN span\n"
        f"LEFT JOIN (\n{_present(by, condition)}\n) AS present\n"
        "  ON coalesce(present.of_client, '') = coalesce(client_of_rate, '')\n"
        f"  AND coalesce(present.of_software, '') = coalesce(software_of_rate, ''){group}"
    )


def _present(by: Sequence[str], condition: str) -> str:
    """Return a query of the time of clients in the range.

    Its columns are the client, software and group, ``begins`` and ``ends`` (epochs), ``alive_s``,
    and of few clients ``lives`` (a multirange of milliseconds) and ``pushed_s``.
    """
    client = "client_id" if "client_id" in by else f"CASE WHEN {IS_FEW} THEN client_id END"
    pushed = union(
        [
            "SELECT client_instance_id, sum(push_interval_ms_sum)::float8 / 1000 AS pushed_s\n"
            f"FROM telemetry.client_{piece.grain}\n"
            f"WHERE {IS_FEW} AND {piece.when}\n  AND {piece.condition()}\n"
            f"  AND {condition}\nGROUP BY 1"
            for piece in _HOURS_ALONE
        ]
    )
    group = ", group_id AS of_group" if "group_id" in by else ""
    keys = "of_client, of_software" + (", of_group" if group else "")
    return (
        f"SELECT {keys}, begins, ends, lives,\n"
        "  CASE WHEN pushed_s IS NULL OR abs(pushed_s - alive_s) <= edges_s THEN alive_s\n"
        "    ELSE least(alive_s, pushed_s) END AS alive_s,\n"
        "  CASE WHEN abs(pushed_s - alive_s) <= edges_s THEN nullif(pushed_s, 0)\n"
        "    ELSE least(alive_s, pushed_s) END AS pushed_s\n"
        f"FROM (\n  SELECT {keys}, min(begin) AS begins, max(last) AS ends, sum(last - begin) AS alive_s,\n"
        "    range_agg(int8range((1000 * begin)::bigint, (1000 * last)::bigint))\n"
        f"      FILTER (WHERE {IS_FEW}) AS lives,\n"
        "    sum(edges * interval_s) AS edges_s, sum(pushed_s) AS pushed_s\n"
        f"  FROM (\n{indent(_lives(client, group, condition), '    ')}\n  ) AS lives\n"
        "  LEFT JOIN (\n"
        f"    SELECT client_instance_id, sum(pushed_s) AS pushed_s FROM (\n{indent(pushed, '      ')}\n"
        "    ) AS of_pieces GROUP BY 1\n"
        "  ) AS of_instances USING (client_instance_id)\n"
        f"  WHERE last > begin\n  GROUP BY {keys}\n) AS of_clients"
    )


def _lives(client: str, group: str, condition: str) -> str:
    """Return a query of the begin and end of each instance within the range.

    ``OFFSET 0`` keeps PostgreSQL from computing them again wherever they are used.
    """
    return (
        f"SELECT client_instance_id, interval_s, {client} AS of_client,\n"
        f"  client_software_name AS of_software{group},\n"
        "  greatest(first_s - interval_s, range_begins) AS begin,\n"
        "  CASE WHEN stays THEN range_ends ELSE least(last_s, range_ends) END AS last,\n"
        "  (first_s - interval_s < range_begins)::int + (stays OR last_s > range_ends)::int AS edges\n"
        "FROM (\n"
        f"  SELECT *, terminated_at IS NULL AND range_ends < last_s + interval_s * {_DUE} AS stays\n"
        "  FROM (\n    SELECT client_instance_id, client_id, client_software_name, group_id, terminated_at,\n"
        "      range_begins, range_ends, date_part('epoch', first_seen) AS first_s,\n"
        "      date_part('epoch', last_seen) AS last_s, push_interval_ms / 1000.0::float8 AS interval_s\n"
        "    FROM telemetry.client CROSS JOIN span\n"
        f"    WHERE {SEEN}\n      AND {condition}\n    OFFSET 0\n"
        "  ) AS seen\n) AS instances\nOFFSET 0"
    )


#: How far back a trend looks: six push intervals of five minutes.
TREND_S: Final = 1800


def trend(*, by: str, source: Source) -> str:
    """Return a query of a row for each group: how its largest value changes in the end.

    Its columns are ``by``, ``now`` (the newest value), and ``per_minute``, the slope of a line
    through the last half hour, of the client id with the largest newest value. It is 0 if the
    values do not lie along a line, and null of fewer than three minutes with data.
    """
    end = "least($__timeTo()::timestamptz, (SELECT whole_until FROM telemetry.progress))"
    return (
        f"SELECT {by}, (array_agg(per_minute ORDER BY now DESC))[1] AS per_minute, max(now) AS now\n"
        f"FROM (\n  SELECT {by}, member, (array_agg(most ORDER BY bucket DESC))[1] AS now,\n"
        "    CASE WHEN count(*) < 3 THEN NULL\n"
        "      WHEN regr_r2(most, minute) >= 0.5 THEN regr_slope(most, minute) ELSE 0 END AS per_minute\n"
        f"  FROM (\n    SELECT {by}, client_id AS member, bucket, max(max) AS most,\n"
        "      extract(epoch FROM bucket - $__timeFrom()::timestamptz)::float8 / 60 AS minute\n"
        f"    FROM telemetry.{source.view}_1m\n"
        f"    WHERE bucket > {end} - interval '{TREND_S} seconds' AND bucket <= {end}\n"
        f"      AND since > {end} - interval '{TREND_S + WINDOWS_S['1m']} seconds' AND since <= {end}\n"
        f"      AND {source.condition}\n"
        f"    GROUP BY {by}, member, bucket\n  ) AS minutes\n"
        f"  GROUP BY {by}, member\n) AS clients\nGROUP BY {by}"
    )


def latest(*, by: Sequence[str], sources: Sequence[Source]) -> str:
    """Return a query with the columns of :func:`over_range`, of the end of the range.

    ``newest`` is the sum over clients in each group's newest minute, for counts that continue
    between pushes. ``newest_most`` is the largest value of the last minutes. Where minutes have
    expired, both are of the last hour.
    """
    columns = "".join(f"{column}, " for column in by)
    end = "least($__timeTo()::timestamptz, (SELECT whole_until FROM telemetry.progress))"
    return union(
        [
            f"SELECT {columns}NULL::float8 AS added, NULL::float8 AS rate, NULL::float8 AS mean,\n"
            "  NULL::float8 AS points, NULL::float8 AS least, NULL::float8 AS most,\n"
            "  (array_agg(total ORDER BY bucket DESC))[1] AS newest, max(most) AS newest_most\n"
            "FROM (\n"
            f"  SELECT {columns}bucket, sum(sum) AS total, max(max) AS most\n"
            f"  FROM telemetry.{source.view}_{name}\n"
            f"  WHERE {kept}\n"
            f"    AND bucket > {end} - interval '{_NEWEST_S[name]} seconds'\n"
            f"    AND bucket <= {end} - interval '1 minute'\n"
            f"    AND since > {end} - interval '{_NEWEST_S[name] + WINDOWS_S[name]} seconds'\n"
            f"    AND since <= {end}\n"
            f"    AND {source.condition}\n"
            f"  GROUP BY {columns}bucket\n"
            f") AS newest_buckets\nGROUP BY {', '.join(by)}"
            for source in sources
            for name, kept in (
                ("1m", "$__timeTo()::timestamptz >= (SELECT minutes_from FROM telemetry.progress)"),
                ("1h", "$__timeTo()::timestamptz < (SELECT minutes_from FROM telemetry.progress)"),
            )
        ]
    )
