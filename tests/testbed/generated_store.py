"""Generates a store of many clients and days by SQL, to test plans and times of queries.

Rows lie as the roll-up writes them, in the partitions that the roll-up makes: the newest minutes by
load, older ones merged. One closed window of minutes and one of hours are packed by the roll-up
itself. The others are copies of these, with the same values at other times. Values mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg import sql

from receiver.catalogue import CATALOGUE, Combination, MetricKind, StandardMetric
from spark_streaming.contributions import Reconciliation
from spark_streaming.postgres import Store, plan_statistics
from spark_streaming.postgres.merging import MERGED_LOAD, NEIGHBOURS
from spark_streaming.postgres.packed import packed_columns
from spark_streaming.postgres.partitions import Partitions
from spark_streaming.postgres.spans import beginning
from spark_streaming.postgres.tables import (
    CLIENTS,
    EPOCH,
    FLEETS,
    GRAINS,
    MINUTES,
    SERIES,
    SPREADS,
    Grain,
    Totals,
)
from spark_streaming.rows import BUCKET_ROWS, ROLLUP_ROWS, RULES
from spark_streaming.settings import RetentionSettings
from spark_streaming.watched import WATCHED

#: Client instances of each client id, and the seconds between two pushes of one.
INSTANCES_OF_A_CLIENT_ID: Final = 20
INTERVAL_S: Final = 60
#: Seconds between two batches, and the tasks of a batch. Each client id belongs to one task.
TRIGGER_S: Final = 10
TASKS: Final = 2
#: What is counted on each maintenance once all clients have pushed.
NOTHING_TO_CARRY: Final = Reconciliation(
    rows=ROLLUP_ROWS.empty_table(), buckets=BUCKET_ROWS.empty_table(), contributions=[], clients=[]
)
_METRICS_OF_A_ROLE: Final = 30
_WRITERS: Final = 2
_DAY: Final = timedelta(days=1)
_TOTALS: Final = (SERIES, FLEETS, SPREADS, CLIENTS)
#: Kinds whose rows are in one task of a batch.
_OF_CLIENTS: Final = (SERIES.name, CLIENTS.name)
#: The newest minutes, which are not merged.
_UNMERGED: Final = timedelta(minutes=3)
_OPEN_HOURS: Final = timedelta(hours=RetentionSettings().pack_after_hours)
#: Batches of a minute.
_BATCHES: Final = 60 // TRIGGER_S
_CLIENTS: Final = """
CREATE TABLE generated_client AS
SELECT
    n, format('client-%%s', n) AS client_id, format('User:team-%%s', n %% 40) AS principal,
    CASE role WHEN 'consumer' THEN format('group-%%s', n / 4) END AS group_id,
    format('cluster-%%s', n / 2 %% 2) AS cluster_id, role, software.name AS software, client,
    versions[1 + n / 20 %% cardinality(versions)] AS version
FROM generate_series(0, %(clients)s - 1) AS n
CROSS JOIN LATERAL (SELECT CASE n %% 2 WHEN 0 THEN 'producer' ELSE 'consumer' END AS role) AS roles
JOIN (VALUES
    (0, 'apache-kafka-java', 'java', ARRAY['3.9.1', '4.0.1', '4.1.0', '4.2.0']),
    (1, 'librdkafka', 'librdkafka', ARRAY['2.8.0', '2.11.1']),
    (2, 'kgo', 'franz-go', ARRAY['1.19.0'])
) AS software (turn, name, client, versions)
ON turn = CASE WHEN n / 4 %% 10 < 7 THEN 0 WHEN n / 4 %% 10 < 9 THEN 1 ELSE 2 END
"""
_DIMENSIONS: Final = """
CREATE TABLE generated_series AS
SELECT
    n, metric, cluster_id, software, version, client_id, principal, group_id,
    CASE by WHEN 'topic' THEN format('topic-%%s', (3 * n + part) %% 200) END AS topic,
    CASE by WHEN 'node_id' THEN part::text END AS node_id,
    breakdown, rule
