"""One small Spark for all tests of a process, with the decoder's functions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_streaming.session import end, spark_session
from spark_streaming.settings import RollupSettings


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark with two threads and four partitions."""
    settings = RollupSettings(spark={"spark.master": "local[2]", "spark.sql.shuffle.partitions": 4})
    session = spark_session(settings)
    yield session
    end(session)
