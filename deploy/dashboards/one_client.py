# ruff: noqa: S608 - made of this package's own words; what users choose is quoted by Grafana (:sqlstring).
"""The dashboard *One client*: all that is known of a client id, or of one of its instances."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.choices import cluster
from deploy.dashboards.findings import findings
from deploy.dashboards.grafana import Dashboard, Panel, Sql, choice, column, lines, rows
from deploy.dashboards.sql import GRAINS, RANGE_GRAINS, Grain, buckets, chosen, seconds, union

__all__ = ["one_client"]

_CLUSTER: Final = chosen({"cluster": "cluster_id"})
_CLIENT: Final = f"client_id = ${{client:sqlstring}} AND {_CLUSTER}"
_INSTANCE: Final = f"{_CLIENT}\n  AND {chosen({'instance': 'client_instance_id'})}"
#: Instances have no days: their hours are kept as long as days are looked at here.
_MINUTES, _HOURS, _ = GRAINS
_INSTANCE_GRAINS: Final = (
    _MINUTES,
    Grain(name="1h", seconds=3600, when=f"NOT ({_MINUTES.when})"),
)
_SHORT_ID: Final = "left(client_instance_id, 8)"
_ALL_METRICS: Final = "SELECT DISTINCT metric FROM telemetry.metric_1d"


def one_client() -> Dashboard:
    """Build it."""
    board = Dashboard(
        "kct-one-client",
        "Kafka clients: one client",
        "Everything about one client id and its instances: who it is, from where, in which version, what it "
        "does, what it can't tell.",
    )
    board.sources().variables(
        cluster(),
        choice(
            "client",
            "Client id",
            "The client id to look at",
            "SELECT DISTINCT client_id FROM telemetry.client\n"
            "WHERE client_id IS NOT NULL AND last_seen >= $__timeFrom() AND first_seen <= $__timeTo()\n"
            f"  AND {_CLUSTER}\nORDER BY 1 LIMIT 5000",
            several=False,
        ),
        choice(
            "instance",
            "Instance",
            "Instances of it: one for each time that a client was started",
            "SELECT client_instance_id FROM telemetry.client\n"
            f"WHERE last_seen >= $__timeFrom() AND first_seen <= $__timeTo() AND {_CLIENT}\n"
            "ORDER BY last_seen DESC LIMIT 1000",
        ),
        choice(
            "metric",
            "Metric",
            "The metric that the last panel draws",
            f"{_ALL_METRICS}\nWHERE bucket > $__timeFrom()::timestamptz - interval '1 day' "
            f"AND bucket <= $__timeTo() AND {_CLIENT}\nORDER BY 1",
            several=False,
        ),
    ).resolution()
    board.row("Who it is", _instances(), _versions_and_addresses(), findings("Findings", _CLIENT, height=7))
    board.row(
        "What its instances do",
        _per_second(
            "Pushes",
            "pushes",
            "cps",
            "Pushes that were taken. None for three push intervals: the client is silent.",
        ),
        _per_second("Records", "records", "cps", "Records sent or consumed; Java clients alone count them."),
        _per_second("Bytes", "bytes", "binBps", "Bytes sent or consumed; Java clients alone count them."),
        _per_second(
            "Records that failed", "record_errors", "cps", "Of producers; Java clients alone count them."
        ),
        _per_second("Connections opened", "connections_created", "cps", "Connections to brokers opened."),
        _mean(
            "Request latency, mean",
            "request_latency_ms_sum",
            "request_latency_points",
            "ms",
            "The mean over brokers of the average time from a request to its response.",
        ),
        _extreme(
            "Request latency, maximum", "request_latency_ms_max", "ms", "The longest request to any broker."
        ),
        _extreme(
            "Throttling, maximum", "throttle_ms_max", "ms", "The longest that a quota held a request up."
        ),
        _mean(
            "Poll idle ratio",
            "poll_idle_ratio_sum",
            "poll_idle_ratio_points",
            "percentunit",
            "Of consumers: near 0 the application is the limit.",
        ),
        _extreme("Partitions assigned", "assigned_partitions", "short", "Of consumers."),
        _per_second("Rebalances", "rebalances", "cps", "Of consumers; librdkafka does not count them."),
        _per_second(
            "Share of time in rebalances",
            "rebalance_ms / 1000",
            "percentunit",
            "Of consumers: they consume nothing meanwhile.",
        ),
    )
    board.row("Every metric", _every_metric(), _chosen_metric())
    return board


def _instances() -> Panel:
    return rows(
        "Instances",
        "The client's instances in this time. *silent*: no push for three push intervals, and no goodbye.",
        [
            Sql(
                "SELECT client_instance_id, state, client_software_name, client_software_version,\n"
                "  principal, group_id, group_instance_id, transactional_id, client_source_address,\n"
                "  client_rack, broker_id, cluster_id, first_seen, last_seen, terminated_at, "
                "push_interval_ms\n"
                "FROM telemetry.client\n"
                "WHERE last_seen >= $__timeFrom() AND first_seen <= $__timeTo()\n"
                f"  AND {_INSTANCE}\nORDER BY last_seen DESC LIMIT 500",
                over_time=False,
            )
        ],
        {
            "client_instance_id": column("Instance", width=190),
            "state": column("State", width=80, colours={"live": "green", "silent": "orange", "left": "text"}),
            "client_software_name": column("Software", width=160),
            "client_software_version": column("Version", width=90),
            "principal": column("Principal"),
            "group_id": column("Group"),
            "group_instance_id": column("Static member"),
            "transactional_id": column("Transactional id"),
            "client_source_address": column("Address"),
            "client_rack": column("Rack"),
            "broker_id": column("Broker"),
            "cluster_id": column("Cluster"),
            "first_seen": column("First push", "dateTimeAsIso"),
            "last_seen": column("Last push", "dateTimeAsIso"),
            "terminated_at": column("Said goodbye", "dateTimeAsIso"),
            "push_interval_ms": column("Push interval", "ms"),
        },
        height=7,
    )


def _versions_and_addresses() -> Panel:
    return rows(
        "Versions and addresses",
        "From where and in which version its instances pushed, and through which broker's sidecar.",
        [
            Sql(
                "SELECT client_software_name, client_software_version, client_source_address, broker_id,\n"
                "  count(DISTINCT client_instance_id)::float8 AS instances, sum(pushes)::float8 AS pushes,\n"
                "  min(bucket) AS begins, max(bucket) AS ends\n"
                "FROM telemetry.client_1h\n"
                "WHERE bucket > $__timeFrom()::timestamptz - interval '1 hour' AND bucket <= $__timeTo()\n"
                f"  AND {_INSTANCE}\n"
                "GROUP BY 1, 2, 3, 4\nORDER BY ends DESC, pushes DESC LIMIT 200",
                over_time=False,
            )
        ],
        {
            "client_software_name": column("Software"),
            "client_software_version": column("Version"),
            "client_source_address": column("Address"),
            "broker_id": column("Broker"),
            "instances": column("Instances", "short"),
            "pushes": column("Pushes", "short"),
            "begins": column("First hour", "dateTimeAsIso"),
            "ends": column("Last hour", "dateTimeAsIso"),
        },
        height=7,
    )


def _every_metric() -> Panel:
    found = union(
        [
            "SELECT metric, sum(sum) AS added, sum(points) AS points, min(min) AS least, max(max) AS most,\n"
            f"  {buckets(grain)} AS buckets, {seconds(grain)} AS seconds\n"
            f"FROM telemetry.metric_{grain.name}\n"
            f"WHERE {grain.when} AND $__timeFilter(bucket) AND {_CLIENT}\n"
            "GROUP BY 1"
            for grain in RANGE_GRAINS
        ]
    )
    query = (
        f"WITH found AS (\n{found}\n), kinds AS (\n"
        "  SELECT DISTINCT s.client FROM telemetry.client LEFT JOIN telemetry.software s\n"
        "  USING (client_software_name)\n"
        f"  WHERE {_CLIENT}\n"
        "), roles AS (\n"
        "  SELECT DISTINCT split_part(metric, '.', 4) AS role FROM found\n"
        "  WHERE metric LIKE 'org.apache.kafka.%'\n"
        ")\n"
        "SELECT coalesce(found.metric, c.metric) AS metric, c.description,\n"
        "  CASE\n"
        "    WHEN found.metric IS NOT NULL THEN 'sent'\n"
        "    WHEN EXISTS (SELECT FROM kinds WHERE client IS NULL OR client = ANY (c.clients))\n"
        "      THEN 'no data, though it could be'\n"
        "    ELSE 'not sent by it'\n"
        "  END AS state,\n"
        "  CASE WHEN c.combines = 'sum'\n"
        f"      THEN added / seconds\n"
        "    WHEN c.combines IN ('rate', 'last') THEN added / buckets\n"
        "    ELSE added / nullif(points, 0) END AS value,\n"
        "  CASE WHEN c.combines = 'sum' THEN c.unit || '/s' ELSE c.unit END AS unit, least, most,\n"
        "  found.points::float8 AS points, c.required\n"
        "FROM found\n"
        "FULL JOIN (\n"
        "  SELECT * FROM telemetry.catalogue WHERE draft_name IS DISTINCT FROM metric\n"
        "    AND split_part(metric, '.', 4) IN (SELECT role FROM roles)\n"
        ") AS c USING (metric)\n"
        "ORDER BY found.metric IS NULL, 1"
    )
    return rows(
        "Every metric of the client id",
        "Totals are per second, counts the mean over time, others the mean of what was pushed. *not sent by "
        "it*: the software has no such metric. *no data, though it could be*: nobody asks for it, or nothing "
        "came.",
        [Sql(query, over_time=False)],
        {
            "metric": column("Metric", width=440),
            "description": column("What it tells", width=420),
            "state": column(
                "State",
                width=200,
                colours={"sent": "green", "not sent by it": "text", "no data, though it could be": "orange"},
            ),
            "value": column("Value", "short", width=110),
            "unit": column("Unit", width=110),
            "least": column("Least", "short", width=110),
            "most": column("Most", "short", width=110),
            "points": column("Points", "short", width=90),
            "required": column("Required", "bool", width=90),
        },
        height=12,
    )


def _chosen_metric() -> Panel:
    steps = "greatest({base}, $__interval_ms / 1000)"
    value = (
        "CASE coalesce((SELECT combines FROM telemetry.catalogue WHERE metric = ${metric:sqlstring}),\n"
        "      CASE WHEN max(rate) IS NULL THEN 'distribution' ELSE 'sum' END)\n"
        f"    WHEN 'sum' THEN sum(sum) / {steps}\n"
        "    WHEN 'max' THEN max(max) WHEN 'min' THEN min(min)\n"
        "    WHEN 'rate' THEN sum(sum) / count(DISTINCT bucket)\n"
        "    WHEN 'last' THEN sum(sum) / count(DISTINCT bucket)\n"
        "    ELSE sum(sum) / nullif(sum(points), 0) END"
    )
    found = union(
        [
            "SELECT $__timeGroupAlias(bucket, $__interval, NULL),\n"
            "  concat_ws(' ', client_software_version, 'topic ' || topic, 'node ' || node_id) AS metric,\n"
            f"  {value.replace('{base}', str(grain.seconds))} AS value\n"
            f"FROM telemetry.{view}_{grain.name}\n"
            f"WHERE {grain.when}\n  AND $__timeFilter(bucket) AND metric = ${{metric:sqlstring}}\n"
            f"  AND {_CLIENT}{condition}\n"
            "GROUP BY 1, 2"
            for view, condition in (("metric", " AND topic IS NULL"), ("topic", ""))
            for grain in GRAINS
        ]
    )
    return lines(
        "${metric}",
        "The chosen metric by version, topic and broker, added up over instances as the catalogue says: "
        "totals per second, averages as the mean of what was pushed.",
        "short",
        [Sql(f"{found}\nORDER BY 1, 2", over_time=True)],
        width=24,
    )


def _per_second(title: str, column: str, unit: str, description: str) -> Panel:
    return _by_instance(
        title, f"sum({column}) / greatest({{base}}, $__interval_ms / 1000)", unit, description
    )


def _mean(title: str, total: str, points: str, unit: str, description: str) -> Panel:
    return _by_instance(title, f"sum({total}) / nullif(sum({points}), 0)", unit, description)


def _extreme(title: str, column: str, unit: str, description: str) -> Panel:
    return _by_instance(title, f"max({column})", unit, description)


def _by_instance(title: str, value: str, unit: str, description: str) -> Panel:
    found = union(
        [
            f"SELECT $__timeGroupAlias(bucket, $__interval, NULL), {_SHORT_ID} AS metric,\n"
            f"  {value.format(base=grain.seconds)} AS value\n"
            f"FROM telemetry.client_{grain.name}\n"
            f"WHERE {grain.when}\n  AND $__timeFilter(bucket)\n  AND {_INSTANCE}\n"
            "GROUP BY 1, 2"
            for grain in _INSTANCE_GRAINS
        ]
    )
    return lines(
        title,
        f"{description} A line for each instance, by the first letters of its id.",
        unit,
        [Sql(f"{found}\nORDER BY 1, 2", over_time=True)],
        width=8,
    )
