"""The second sink: raw data points and roll-up rows as Parquet or Delta, for whoever asks other questions.

Owns the folders and their repetition: a batch that is written again replaces what it wrote in Parquet, and
is left out in Delta. Who reads Parquet sees whole batches only, as one is written under a hidden name and
renamed.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_streaming.settings import LakeSettings

__all__ = ["Lake"]

_OF_PUSH: Final = ("push_id", "received_at_ns", "terminating", "push_interval_ms")


class Lake:
    """Files beside the tables of PostgreSQL.

    Args:
        spark: The session; with Delta, one that has its extension.
        settings: Where, and in which form.
    """

    def __init__(self, spark: SparkSession, settings: LakeSettings) -> None:
        self._spark = spark
        self._format = settings.format
        self._path = settings.path.rstrip("/")

    def write(self, pushes: DataFrame, rows: pa.Table, query_id: str, batch_id: int) -> None:
        """Write a batch: the data points of its pushes as they came, and the rows it adds to the totals.

        Args:
            pushes: Fresh pushes.
            rows: Of ``ROLLUP_ROWS``.
            query_id: Which stream.
            batch_id: Which of its batches.
        """
        points = pushes.select(
            *_OF_PUSH, f.inline(f.call_function("otlp_data_points", f.col("otlp"))["points"])
        )
        self._put("points", points, query_id, batch_id)
        self._put("rollup", self._spark.createDataFrame(rows), query_id, batch_id)

    def _put(self, name: str, frame: DataFrame, query_id: str, batch_id: int) -> None:
        folder = f"{self._path}/{name}"
        if self._format == "delta":
            writer = frame.write.format("delta").mode("append")
            # Delta leaves out a version that it has of the same application.
            writer.option("txnAppId", query_id).option("txnVersion", batch_id).save(folder)
            return
        hidden, shown = f"{folder}/_{query_id}-{batch_id}", f"{folder}/{query_id}-{batch_id}"
        frame.write.mode("overwrite").parquet(hidden)
        self._replace(hidden, shown)

    def _replace(self, hidden: str, shown: str) -> None:
        # Hadoop's own interface, as the folder may be on any file system that it knows.
        context = self._spark.sparkContext
        path = context._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]  # noqa: SLF001
        source, target = path(hidden), path(shown)
        system = source.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
        system.delete(target, True)  # noqa: FBT003 -- Hadoop's signature: with all that is in it
        if not system.rename(source, target):
            raise OSError(f"{shown}: the lake's folder can't be renamed to it")