FROM generated_client
JOIN generated_metric USING (role)
CROSS JOIN LATERAL generate_series(1, CASE by WHEN 'topic' THEN 2 WHEN 'node_id' THEN 3 ELSE 1 END) AS part
WHERE client = ANY (clients)
"""
_FLEETS: Final = """
INSERT INTO telemetry.fleet_series (
    metric, cluster_id, client_software_name, client_software_version, rule
)
SELECT metric, cluster_id, software, version, min(rule) FROM generated_series
GROUP BY metric, cluster_id, software, version ORDER BY min(n), metric
"""
_SERIES: Final = """
INSERT INTO telemetry.series (
    series_high, series_low, fleet_id, metric, cluster_id, client_software_name, client_software_version,
    client_id, principal, group_id, topic, node_id, breakdown, rule
)
SELECT
    hashtextextended(concat_ws('|', g.metric, client_id, topic, node_id, breakdown), 1),
    hashtextextended(concat_ws('|', g.metric, client_id, topic, node_id, breakdown), 2),
    fleet_id, g.metric, g.cluster_id, software, version, client_id, principal, group_id, topic, node_id,
    breakdown, g.rule
FROM generated_series AS g
JOIN telemetry.fleet_series AS f ON (f.metric, f.cluster_id, client_software_name, client_software_version)
    = (g.metric, g.cluster_id, software, version)
-- In the order in which clients came.
ORDER BY n, g.metric
"""
_INSTANCES: Final = """
INSERT INTO telemetry.client_state (
    client_key, client_instance_id, client_id, client_software_name, client_software_version, principal,
    group_id, cluster_id, client_source_address, broker_id, first_seen, last_seen, push_interval_ms,
    minute, terminated, terminated_at, last_ns, covered_until, carried_from, counts, cumulative
)
SELECT
    nextval('telemetry.client_state_id'), concat(lpad(to_hex(n), 8, '0'), '-', i), client_id, software,
    version, principal, group_id, cluster_id, format('10.0.%%s.%%s', n %% 256, i), (i %% 3)::text,
    %(now)s - interval '30 days', seen, 1000 * %(interval)s, seen_s / 60, state = 'left',
    CASE state WHEN 'left' THEN seen END, seen_s * 1000000000,
    -- All counts of clients without new pushes are carried forward.
    CASE state WHEN 'live' THEN extract(epoch FROM %(now)s)::bigint / 60 - 2 ELSE seen_s / 60 + 3 END,
    seen_s / 60, '', ''
FROM generated_client
CROSS JOIN generate_series(1, %(instances)s) AS i
CROSS JOIN LATERAL (
    SELECT CASE WHEN i %% 19 = 18 THEN 'left' WHEN i = 7 AND n %% 10 = 3 THEN 'silent' ELSE 'live' END
        AS state
) AS states
CROSS JOIN LATERAL (
    SELECT %(now)s - CASE state WHEN 'live' THEN i * interval '3 seconds' ELSE i * interval '7 minutes' END
        AS seen
) AS times
CROSS JOIN LATERAL (SELECT extract(epoch FROM seen)::bigint AS seen_s) AS seconds
"""
_FINDINGS: Final = """
INSERT INTO telemetry.finding (
    kind, severity, cluster_id, client_software_name, client_software_version, client_id, principal,
    first_seen, last_seen, resolved_at, began_at, held_at, ended_at, summary, evidence
)
SELECT
    (ARRAY['throttled', 'slow_client', 'silent', 'old_version', 'known_bad_version'])[1 + n %% 5],
    (ARRAY['info', 'warning', 'critical'])[1 + n %% 3], cluster_id, software, version, client_id, principal,
    %(now)s - (n %% 30) * interval '1 day', %(now)s - (n %% 29) * interval '1 day',
    CASE WHEN n %% 3 > 0 THEN %(now)s - (n %% 29) * interval '1 day' END,
    %(now)s - (n %% 30) * interval '1 day', %(now)s - (n %% 29) * interval '1 day',
    CASE WHEN n %% 3 > 0 THEN %(now)s - (n %% 29) * interval '1 day' END,
    'generated', '{"reasons": ["generated"]}'
