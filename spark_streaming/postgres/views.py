"""The views of totals: the public interface (docs/rollup-tables.md).

Each view reads open and packed rows. Columns for filters are plain columns of base tables, so that
the planner can use their indexes. Columns may be added at the end only.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import sql

from spark_streaming.postgres.packed import as_rows, counting, open_rows
from spark_streaming.postgres.tables import (
    CLIENTS,
    FLEETS,
    GRAINS,
    HISTOGRAMS,
    SERIES,
    SPREADS,
    Grain,
    Totals,
)

_LABELS: Final = (
    "s.metric, s.cluster_id, s.client_software_name, s.client_software_version, s.client_id, s.principal, "
    "s.group_id, s.topic, s.node_id, s.node_role"
)
_ADDED: Final = "s.reason, s.error, s.acks, s.partition"
_FLEET: Final = "s.metric, s.cluster_id, s.client_software_name, s.client_software_version"
#: Averages stay within the extremes, in spite of rounding. Without a sum there is none, although
#: PostgreSQL's least and greatest ignore nulls.
_STATISTICS: Final = (
    "r.points, CASE WHEN s.rule IN (1, 2) THEN r.sum / {minutes} ELSE r.sum END AS sum, r.min, r.max, "
    "CASE WHEN coalesce(r.pushed_sum, r.sum) IS NOT NULL "
    "THEN greatest(r.min, least(r.max, coalesce(r.pushed_sum, r.sum) / nullif(r.points, 0))) END AS avg, "
    "CASE WHEN s.rule = 0 THEN r.sum / (60 * {minutes}) END AS rate"
)
#: The minutes of a bucket that were computed. Fewer than its length if it has not ended.
_COMPUTED: Final = (
    "greatest(1, least({minutes}, floor(extract(epoch FROM (SELECT telemetry.{until}()) - r.bucket) / 60)))"
    "::float8"
)
_MINUTES: Final = {
    "1m": "1",
    "1h": _COMPUTED.format(minutes=60, until="hours_until"),
    "1d": _COMPUTED.format(minutes=1440, until="days_until"),
}
_SPREAD: Final = (
    "CASE WHEN r.spread = -32768 THEN 0 "
    "WHEN r.spread < -8000 THEN -power(2::float8, (-20000 - r.spread + 0.5::float8) / 8) "
    "ELSE power(2::float8, (r.spread + 0.5::float8) / 8) END AS value, r.observations"
)
_CLIENT: Final = (
    "s.client_instance_id, s.client_id, s.client_software_name, s.client_software_version, s.principal, "
    "s.group_id, s.cluster_id, r.broker_id, r.client_source_address, r.pushes, r.points, r.terminating, "
    "r.connections_created, r.throttle_ms_max, r.request_latency_ms_sum, r.request_latency_points, "
    "r.request_latency_ms_max, r.request_latency_ms_sum / nullif(r.request_latency_points, 0) "
    "AS request_latency_ms, r.poll_idle_ratio_sum, r.poll_idle_ratio_points, "
    "r.poll_idle_ratio_sum / nullif(r.poll_idle_ratio_points, 0) AS poll_idle_ratio, r.rebalances, "
    "r.rebalance_ms, r.assigned_partitions, r.records, r.bytes, r.record_errors, r.push_interval_ms_sum"
)


#: The sum of the values as they were pushed. Divided by ``points`` it is the average.
_PUSHED: Final = "coalesce(pushed_sum, sum) AS pushed_sum"


def create_views(connection: psycopg.Connection[Any]) -> None:
    """Create the views, or replace them. Rights on them stay."""
    connection.execute(
        sql.SQL(
            "CREATE OR REPLACE VIEW metric_series AS "
            "SELECT s.series_id, {}, {}, s.rule, s.breakdown FROM series s"
        ).format(sql.SQL(_LABELS), sql.SQL(_ADDED))
    )
    for grain in GRAINS:
        statistics = _STATISTICS.format(minutes=_MINUTES[grain.name])
        series = f"{_LABELS}, {statistics}, {_ADDED}"
        for view, totals, columns, subject, condition in (
            ("metric", SERIES, series, "series", "NOT s.breakdown"),
            ("topic", SERIES, series, "series", "s.topic IS NOT NULL"),
            ("fleet", FLEETS, f"{_FLEET}, {statistics}", "fleet_series", "true"),
            ("spread", SPREADS, f"{_FLEET}, {_SPREAD}", "fleet_series", "r.observations <> 0"),
            (
                "histogram",
                HISTOGRAMS,
                f"{_LABELS}, r.lower, r.upper, r.count, {_ADDED}",
                "series",
                "NOT s.breakdown",
            ),
            ("client", CLIENTS, _CLIENT, "client_state", "true"),
        ):
            if grain.name in totals.grains:
                _create(connection, f"{view}_{grain.name}", totals, grain, columns, subject, condition)
        _create_of_series(connection, grain)


def _create_of_series(connection: psycopg.Connection[Any], grain: Grain) -> None:
    """Create the view that finds the rows of a series, without its labels.

    It does not add the rows of a minute up, because a query that adds up all minutes would do it
    twice.
    """
    values = sql.SQL("series_id, points, sum, min, max, " + _PUSHED)
    connection.execute(
        sql.SQL(
            "CREATE OR REPLACE VIEW {view} AS "
            "SELECT bucket, bucket AS since, {values} FROM {table} WHERE {counting} "
            "UNION ALL SELECT bucket, since, {values} FROM ({packed}) AS packed_rows"
        ).format(
            view=sql.Identifier(f"metric_series_{grain.name}"),
            values=values,
            table=sql.Identifier(SERIES.table(grain)),
            counting=counting(grain),
            packed=as_rows(SERIES, grain),
        )
    )


def _create(
    connection: psycopg.Connection[Any],
    view: str,
    totals: Totals,
    grain: Grain,
    columns: str,
    subject: str,
    condition: str,
) -> None:
    # Joined in each branch, because the planner passes no keys into a UNION ALL of joins.
    select = "SELECT r.bucket, {columns}, r.since FROM "
    branches = [
        sql.SQL(select + joined + " WHERE {condition}").format(
            columns=sql.SQL(columns),
            rows=rows,
            subject=sql.Identifier(subject),
            key=sql.Identifier(totals.key[0]),
            condition=sql.SQL(condition),
        )
        for rows, joined in (
            (open_rows(totals, grain), "{subject} s CROSS JOIN LATERAL ({rows}) AS r"),
            (as_rows(totals, grain), "({rows}) AS r JOIN {subject} s USING ({key})"),
        )
    ]
    connection.execute(
        sql.SQL("CREATE OR REPLACE VIEW {} AS {}").format(
            sql.Identifier(view), sql.SQL(" UNION ALL ").join(branches)
        )
    )
