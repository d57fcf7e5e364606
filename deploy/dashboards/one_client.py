# ruff: noqa: S608 - constants of this package; Grafana quotes what users choose (:sqlstring).
"""The dashboard *One client*: all metrics and findings of a client id or of one instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from deploy.dashboards.addresses import ADDRESSES, Address, logs_and_traces
from deploy.dashboards.brokers import latency_by_broker
from deploy.dashboards.choices import cluster
from deploy.dashboards.findings import findings, marks
from deploy.dashboards.grafana import Dashboard, choice
from deploy.dashboards.members import REBALANCE_COLOURS, REBALANCED
from deploy.dashboards.metrics import WAITS, standard
from deploy.dashboards.panels import Panel, column, lines, rows, states
from deploy.dashboards.ranges import latest, over_range
from deploy.dashboards.ranked import LAG_WARNINGS
from deploy.dashboards.sql import (
    BUCKETS,
    DAY_S,
    GRAINS,
    HOUR_S,
    MEAN,
    SEEN,
    SLOT,
    TIME,
    Source,
    chosen,
    gauges,
    in_range,
    is_chosen,
    name_of_software,
    of_metrics,
    options,
    over_time,
    per_second,
    per_step,
    quantiles,
    quoted,
    text_of,
    union,
    whole,
)
from deploy.dashboards.status import status
from deploy.dashboards.units import unit_of
from spark_streaming.watched import WATCHED

_CLUSTER: Final = chosen({"cluster": "cluster_id"})
_CLIENT: Final = f"{is_chosen('client_id', 'client')} AND {_CLUSTER}"
_INSTANCE: Final = f"{_CLIENT}\n  AND {chosen({'instance': 'client_instance_id'})}"
#: Instances have no daily table; their hours are kept as long as this dashboard shows days.
_MINUTES, _HOURS, _ = GRAINS
_INSTANCES: Final = Source(
    view="client", condition=_INSTANCE, grains=(_MINUTES, replace(_HOURS, when=f"NOT ({_MINUTES.when})"))
)
#: Every producer and every consumer sends one of these.
_SIGNS: Final = tuple(
    standard(f"{role}.{name}").name
    for role in ("producer", "consumer")
    for name in ("connection.creation.total", "node.request.latency.avg")
)
_FETCH: Final = "consumer.fetch.manager"
_OF_CONSUMERS: Final = f"Of consumers: {WAITS[0].lower()}{WAITS[1:]}"
_SHORT_ID: Final = "left(client_instance_id, 8)"
_QUARTILES: Final = {
    "25 % of peers below": 0.25,
    "median of peers": 0.5,
    "75 % of peers below": 0.75,
}
#: Findings of the client id, its groups and its versions.
_FINDINGS: Final = (
    f"{_CLUSTER}\n"
    f"  AND ({is_chosen('client_id', 'client')} OR client_id IS NULL AND client_instance_id IS NULL AND (\n"
    "    (coalesce(cluster_id, ''), group_id) IN (\n"
    f"      SELECT coalesce(cluster_id, ''), group_id FROM telemetry.client WHERE {_CLIENT} AND {SEEN})\n"
    "    OR (coalesce(cluster_id, ''), client_software_name, client_software_version) IN (\n"
    "      SELECT coalesce(cluster_id, ''), client_software_name, client_software_version\n"
    f"      FROM telemetry.client WHERE {_CLIENT} AND {SEEN})\n"
    # A bug of producers is not one of consumers with the same version. Findings name ten clients.
    "    AND ((evidence ->> 'client_ids')::int > 10\n"
    f"      OR jsonb_exists(evidence -> 'some_client_ids', {text_of('client')}))))"
)
_ALL_METRICS: Final = "SELECT DISTINCT metric FROM telemetry.metric_1d"


def one_client() -> Dashboard:
    """Build it."""
    board = Dashboard(
        "kct-one-client",
        "Kafka clients: one client",
        "One client id and its instances: identity, address, version, metrics, and the metrics that it "
        "does not have.",
    )
    board.sources().variables(
        cluster(),
        choice(
            "client",
            "Client id",
            "The client id",
            options(
                "client_id",
                "SELECT DISTINCT client_id FROM telemetry.client\n"
                f"WHERE {SEEN}\n  AND {_CLUSTER}\nORDER BY 1 LIMIT 5000",
            ),
            several=False,
        ),
        choice(
            "instance",
            "Instance",
            "Its instances: one for each start of a client",
            options(
                "client_instance_id",
                "SELECT client_instance_id FROM telemetry.client\n"
                f"WHERE {SEEN} AND {_CLIENT}\n"
                "ORDER BY last_seen DESC LIMIT 1000",
            ),
        ),
        choice(
            "metric",
            "Metric",
            "The metric that the last panel draws",
            options(
                "metric",
                f"{_ALL_METRICS}\nWHERE {in_range('1d', before_s=DAY_S)} AND {_CLIENT}\nORDER BY 1",
            ),
            several=False,
        ),
        *(Address(name) for name in ADDRESSES),
    ).resolution()
    board.marks(*marks(_FINDINGS, clients=_CLIENT)).panel(status())
    board.row("Findings", findings("Findings", _FINDINGS, height=6))
    board.row(
        "What it waits for",
        _of_client(
            "Records lag",
            f"{_FETCH}.records.lag.max",
            "Of its worst partition. A line that only rises is a consumer that is too slow.",
            warnings=LAG_WARNINGS,
        ),
        _of_client(
            "Time between polls",
            "consumer.time.between.poll.max",
            "The longest. Beyond `max.poll.interval.ms` the group takes its partitions away.",
        ),
        _of_client(
            "Fetch latency",
            f"{_FETCH}.fetch.latency.max",
            f"The longest. {WAITS}",
        ),
    )
    board.row(
        "Beside its peers",
        _beside_peers("Produce latency", "producer.node.request.latency.avg"),
        _beside_peers("Wait before sending", "producer.record.queue.time.avg"),
        _beside_peers("Produce throttling", "producer.produce.throttle.time.avg"),
        _beside_peers("Fetch latency, mean", f"{_FETCH}.fetch.latency.avg", WAITS),
        _beside_peers("Time between polls, mean", "consumer.time.between.poll.avg"),
        _beside_peers("Poll idle ratio, mean", "consumer.poll.idle.ratio.avg"),
    )
    board.row(
        "What its instances do",
        _per_minute(
            "Pushes", "pushes", "Accepted pushes. A client without any for three push intervals is silent."
        ),
        _per_second("Records", "records", "count:records/s", "Records sent or consumed."),
        _per_second("Bytes", "bytes", "binBps", "Bytes sent or consumed."),
        _per_hour("Records that failed", "record_errors", "Producers only."),
        _per_hour("Connections opened", "connections_created", "Connections to brokers opened."),
        _of_pushes(
            "Request latency, mean",
            "request_latency_ms_sum",
            "request_latency_points",
            "ms",
            f"The mean over brokers of the average time from a request to its response. {_OF_CONSUMERS}",
        ),
        _extreme(
            "Request latency, maximum",
            "request_latency_ms_max",
            "ms",
            f"The longest request to any broker. {_OF_CONSUMERS}",
        ),
        _extreme(
            "Throttling, maximum", "throttle_ms_max", "ms", "The longest delay of a request by a quota."
        ),
        _of_pushes(
            "Poll idle ratio",
            "poll_idle_ratio_sum",
            "poll_idle_ratio_points",
            "percentunit",
            "Consumers only. Near 0 the application is the bottleneck.",
        ),
        _extreme("Partitions assigned", "assigned_partitions", "short", "Consumers only."),
        _rebalances(),
        _per_second(
            "Share of time in rebalances",
            "rebalance_ms",
            "percentunit",
            "Consumers only. They consume nothing during a rebalance.",
            factor=1e-3,
        ),
        latency_by_broker("Request latency by broker", Source(view="metric", condition=_CLIENT), width=24),
    )
    board.row("Who it is", _instances(), _versions_and_addresses(), logs_and_traces(_INSTANCE, width=8))
    board.row("Every metric", _every_metric(), _chosen_metric())
    return board


def _instances() -> Panel:
    return rows(
        "Instances",
        "The client's instances in this time. *silent*: no push for three push intervals, and no terminating "
        "push.",
        "SELECT client_instance_id, state, client_owner, client_software_name, client_software_version,\n"
        "  principal, group_id, group_instance_id, group_member_id, transactional_id, application_id,\n"
        "  client_source_address, client_source_port, client_rack, broker_id, cluster_id,\n"
        "  first_seen, last_seen, terminated_at, push_interval_ms\n"
        "FROM telemetry.client\n"
        f"WHERE {SEEN}\n  AND {_INSTANCE}\nORDER BY last_seen DESC LIMIT 500",
        {
            "client_instance_id": column("Instance", width=190),
            "state": column(
                "State",
                width=80,
                colours={"live": "green", "silent": "orange", "disconnected": "text", "left": "text"},
            ),
            "client_owner": column("Owner"),
            "client_software_name": column("Software", width=160),
            "client_software_version": column("Version", width=90),
            "principal": column("Principal"),
            "group_id": column("Group"),
            "group_instance_id": column("Static member"),
            "group_member_id": column("Member id"),
            "transactional_id": column("Transactional id"),
            "application_id": column("Streams application"),
            "client_source_address": column("Address"),
            "client_source_port": column("Port"),
            "client_rack": column("Rack"),
            "broker_id": column("Broker"),
            "cluster_id": column("Cluster"),
            "first_seen": column("First push", "dateTimeAsIso"),
            "last_seen": column("Last push", "dateTimeAsIso"),
            "terminated_at": column("Terminated at", "dateTimeAsIso"),
            "push_interval_ms": column("Push interval", "ms"),
        },
        height=7,
    )


def _versions_and_addresses() -> Panel:
    return rows(
        "Versions and addresses",
        "The addresses and versions of its instances, and the broker whose sidecar received their pushes.",
        "SELECT client_software_name, client_software_version, client_source_address, broker_id,\n"
        "  count(DISTINCT client_instance_id)::float8 AS instances, sum(pushes)::float8 AS pushes,\n"
        "  min(bucket) AS begins, max(bucket) AS ends\n"
        "FROM telemetry.client_1h\n"
        f"WHERE {in_range('1h', before_s=HOUR_S)}\n"
        f"  AND {_INSTANCE}\n"
        "GROUP BY 1, 2, 3, 4\nORDER BY ends DESC, pushes DESC LIMIT 200",
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
        width=16,
        height=7,
    )


def _beside_peers(title: str, name: str, advice: str = "") -> Panel:
    """Build the mean of the client id, beside the median and the middle half of its peers.

    Peers are the clients of the same software and cluster, if the client sends the metric.
    """
    metric = standard(name)
    unit, _ = unit_of(metric)
    own = over_time(
        series="'this client id'",
        value=MEAN,
        sources=of_metrics([metric.name], [Source(view="metric", condition=_CLIENT)]),
    )
    sent = (
        "EXISTS (SELECT FROM telemetry.metric_1d\n"
        "      WHERE bucket > $__timeFrom()::timestamptz - interval '1 day' AND bucket <= $__timeTo()\n"
        f"        AND metric = '{metric.name}' AND {_CLIENT})"
    )
    software = (
        "client_software_name = ANY (ARRAY(SELECT DISTINCT client_software_name FROM telemetry.client\n"
        f"      WHERE {SEEN} AND {_CLIENT}))"
    )
    peers = quantiles(
        metric=metric.name, shares=_QUARTILES, condition=f"{_CLUSTER} AND {software}\n    AND {sent}"
    )
    return lines(
        title,
        f"`{metric.name}`: {metric.description} The mean of all its instances. Peers are all clients of "
        f"the same software and cluster. {advice}",
        unit,
        f"{union([gauges(own), peers, _not_sent([metric.name])])}\nORDER BY 1, 2",
        width=8,
        band=(next(iter(_QUARTILES)), list(_QUARTILES)[-1]),
    )


def _rebalances() -> Panel:
    found = gauges(_steps("sum(rebalances)"))
    known = f"SELECT * FROM (\n{found}\n) AS known WHERE value IS NOT NULL"
    slots = [slot for slot in WATCHED if slot.column == "rebalances"]
    query = union([known, *(_not_sent(slot.metrics) for slot in slots)])
    return states(
        "Rebalances",
        f"Rebalances of each instance in each step. {REBALANCED}",
        f"{query}\nORDER BY 1, 2",
        REBALANCE_COLOURS,
        width=8,
    )


def _of_client(title: str, name: str, advice: str, *, warnings: Mapping[float, str] | None = None) -> Panel:
    metric = standard(name)
    unit, _ = unit_of(metric)
    source = Source(view="metric", condition=_CLIENT)
    found = gauges(
        over_time(series=name_of_software, value="max(max)", sources=of_metrics([metric.name], [source]))
    )
    return lines(
        title,
        f"`{metric.name}`: {metric.description} {advice} Of all instances of the client id.",
        unit,
        f"{union([found, _not_sent([metric.name])])}\nORDER BY 1, 2",
        width=8,
        warnings=warnings,
    )


#: A number with three digits.
_DIGITS: Final = (
    "trim_scale(round(({0})::numeric,\n"
    "      CASE WHEN abs({0}) >= 100 THEN 0 WHEN abs({0}) >= 10 THEN 1 WHEN abs({0}) >= 1 THEN 2 ELSE 4 END))"
)


def _shown(value: str, per: str = "''") -> str:
    """Return the text of a value in the unit of its metric, a second if ``per`` is ``/s``.

    The units are the catalogue's (UCUM). A time of many milliseconds is a date.
    """

    def scaled(factor: str, word: str) -> str:
        return f"{_DIGITS.format(f'({value}) / {factor}')} || ' {word}' || {per}"

    seconds = f"(({value}) * CASE unit WHEN 'ns' THEN 1e-9 WHEN 'ms' THEN 1e-3 ELSE 1 END)"
    return (
        "CASE\n"
        f"    WHEN ({value}) IS NULL OR ({value}) = 'NaN' THEN NULL\n"
        f"    WHEN unit IN ('ms', 's') AND {seconds} > 1e9\n"
        f"      THEN to_char(to_timestamp(least({seconds}, 1e11)) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')"
        " || ' UTC'\n"
        f"    WHEN unit IN ('ns', 'ms', 's') AND {seconds} >= 3600\n"
        f"      THEN {_DIGITS.format(f'{seconds} / 3600')} || ' h' || {per}\n"
        f"    WHEN unit IN ('ns', 'ms', 's') AND {seconds} >= 60\n"
        f"      THEN {_DIGITS.format(f'{seconds} / 60')} || ' min' || {per}\n"
        f"    WHEN unit IN ('ns', 'ms', 's') AND {seconds} >= 1\n"
        f"      THEN {_DIGITS.format(seconds)} || ' s' || {per}\n"
        f"    WHEN unit IN ('ns', 'ms', 's') THEN {_DIGITS.format(f'{seconds} * 1e3')} || ' ms' || {per}\n"
        f"    WHEN unit LIKE 'By%' AND abs({value}) >= 1073741824 THEN {scaled('1073741824', 'GiB')}\n"
        f"    WHEN unit LIKE 'By%' AND abs({value}) >= 1048576 THEN {scaled('1048576', 'MiB')}\n"
        f"    WHEN unit LIKE 'By%' AND abs({value}) >= 1024 THEN {scaled('1024', 'KiB')}\n"
        f"    WHEN unit LIKE 'By%' THEN {scaled('1', 'B')}\n"
        f"    WHEN unit = '1' THEN {_DIGITS.format(f'({value}) * 100')} || ' %' || {per}\n"
        f"    WHEN abs({value}) >= 1e9 THEN {scaled('1e9', 'billion')}\n"
        f"    WHEN abs({value}) >= 1e6 THEN {scaled('1e6', 'million')}\n"
        f"    ELSE {_DIGITS.format(value)} || {per}\n"
        "  END"
    )


def _every_metric() -> Panel:
    source = Source(view="metric", condition=_CLIENT, by_series=True)
    found = union(
        [
            over_range(by=["metric"], sources=[source], clients=_CLIENT, rates=True),
            latest(by=["metric"], sources=[source]),
        ]
    )
    value = (
        "CASE\n"
        "    WHEN combines = 'sum' THEN rate\n"
        "    WHEN combines = 'last' THEN newest\n"
        "    ELSE mean\n"
        "  END"
    )
    query = (
        f"WITH rows_of_range AS (\n{found}\n), found AS (\n"
        "  SELECT metric, max(added) AS added, max(mean) AS mean, max(points) AS points,\n"
        "    min(least) AS least, max(most) AS most, max(newest) AS newest,\n"
        "    max(rate) AS rate\n"
        f"  FROM rows_of_range\n"
        "  GROUP BY metric HAVING max(points) IS NOT NULL\n"
        "), kinds AS MATERIALIZED (\n"
        "  SELECT DISTINCT s.client FROM telemetry.client LEFT JOIN telemetry.software s\n"
        "  USING (client_software_name)\n"
        f"  WHERE {_CLIENT}\n"
        "), roles AS (\n"
        "  SELECT DISTINCT split_part(metric, '.', 4) AS role FROM found\n"
        "  WHERE metric LIKE 'org.apache.kafka.%'\n"
        ")\n"
        "SELECT metric, state,\n"
        f"  {_shown('value', per='per')} AS value,\n"
        f"  {_shown('least')} AS least,\n"
        f"  {_shown('most')} AS most,\n"
        "  points::float8 AS points, description, required\n"
        f"FROM (\nSELECT *, {value} AS value,\n"
        "  CASE WHEN combines <> 'sum' THEN ''\n"
        "    WHEN unit LIKE '{%' THEN ' ' || btrim(unit, '{}') || 's/s' ELSE '/s' END AS per\n"
        "FROM (\n"
        "  SELECT coalesce(found.metric, c.metric) AS metric, c.description, coalesce(c.unit, '') AS unit,\n"
        "    c.combines, c.required, mean, rate, newest, points, least, most,\n"
        "    CASE\n"
        "      WHEN found.metric IS NOT NULL THEN 'sent'\n"
        "      WHEN EXISTS (SELECT FROM kinds WHERE client IS NULL OR client = ANY (c.clients))\n"
        "        THEN 'no data, though it could be'\n"
        "      ELSE 'not sent by it'\n"
        "    END AS state\n"
        "  FROM found\n"
        "  FULL JOIN (\n"
        "    SELECT * FROM telemetry.catalogue\n"
        "    WHERE metric IN (SELECT metric FROM found)\n"
        "      OR (draft_name IS DISTINCT FROM metric\n"
        "        AND split_part(metric, '.', 4) IN (SELECT role FROM roles))\n"
        "  ) AS c USING (metric)\n"
        ") AS metrics\n) AS valued\n"
        "ORDER BY array_position(\n"
        "  ARRAY['sent', 'no data, though it could be', 'not sent by it'], state), metric"
    )
    return rows(
        "Every metric of the client id",
        "Totals are per second of the time in which it pushed, counts are the newest values, other values "
        "are means of all pushes. *not sent by it*: the software does not have the metric. *no data, though "
        "it could be*: no subscription asks for it, or no push arrived.",
        query,
        {
            "metric": column("Metric", width=430),
            "state": column(
                "State",
                width=190,
                colours={"sent": "green", "not sent by it": "text", "no data, though it could be": "orange"},
            ),
            "value": column("Value", width=150),
            "least": column("Least push", width=140),
            "most": column("Largest push", width=140),
            "points": column("Points", "short", width=95),
            "description": column("Meaning", width=330),
            "required": column("Required", "bool", width=100),
        },
        height=12,
    )


def _chosen_metric() -> Panel:
    combines = (
        f"coalesce((SELECT combines FROM telemetry.catalogue WHERE {is_chosen('metric', 'metric')}),\n"
        "    CASE WHEN max(rate) IS NULL THEN 'distribution' ELSE 'sum' END)"
    )
    found = union(
        [
            f"SELECT {TIME}, metric, {grain.seconds} AS base, combines, added, mean, least, most\n"
            f"FROM (\nSELECT {SLOT},\n"
            "  concat_ws(' ', client_software_version, 'topic ' || topic, 'node ' || node_id) AS metric,\n"
            f"  {combines} AS combines, sum(sum) AS added, {MEAN} AS mean,\n"
            "  min(min) AS least, max(max) AS most\n"
            f"FROM telemetry.{view}_{grain.name}\n"
            f"WHERE {grain.when}\n  AND {in_range(grain.name)} AND {whole(grain)}\n"
            f"  AND {is_chosen('metric', 'metric')}\n  AND {_CLIENT}{condition}\n"
            "GROUP BY 1, 2\n) AS slots"
            for view, condition in (("metric", " AND topic IS NULL"), ("topic", ""))
            for grain in GRAINS
        ]
    )
    value = (
        "CASE combines\n"
        "    WHEN 'sum' THEN added / seconds\n"
        "    WHEN 'max' THEN most WHEN 'min' THEN least\n"
        f"    WHEN 'rate' THEN added / {BUCKETS} WHEN 'last' THEN added / {BUCKETS}\n"
        "    ELSE mean\n  END"
    )
    return lines(
        "${metric:text}",
        "The chosen metric by version, topic and broker, combined over instances by the catalogue's rule: "
        "totals per second, averages as the mean of all pushes.",
        "short",
        f"{per_step(found, value)}\nORDER BY 1, 2",
        width=24,
    )


def _per_second(title: str, name: str, unit: str, description: str, *, factor: float = 1.0) -> Panel:
    return _by_instance(title, name, per_second(_steps(f"sum({name})"), factor=factor), unit, description)


def _per_minute(title: str, name: str, description: str) -> Panel:
    found = per_second(_steps(f"sum({name})"), factor=60.0)
    return _by_instance(title, name, found, "count:/min", description)


def _per_hour(title: str, name: str, description: str) -> Panel:
    found = per_second(_steps(f"sum({name})"), factor=3600.0)
    return _by_instance(title, name, found, "count:/h", description)


def _of_pushes(title: str, total: str, points: str, unit: str, description: str) -> Panel:
    found = gauges(_steps(f"sum({total}) / nullif(sum({points}), 0)"))
    return _by_instance(title, total, found, unit, description)


def _extreme(title: str, name: str, unit: str, description: str) -> Panel:
    return _by_instance(title, name, gauges(_steps(f"max({name})")), unit, description)


def _steps(value: str) -> str:
    return over_time(series=_SHORT_ID, value=value, sources=[_INSTANCES])


def _by_instance(title: str, name: str, found: str, unit: str, description: str) -> Panel:
    known = f"SELECT * FROM (\n{found}\n) AS known WHERE value IS NOT NULL"
    query = union([known, *(_not_sent(slot.metrics) for slot in WATCHED if slot.column == name)])
    return lines(
        title,
        f"{description} One line for each instance, named by the first letters of its id.",
        unit,
        f"{query}\nORDER BY 1, 2",
        width=8,
    )


def _not_sent(names: Sequence[str]) -> str:
    """Return an empty series if the client has none of the metrics, for the legend."""
    metrics = [standard(name.removeprefix("org.apache.kafka.")) for name in names]
    sent = " OR ".join(
        f"(role = '{metric.name.split('.')[3]}' AND s.client = ANY (ARRAY[{quoted(metric.clients)}]::text[]))"
        for metric in metrics
    )
    return (
        "SELECT $__from / $__interval_ms * $__interval_ms / 1000 AS time,\n"
        "  'not sent by ' || client_software_name || ' ' || string_agg(role, ', ') AS metric, NULL AS value\n"
        "FROM (\n"
        "  SELECT DISTINCT client_software_name, split_part(metric, '.', 4) AS role\n"
        "  FROM telemetry.metric_1d\n"
        f"  WHERE {in_range('1d', before_s=DAY_S)}\n"
        f"    AND metric IN ({quoted(_SIGNS)})\n    AND {_CLIENT}\n"
        ") AS roles\n"
        "JOIN telemetry.software s USING (client_software_name)\n"
        f"GROUP BY client_software_name\nHAVING NOT bool_or({sent})"
    )
