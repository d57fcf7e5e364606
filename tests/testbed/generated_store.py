"""Generates a store of many clients and days by SQL, to test plans and times of queries.

Rows lie as the roll-up writes them: by time, not by series. Partitions are filled before they are
attached, because to build an index is much faster than to keep one. Closed hours and days are then
packed by the roll-up's maintenance. Values mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg import sql

from receiver.catalogue import CATALOGUE, Combination, MetricKind, StandardMetric
from spark_streaming.postgres import Store
from spark_streaming.postgres.partitions import PARTITIONED, beginning
from spark_streaming.postgres.spans import end
from spark_streaming.rows import RULES
from spark_streaming.settings import RetentionSettings

_METRICS_OF_A_ROLE: Final = 30
_INSTANCES_OF_A_CLIENT_ID: Final = 20
_WRITERS: Final = 2
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
_SERIES: Final = """
INSERT INTO telemetry.series (
    series_id, fleet_id, metric, cluster_id, client_software_name, client_software_version, client_id,
    principal, group_id, topic, node_id, breakdown, rule
)
SELECT
    hashtextextended(concat_ws('|', metric, client_id, part, breakdown), 1),
    hashtextextended(concat_ws('|', metric, cluster_id, software, version), 1),
    metric, cluster_id, software, version, client_id, principal, group_id,
    CASE by WHEN 'topic' THEN format('topic-%%s', (3 * n + part) %% 200) END,
    CASE by WHEN 'node_id' THEN part::text END,
    breakdown, rule
FROM generated_client
JOIN generated_metric USING (role)
CROSS JOIN LATERAL generate_series(1, CASE by WHEN 'topic' THEN 2 WHEN 'node_id' THEN 3 ELSE 1 END) AS part
WHERE client = ANY (clients)
"""
_FLEETS: Final = """
INSERT INTO telemetry.fleet_series (
    fleet_id, metric, cluster_id, client_software_name, client_software_version, rule
)
SELECT DISTINCT fleet_id, metric, cluster_id, client_software_name, client_software_version, rule
FROM telemetry.series WHERE NOT breakdown
"""
_INSTANCES: Final = """
INSERT INTO telemetry.client_state (
    client_key, client_instance_id, client_id, client_software_name, client_software_version, principal,
    group_id, cluster_id, client_source_address, broker_id, first_seen, last_seen, push_interval_ms,
    terminated, last_ns, covered_until
)
SELECT
    hashtextextended(concat_ws('|', client_id, i), 2), concat(lpad(to_hex(n), 8, '0'), '-', i), client_id,
    software, version, principal, group_id, cluster_id, format('10.0.%%s.%%s', n %% 256, i), (i %% 3)::text,
    %(now)s - interval '30 days', %(now)s - i * interval '1 minute', 300000, i %% 19 = 18,
    (extract(epoch FROM %(now)s) - 60 * i) * 1e9, extract(epoch FROM %(now)s) / 60 - 3