FROM generated_client
"""
_LEDGER: Final = """
INSERT INTO telemetry.ledger (query_id, batch_id, committed_at, newest_received_at)
SELECT 'generated', n, %(now)s - n * interval '1 minute', %(now)s - n * interval '1 minute'
FROM generate_series(0, 30 * 1440) AS n
"""
#: A number that depends on an id and a seed: zero for one of four ids, whole for counters.
_VALUE: Final = """(
    SELECT CASE WHEN {id} & 3 = 0 THEN 0
        ELSE (1 + (hashint8extended({id}, {seed}) & 1023)) * CASE rule WHEN 0 THEN 1 ELSE 1.1 END
    END::float8 AS v
) AS numbers"""
_STATISTICS: Final = (
    "{points}, {points} * v, floor(v / 2), 2 * v, CASE WHEN rule IN (1, 2) THEN {points} * v END"
)
_JAVA: Final = "CASE WHEN client = 'java' THEN {} END"
_CONSUMER: Final = "CASE WHEN client = 'java' AND role = 'consumer' THEN {} END"
_PRODUCER: Final = "CASE WHEN client = 'java' AND role = 'producer' THEN {} END"
_RECORDS: Final = "CASE WHEN client <> 'franz-go' THEN {} END"
_WATCHED: Final = {
    "connections_created": "{pushes}",
    "throttle_ms_max": _JAVA.format("v"),
    "request_latency_ms_sum": "30.5 * {pushes} + v",
    "request_latency_points": "3 * {pushes}",
    "request_latency_ms_max": "20 + v",
    "poll_idle_ratio_sum": _CONSUMER.format("0.5 * {pushes}"),
    "poll_idle_ratio_points": _CONSUMER.format("{pushes}"),
    "rebalances": _CONSUMER.format("v::int & 1"),
    "rebalance_ms": _CONSUMER.format("v"),
    "assigned_partitions": _CONSUMER.format("3"),
    "records": _RECORDS.format("100 * v"),
    "bytes": _RECORDS.format("10000 * v"),
    "record_errors": _PRODUCER.format("0"),
}
#: The rows of one bucket and load: the columns after the bucket, without the load id.
_ROWS: Final[Mapping[str, str]] = {
    SERIES.name: f"SELECT series_id, {{bucket}}, {_STATISTICS} FROM telemetry.series CROSS JOIN LATERAL "
    f"{_VALUE.replace('{id}', 'series_id')} ORDER BY 1",
    FLEETS.name: f"SELECT fleet_id, {{bucket}}, {_STATISTICS} FROM telemetry.fleet_series CROSS JOIN LATERAL "
    f"{_VALUE.replace('{id}', 'fleet_id')} ORDER BY 1",
    SPREADS.name: "SELECT fleet_id, {bucket}, spread, 1 + (hashint8extended(fleet_id, {seed} + spread) & 7) "
    "FROM telemetry.fleet_series, generate_series(40, 64) AS spread "
    "WHERE rule = 5 AND ({loads} = 1 OR (spread + {seed}) % 3 = 0) ORDER BY 1, 3",
    CLIENTS.name: "SELECT client_key, {bucket}, {pushes}, 50 * {pushes}, {pushes} * "
    f"{1000 * INTERVAL_S}, false, broker_id, client_source_address, "
    f"{', '.join(_WATCHED[slot.column] for slot in WATCHED)} "
    "FROM telemetry.client_state JOIN public.generated_client USING (client_id) "
    "CROSS JOIN LATERAL (SELECT 0 AS rule) AS rules CROSS JOIN LATERAL "
    f"{_VALUE.replace('{id}', 'client_key')} "
    # Each client pushes in one of the batches of a minute.
    "WHERE client_key % {loads} = {load} % {loads} ORDER BY 1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Rows of one partition to make: each bucket from a time on in some loads, others in one."""

    totals: Totals
    grain: Grain
    buckets: Sequence[datetime]
    merged_until: datetime

    def loads(self, bucket: datetime) -> int:
        """Return the number of loads that have rows of a bucket."""
        if self.grain is not MINUTES or bucket < self.merged_until:
            return 1
        return _BATCHES * (1 if self.totals.name in _OF_CLIENTS else TASKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedStore:
    """How much to make.

    Attributes:
        clients: Client ids; each has twenty instances.
        days: Days of hours and days.
        minute_days: Days of minutes.
    """

    clients: int = 500
    days: int = 30
    minute_days: int = 7

    def fill(self, url: str, *, now: datetime) -> None:
        """Fill a database whose schema is migrated.

        Args:
            url: Its URL, of a role that may write.
            now: The end of what is made.
        """
        now_ns = round(now.timestamp() * 1e9)
        self._add_subjects(url, now)
        closed = now.replace(second=0, microsecond=0) - timedelta(minutes=1) - _OPEN_HOURS
        parts = list(self._parts(now, closed))
        with Store(url, retention=RetentionSettings()) as store:
            with store.maintenance(now_ns) as maintenance:
                maintenance.expire()
                partitions = Partitions(maintenance.connection.cursor())
                for part in parts:
                    partitions.ensure(part.totals.table(part.grain), part.buckets)
            with ThreadPoolExecutor(_WRITERS) as writers:
                for done in [writers.submit(_write, url, part) for part in parts]:
                    done.result()
            store.pack(now_ns)
            store.pack(now_ns, all_of_them=True)
            with store.maintenance(now_ns) as maintenance:
                cursor = maintenance.connection.cursor()
                for grain, since in self._since(now).items():
                    _repeat(cursor, grain, _newest_window(grain, closed), since=since)
                maintenance.carry(NOTHING_TO_CARRY)
                maintenance.expire()
        _vacuum(url)

    def _add_subjects(self, url: str, now: datetime) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = psycopg.ClientCursor(connection)
            cursor.execute(
                "CREATE TABLE generated_metric (metric text, role text, by text, breakdown bool, rule "
                "int, clients text[])"
            )
            cursor.executemany(
                "INSERT INTO generated_metric VALUES (%s, %s, %s, %s, %s, %s)", list(_metrics())
            )
            arguments = {
                "clients": self.clients,
                "instances": INSTANCES_OF_A_CLIENT_ID,
                "interval": INTERVAL_S,
                "now": now,
            }
            for statement in (_CLIENTS, _DIMENSIONS, _FLEETS, _SERIES, _INSTANCES, _FINDINGS, _LEDGER):
                cursor.execute(statement.encode(), arguments)
            connection.execute("ANALYZE")

    def _since(self, now: datetime) -> dict[Grain, datetime]:
        """The first window of each grain whose windows are copies."""
        today = beginning("day", now)
        minutes, hours, _ = GRAINS
        return {minutes: today - self.minute_days * _DAY, hours: today - self.days * _DAY}

    def _parts(self, now: datetime, closed: datetime) -> Iterator[_Part]:
        """What the roll-up's own tables get: what stays open, and what is packed by the roll-up."""
        for grain in reversed(GRAINS):
            window = _newest_window(grain, closed)
            since = beginning("day", now) - self.days * _DAY if grain is GRAINS[-1] else window
            parts: dict[datetime, list[datetime]] = {}
            for number in range((now - since) // grain.length + 1):
                bucket = since + number * grain.length
                parts.setdefault(beginning(grain.partition, bucket), []).append(bucket)
            for buckets in parts.values():
                for totals in _TOTALS:
                    if grain.name in totals.grains:
                        yield _Part(totals=totals, grain=grain, buckets=buckets, merged_until=now - _UNMERGED)


def _newest_window(grain: Grain, closed: datetime) -> datetime:
    """The beginning of the newest window of minutes or hours that is packed."""
    if grain is not MINUTES:
        closed -= _DAY
    return beginning(grain.window, beginning(grain.window, closed) - timedelta(minutes=1))


def _write(url: str, part: _Part) -> None:
    """Fill a partition. Its indexes are built afterwards, because that is much faster."""
    totals, grain = part.totals, part.grain
    columns = ["bucket", *totals.values]
    columns[0:0] = totals.key[:1]
    columns[2:2] = totals.key[1:]
    if grain is MINUTES:
        columns.append("load_id")
    with psycopg.connect(url) as connection:
        connection.execute("SET search_path = telemetry; SET maintenance_work_mem = '256MB'")
        with _without_indexes(connection, totals.table(grain), part.buckets[0]) as partition:
            for bucket in part.buckets:
                loads = part.loads(bucket)
                for load in range(loads):
                    number = int(bucket.timestamp()) // 60 * loads + load
                    rows = _ROWS[totals.name].format(
                        bucket=sql.Literal(bucket).as_string() + "::timestamptz",
                        seed=number,
                        load=load,
                        loads=loads,
                        points=grain.minutes * ((INSTANCES_OF_A_CLIENT_ID + load) // loads),
                        pushes=grain.minutes,
                    )
                    query = sql.SQL("INSERT INTO {} ({}) SELECT rows.*{} FROM ({}) AS rows").format(
                        sql.Identifier(partition),
                        _names(columns),
                        sql.SQL(f", {number if loads > 1 else MERGED_LOAD}" if grain is MINUTES else ""),
                        sql.SQL(rows),
                    )
                    connection.execute(query)
            if grain is MINUTES and totals is SERIES:
                _bring_together(connection, partition, part.merged_until)


def _bring_together(connection: psycopg.Connection[Any], partition: str, until: datetime) -> None:
    """Sort rows as merging does."""
    connection.execute(
        sql.SQL(
            "CREATE TEMPORARY TABLE sorted ON COMMIT DROP AS SELECT * FROM {partition}; "
            "TRUNCATE {partition}; INSERT INTO {partition} SELECT * FROM sorted "
            "ORDER BY least(date_bin({length}, bucket, {epoch}), date_bin({length}, {until}, {epoch})), "
            "CASE WHEN bucket >= date_bin({length}, {until}, {epoch}) THEN bucket END NULLS FIRST, "
            "series_id, bucket"
        ).format(
            partition=sql.Identifier(partition),
            length=sql.Literal(NEIGHBOURS),
            epoch=sql.Literal(EPOCH),
            until=sql.Literal(until),
        )
    )


@contextmanager
def _without_indexes(connection: psycopg.Connection[Any], table: str, bucket: datetime) -> Iterator[str]:
    """Detach the partition of a bucket and drop its indexes; attach it with them afterwards."""
    ((partition, bound),) = connection.execute(
        "SELECT relname, pg_get_expr(relpartbound, pg_class.oid) FROM pg_inherits "
        "JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = %s::regclass "
        "AND %s::timestamptz >= substring(pg_get_expr(relpartbound, pg_class.oid) "
        "FROM $$FROM \\('([^']*)$$)::timestamptz "
        "AND %s::timestamptz < substring(pg_get_expr(relpartbound, pg_class.oid) "
        "FROM $$TO \\('([^']*)$$)::timestamptz",
        [table, bucket, bucket],
    )
    parent, name = sql.Identifier(table), sql.Identifier(partition)
    connection.execute(sql.SQL("ALTER TABLE {} DETACH PARTITION {}").format(parent, name))
    for index, constraint in connection.execute(
        "SELECT relname, conname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
        "LEFT JOIN pg_constraint ON conindid = indexrelid WHERE indrelid = %s::regclass",
        [partition],
    ).fetchall():
        if constraint is None:
            connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(index)))
        else:
            connection.execute(
                sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(name, sql.Identifier(constraint))
            )
    connection.commit()
    yield partition
    connection.execute(sql.SQL("ALTER TABLE {} ATTACH PARTITION {} {}").format(parent, name, sql.SQL(bound)))


def _repeat(cursor: psycopg.Cursor[Any], grain: Grain, start: datetime, *, since: datetime) -> None:
    """Copy a packed window to all windows from a time to it."""
    length = grain.slots_in_window(start) * grain.length
    starts = [start - number * length for number in range(1, (start - since) // length + 1)]
    for other in starts:
        cursor.execute(
            sql.SQL(
                "INSERT INTO {slots} (bucket, start, at, bit, below) "
                "SELECT bucket - %(ago)s, start - %(ago)s, at, bit, below FROM {slots} "
                "WHERE start = %(start)s"
            ).format(slots=sql.Identifier(grain.slots)),
            {"ago": start - other, "start": start},
        )
    partitions = Partitions(cursor)
    for totals in _TOTALS:
        if grain.name in totals.grains:
            table = totals.packed_table(grain)
            partitions.ensure(table, starts)
            columns = _names([*totals.key, "present", *(name for name, _ in packed_columns(totals))])
            # The oldest first, as packing does.
            for other in reversed(starts):
                cursor.execute(
                    sql.SQL(
                        "INSERT INTO {table} (start, {columns}) SELECT {other}, {columns} FROM {table} "
                        "WHERE start = {start} ORDER BY {key}"
                    ).format(
                        table=sql.Identifier(table),
                        columns=columns,
                        other=sql.Literal(other),
                        start=sql.Literal(start),
                        key=_names(totals.key),
                    )
                )


def _vacuum(url: str) -> None:
    """Do what autovacuum does, which analyzes partitions, and what the roll-up does each day."""
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'telemetry'::regnamespace AND relkind = 'r'"
        ).fetchall()

    def vacuum(number: int) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            for (table,) in tables[number::_WRITERS]:
                name = sql.Identifier("telemetry", table)
                connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(name))

    with ThreadPoolExecutor(_WRITERS) as writers:
        for done in [writers.submit(vacuum, number) for number in range(_WRITERS)]:
            done.result()
    with psycopg.connect(url) as connection:
        cursor = connection.cursor()
        for table in plan_statistics.lacking(cursor):
            plan_statistics.gather(cursor, table)


def _names(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _metrics() -> Iterator[tuple[Any, ...]]:
    everybody = ["java", "librdkafka", "franz-go"]
    for role in ("producer", "consumer"):
        found = [metric for metric in CATALOGUE if metric.name.startswith(f"org.apache.kafka.{role}.")]
        usable = [
            metric for metric in found
            if metric.kind is not MetricKind.HISTOGRAM and metric.combines is not Combination.NONE
        ]  # fmt: skip
        for metric in sorted(usable, key=_interest)[:_METRICS_OF_A_ROLE]:
            for index, by in enumerate(metric.by):
                level = next((name for name in ("topic", "node_id") if name in by), "")
                rule = RULES.index(metric.combines)
                yield metric.name, role, level, index > 0, rule, list(metric.clients)
        for name, combines in (("clients", "last"), ("pushes", "sum")):
            yield f"kafka.client.telemetry.{name}", role, "", False, RULES.index(combines), everybody


def _interest(metric: StandardMetric) -> tuple[bool, bool, str]:
    """Those that panels draw come first: the required ones, and totals."""
    return (
        not metric.required,
        not metric.name.endswith((".total", "lag.max", "poll.avg", "poll.max")),
        metric.name,
    )
