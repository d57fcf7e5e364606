"""``python -m benchmarks.rollup_naive SPOOL URL CORES``: a naive roll-up in PySpark.

A Python UDF decodes, Spark's state removes repeats and adds up windows, and finished windows go to
PostgreSQL. It prints JSON. Silent clients, several pushes in a minute, late points, spreads and
crashes are left out; they would cost it more.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

_DIMENSIONS = (
    "metric",
    "cluster_id",
    "client_software_name",
    "client_software_version",
    "client_id",
    "principal",
    "group_id",
    "topic",
    "node_id",
)
_POINTS = (
    f"array<struct<time timestamp, {', '.join(f'{name} string' for name in _DIMENSIONS)}, value double>>"
)
_SPOOL = "push_id string, received_at timestamp, otlp binary"


def _points(otlp: bytes) -> list[tuple[object, ...]]:
    return list(_decoded(MetricsData.FromString(otlp)))


def _decoded(data: MetricsData) -> Iterator[tuple[object, ...]]:
    for resource in data.resource_metrics:
        labels = {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                # The captured clients push no other kinds.
                kind = metric.sum if metric.HasField("sum") else metric.gauge
                for point in kind.data_points:
                    own = labels | {
                        attribute.key: attribute.value.string_value for attribute in point.attributes
                    }
                    value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
                    yield (
                        datetime.fromtimestamp(point.time_unix_nano / 1e9, UTC),
                        metric.name,
                        *(own.get(name) for name in _DIMENSIONS[1:]),
                        float(value),
                    )


def main() -> None:
    """Run the job over all files."""
    spool, url, cores = sys.argv[1:]
    ended: list[float] = []
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    columns = ", ".join(("bucket", *_DIMENSIONS, "points", "sum", "min", "max"))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE naive (bucket timestamptz, "
            + ", ".join(f"{name} text" for name in _DIMENSIONS)
            + ", points bigint, sum float8, min float8, max float8, "
            f"UNIQUE NULLS NOT DISTINCT (bucket, {', '.join(_DIMENSIONS)}))"
        )

    def write(rows: DataFrame, _: int) -> None:
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE staged (LIKE naive) ON COMMIT DROP")
            with cursor.copy(f"COPY staged ({columns}) FROM STDIN") as copy:
                for row in rows.toLocalIterator():
                    copy.write_row(row)
            cursor.execute(
                f"INSERT INTO naive SELECT {columns} FROM staged "
                f"ON CONFLICT (bucket, {', '.join(_DIMENSIONS)}) DO UPDATE SET "
                "points = excluded.points, sum = excluded.sum, min = excluded.min, max = excluded.max"
            )
        ended.append(time.monotonic())

    decode = f.udf(_points, _POINTS)
    with tempfile.TemporaryDirectory() as checkpoint:
        pushes = (
            spark.readStream.schema(_SPOOL)
            .options(recursiveFileLookup="true", maxFilesPerTrigger="1")
            .parquet(spool)
        )
        totals = (
            pushes.withWatermark("received_at", "1 minute")
            .dropDuplicatesWithinWatermark(["push_id"])
            .select("received_at", f.inline(decode("otlp")))
            .groupBy(f.window("received_at", "1 minute"), *_DIMENSIONS)
            .agg(
                f.count("value").alias("points"),
                f.sum("value").alias("sum"),
                f.min("value").alias("min"),
                f.max("value").alias("max"),
            )
            .select(f.col("window.start").alias("bucket"), *_DIMENSIONS, "points", "sum", "min", "max")
        )
        query = (
            totals.writeStream.outputMode("append")
            .foreachBatch(write)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        problem = query.exception()
        if problem is not None:
            raise problem
        inputs = [progress["numInputRows"] for progress in query.recentProgress]
    print(json.dumps({"ended": ended, "pushes": inputs}))
    spark.stop()


if __name__ == "__main__":
    main()
