"""Second sink: raw data points and roll-up rows as Parquet files or Delta tables.

A repeated batch replaces its Parquet files. Delta skips it. Parquet readers see only whole batches,
because each is written to a hidden folder, which is then renamed.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_streaming.settings import LakeSettings

_PUSH_COLUMNS: Final = ("push_id", "received_at_ns", "terminating", "push_interval_ms")


class Lake:
    """Writes batches as files; Delta needs a Spark session with its extension."""

    def __init__(self, spark: SparkSession, settings: LakeSettings) -> None:
        self._spark = spark
        self._format = settings.format
        self._path = settings.path.rstrip("/")

    def write(self, pushes: DataFrame, rows: DataFrame, query_id: str, batch_id: int) -> None:
        """Write the data points of a batch, and its ``ROLLUP_ROWS``."""
        points = pushes.select(
            *_PUSH_COLUMNS, f.inline(f.call_function("otlp_data_points", f.col("otlp"))["points"])
        )
        self._put("points", points, query_id, batch_id)
        self._put("rollup", rows, query_id, batch_id)

    def _put(self, name: str, frame: DataFrame, query_id: str, batch_id: int) -> None:
        folder = f"{self._path}/{name}"
        if self._format == "delta":
            # A later version may have more columns than the table.
            writer = frame.write.format("delta").mode("append").option("mergeSchema", "true")
            # Delta skips a version that it already has from the same application.
            writer.option("txnAppId", query_id).option("txnVersion", batch_id).save(folder)
            return
        hidden, shown = f"{folder}/_{query_id}-{batch_id}", f"{folder}/{query_id}-{batch_id}"
        frame.write.mode("overwrite").parquet(hidden)
        self._replace(hidden, shown)

    def _replace(self, hidden: str, shown: str) -> None:
        # Hadoop's API, because the folder may be on any file system that it supports.
        context = self._spark.sparkContext
        path = context._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]  # noqa: SLF001
        source, target = path(hidden), path(shown)
        system = source.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
        system.delete(target, True)  # noqa: FBT003 -- recursive, in Hadoop's signature
        if not system.rename(source, target):
            raise OSError(f"{shown}: the lake can't rename {hidden} to it")
