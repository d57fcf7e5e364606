"""Bytes of packed rows in PostgreSQL, for :mod:`benchmarks.sizing_measured`.

A day of minutes of some client ids goes through the store's own loads, computation of hours, and
packing. Values are those of a captured push of a real client, varied as in
:mod:`benchmarks.rollup_spool`: whole numbers stay whole, and zeros stay zero.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from math import inf, isfinite
from typing import Final

import numpy as np
import psycopg
import pyarrow as pa
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks.captured import Captured
from receiver.catalogue import CATALOGUE, Combination
from spark_streaming.postgres import BatchStatistics, Store, Sums, TaskStore
from spark_streaming.postgres.pack_window import WindowPacking
from spark_streaming.postgres.packing import Packing
from spark_streaming.postgres.partitions import Partitions
from spark_streaming.postgres.spans import beginning
from spark_streaming.rows import ENTRY_ROWS, ROLLUP_ROWS, RULES
from spark_streaming.settings import RetentionSettings
from spark_streaming.watched import WATCHED
from tests.testbed.cpu import cpu_seconds

#: Series with minutes, so many that whole pages don't matter, and instances with minutes.
_SERIES: Final = 400
_INSTANCES: Final = 60
_HOURS: Final = 24
_SEED: Final = 714
_SIZES: Final = """
SELECT parent.relname, sum(pg_relation_size(part.oid) + pg_relation_size(index.indexrelid))
FROM pg_class AS parent
JOIN pg_inherits ON inhparent = parent.oid
JOIN pg_class AS part ON part.oid = inhrelid
JOIN pg_index AS index ON index.indrelid = part.oid AND indisprimary
WHERE parent.relnamespace = 'telemetry'::regnamespace AND parent.relname LIKE '%_packed'
GROUP BY 1
"""
_TABLES: Final = (
    "rollup_1m", "rollup_1h", "rollup_1d", "client_rollup_1m", "client_rollup_1h", "fleet_rollup_1m",
    "fleet_rollup_1h", "fleet_spread_1m", "fleet_spread_1h",
)  # fmt: skip
_VARIED: Final = """
CREATE FUNCTION pg_temp.varied(value float8, factor float8) RETURNS float8 LANGUAGE sql AS
'SELECT CASE WHEN value = trunc(value) THEN round(value * factor) ELSE value * factor END'
"""
#: The other days of the month, varied like the minutes.
_MONTH: Final = """
INSERT INTO rollup_1d (series_id, bucket, points, sum, min, max, pushed_sum)
SELECT series_id, other, points, pg_temp.varied(sum, f), pg_temp.varied(min, f), pg_temp.varied(max, f),
    pg_temp.varied(pushed_sum, f)