FROM generated_client CROSS JOIN generate_series(1, %(instances)s) AS i
"""
_FINDINGS: Final = """
INSERT INTO telemetry.finding (
    kind, severity, cluster_id, client_software_name, client_software_version, client_id, principal,
    first_seen, last_seen, resolved_at, summary, evidence
)
SELECT
    (ARRAY['throttled', 'slow_client', 'silent', 'old_version', 'known_bad_version'])[1 + n %% 5],
    (ARRAY['info', 'warning', 'critical'])[1 + n %% 3], cluster_id, software, version, client_id, principal,
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
#: The rows of one bucket, by the table's name without its grain.
_ROWS: Final = {
    "rollup": "SELECT series_id, {bucket}, 5, 1 + (series_id & 1023), 1, 1 + (series_id & 2047) FROM "
    "telemetry.series",
    "fleet_rollup": "SELECT fleet_id, {bucket}, 5, 1 + (fleet_id & 65535), 1, 1 + (fleet_id & 2047)"
    " FROM telemetry.fleet_series",
    "fleet_spread": "SELECT fleet_id, {bucket}, spread, 1 + (spread & 7) FROM telemetry.fleet_series,"
    " generate_series(40, 64) AS spread WHERE rule = 5",
    "client_rollup": "SELECT client_key, {bucket}, 1, 30, false, broker_id, client_source_address, 1, 0, "
    "30, 3, 20,"
    " 0.5, 1, 0, 0, 3, 100, 10000, 0 FROM telemetry.client_state",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedStore:
    """How much to make.

    Attributes:
        clients: Client ids; each has twenty instances.
        days: Days of hours and days.
        minutes_for: How far minutes reach back.
    """

    clients: int = 500
    days: int = 30
    minutes_for: timedelta = timedelta(hours=26)

    def fill(self, url: str, *, now: datetime) -> None:
        """Fill a database whose schema is migrated.

        Args:
            url: Its URL, of a role that may write.
            now: The end of what is made.
        """
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = psycopg.ClientCursor(connection)
            cursor.execute(
                "CREATE TABLE generated_metric (metric text, role text, by text, breakdown bool, rule "
                "int, clients text[])"
            )
            cursor.executemany(
                "INSERT INTO generated_metric VALUES (%s, %s, %s, %s, %s, %s)", list(_metrics())
            )
            arguments = {"clients": self.clients, "instances": _INSTANCES_OF_A_CLIENT_ID, "now": now}
            for statement in (_CLIENTS, _SERIES, _FLEETS, _INSTANCES, _FINDINGS, _LEDGER):
                cursor.execute(statement.encode(), arguments)
        with ThreadPoolExecutor(_WRITERS) as writers:
            for done in [writers.submit(_fill, url, *part) for part in self._partitions(now)]:
                done.result()
        with Store(url, retention=RetentionSettings()) as store:
            now_ns = round(now.timestamp() * 1e9)
            store.pack(now_ns, all_of_them=True)
            with store.maintenance(now_ns) as maintenance:
                maintenance.expire()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")

    def _partitions(self, now: datetime) -> Iterator[tuple[str, datetime, list[datetime]]]:
        day = timedelta(days=1)
        minute = now.replace(second=0, microsecond=0)
        steps = {
            "1m": (timedelta(minutes=1), minute, int(self.minutes_for / timedelta(minutes=1))),
            "1h": (timedelta(hours=1), minute.replace(minute=0), self.days * 24),
            "1d": (day, minute.replace(minute=0, hour=0), self.days),
        }
        for grain, (step, newest, count) in steps.items():
            for kind in _ROWS:
                table = f"{kind}_{grain}"
                if table not in PARTITIONED:
                    continue
                parts: dict[datetime, list[datetime]] = {}
                for ago in reversed(range(count)):
                    bucket = newest - ago * step
                    parts.setdefault(beginning(PARTITIONED[table], bucket), []).append(bucket)
                for start, buckets in parts.items():
                    yield table, start, buckets


def _fill(url: str, table: str, start: datetime, buckets: list[datetime]) -> None:
    span = PARTITIONED[table]
    until = end(span, start)
    name = {"hour": f"{start:%Y%m%d%H}", "day": f"{start:%Y%m%d}", "month": f"{start:%Y%m}"}[span]
    partition = sql.Identifier("telemetry", f"{table}_p{name}")
    parent = sql.Identifier("telemetry", table)
    rows = _ROWS[table.rpartition("_")[0]]
    if table == "client_rollup_1m":
        # Each instance pushes every five minutes.
        rows += " WHERE (client_key & 1023) % 5 = extract(minute FROM {bucket})::int % 5"
    with psycopg.connect(url) as connection:
        connection.execute(
            sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS) WITH (fillfactor = 70)").format(
                partition, parent
            )
        )
        for bucket in buckets:
            connection.execute(
                sql.SQL("INSERT INTO {} {}").format(
                    partition,
                    sql.SQL(rows).format(bucket=sql.SQL("{}::timestamptz").format(sql.Literal(bucket))),
                )
            )
        connection.execute(
            sql.SQL("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})").format(
                parent, partition, sql.Literal(start.isoformat()), sql.Literal(until.isoformat())
            )
        )


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