FROM rollup_1d
CROSS JOIN generate_series(
    date_trunc('month', bucket), date_trunc('month', bucket) + interval '27 days', interval '1 day'
) AS other
CROSS JOIN LATERAL (SELECT 0.5 + random() AS f WHERE other IS NOT NULL) AS factor
WHERE other <> bucket
"""


def packed_rows(
    url: str, client: Captured, *, sharing: int, interval_s: int = 60
) -> tuple[dict[str, float], float]:
    """Pack a day of minutes.

    Args:
        url: An empty database.
        client: Whose metrics and values to take.
        sharing: Instances of a client id. They push at the same time.
        interval_s: Their push interval, whole minutes.

    Returns:
        Bytes of each row that was packed, by its table and with the index; and PostgreSQL's CPU to
        pack a row, in microseconds.
    """
    now = datetime.now(UTC)
    # In a month that is closed.
    day = beginning("month", beginning("month", now - timedelta(days=2)) - timedelta(days=1))
    chance = np.random.default_rng(_SEED)
    metrics = list(_metrics(client))
    metrics *= -(-_SERIES // len(metrics))
    retention = RetentionSettings(minute_days=90)
    with Store(url, retention=retention) as store, closing(TaskStore(url, retention=retention)) as tasks:
        store.migrate()
        with psycopg.connect(url) as connection:
            connection.execute(
                "INSERT INTO telemetry.series (series_id, fleet_id, metric, breakdown, rule) "
                "SELECT n, n, n, false, 0 FROM generate_series(1, %s) AS n",
                [len(metrics)],
            )
        for hour in range(_HOURS):
            minute = int((day + timedelta(hours=hour)).timestamp()) // 60
            with store.batch("sizing", hour) as batch:
                assert batch is not None
                horizons = tasks.begin()
                sums, entries = Sums(horizons), _entries(minute, chance)
                sums.add(_rows(metrics, minute, sharing, interval_s // 60, chance))
                sums.add_clients(entries)
                with tasks.load(horizons, sums, {}, ("sizing", hour)) as load:
                    load.totals(sums)
                    load.clients([], entries)
                batch.enter([load.load_id], [minute])
                batch.record(
                    BatchStatistics(
                        pushes=0,
                        repeats=0,
                        points=0,
                        entries=entries.num_rows,
                        rows=0,
                        dead_letters=0,
                        left_out=sums.left_out,
                        overflowed=0,
                        newest_received_at_ns=None,
                        duration_s=0.0,
                    )
                )
        with store.maintenance(time.time_ns()) as maintenance:
            maintenance.compute_hours_and_days(all_of_them=True)
            connection = maintenance.connection
            connection.execute(_VARIED)
            connection.execute(_MONTH)
            counts = [
                connection.execute(f"SELECT count(*) FROM {name}".encode()).fetchone() for name in _TABLES
            ]
            began = cpu_seconds(connection.info.backend_pid)
            cursor = connection.cursor()
            partitions = Partitions(cursor)
            packing = Packing(cursor, partitions)
            closed = packing.closed(time.time_ns()) - timedelta(hours=retention.pack_after_hours)
            for window in packing.plan(closed):
                WindowPacking(cursor, partitions, window).pack(inf)
            spent_s = cpu_seconds(connection.info.backend_pid) - began
    rows = {name: int(count[0]) for name, count in zip(_TABLES, counts, strict=True) if count is not None}
    with psycopg.connect(url) as connection:
        sizes = {str(name).removesuffix("_packed"): float(size) for name, size in connection.execute(_SIZES)}
    return {name: sizes[name] / count for name, count in rows.items()}, 1e6 * spent_s / sum(rows.values())


def _metrics(client: Captured) -> Iterator[tuple[float, bool, int]]:
    """The value of each data point, whether it is a sum, and its rule."""
    data = MetricsData.FromString(client.inflated())
    for metric in (m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics):
        is_sum = metric.HasField("sum")
        known = CATALOGUE.metric(metric.name)
        rule = RULES.index(Combination.SUM if known is None else known.combines)
        for point in (metric.sum if is_sum else metric.gauge).data_points:
            value = float(point.as_int or point.as_double)
            # NaN and infinities are not stored.
            if isfinite(value):
                yield value, is_sum, rule


def _rows(
    metrics: list[tuple[float, bool, int]],
    minute: int,
    sharing: int,
    every: int,
    chance: np.random.Generator,
) -> pa.Table:
    """Return ``ROLLUP_ROWS`` of an hour: a series for each metric, added up over instances.

    Minutes without a push have only the counts that continue.
    """
    value, is_sum, rule = (np.array(column) for column in zip(*metrics, strict=True))
    shape = (60, len(metrics), sharing)
    values = value[:, None] * chance.uniform(0.5, 1.5, shape)
    is_whole = is_sum | (value == np.trunc(value))
    values = np.where(is_whole[:, None], np.round(values), values)
    sums = values.sum(axis=-1).ravel()
    count = sums.size
    series = np.tile(1 + np.arange(len(metrics)), 60)
    is_pushed = np.isin(np.tile(rule, 60), [RULES.index("rate"), RULES.index("last")])
    is_spread = np.tile(rule, 60) == RULES.index("distribution")
    minutes = np.repeat(minute + np.arange(60), len(metrics))
    is_push = minutes % every == 0
    continues = np.tile(rule, 60) == RULES.index("last")
    made = pa.table(
        {
            "minute": minutes,
            "series_id": series,
            "fleet_id": series,
            "breakdown": np.zeros(count, np.bool_),
            "spread": pa.array(chance.integers(0, 40, count).astype(np.int16), mask=~is_spread),
            "points": np.where(is_push, sharing, 0),
            "sum": sums,
            "min": pa.array(values.min(axis=-1).ravel(), mask=~is_push),
            "max": pa.array(values.max(axis=-1).ravel(), mask=~is_push),
            "observations": np.where(is_spread, sharing, 0),
            "pushed_sum": pa.array(sums, mask=~is_pushed | ~is_push),
        },
        schema=ROLLUP_ROWS,
    )
    return made.filter(pa.array(is_push | continues))


def _entries(minute: int, chance: np.random.Generator) -> pa.Table:
    """Return ``ENTRY_ROWS`` of an hour of instances that push once a minute."""
    return pa.Table.from_pylist(
        [
            {
                "push_id": f"{key:032x}",
                "received_at_ns": at * 60_000_000_000,
                "terminating": False,
                "push_interval_ms": 60_000,
                "time_ns": at * 60_000_000_000,
                "minute": at,
                "client_key": key,
                "client_instance_id": f"instance-{key}",
                "client_id": f"client-{key}",
                "broker_id": "1",
                "client_source_address": "10.0.0.1",
                "pushes": 1,
                "points": 100,
                # Half of them are zero or whole: nothing is throttled, nothing fails.
                "watched": [
                    0.0 if number % 2 else float(chance.uniform(0, 100)) for number in range(len(WATCHED))
                ],
            }
            for at in range(minute, minute + 60)
            for key in range(1, _INSTANCES + 1)
        ],
        ENTRY_ROWS,
    )
