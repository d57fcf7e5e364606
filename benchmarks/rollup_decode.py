"""``python -m benchmarks.rollup_decode SPOOL CORES``: CPU per point of reading and decoding.

Owns the passes over a spool that throw their result away. Prints JSON: CPU seconds of Spark, by
pass.
"""

from __future__ import annotations

import json
import secrets
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import functions as f

from spark_streaming import sources
from spark_streaming.catalogue import plan
from spark_streaming.postgres import IdKey
from spark_streaming.series_hashes import register_key
from spark_streaming.session import end, spark_session
from spark_streaming.settings import RollupSettings, SpoolFilesSettings
from tests.testbed.cpu import cpu_seconds

#: The first passes are compiled while they run.
_ROUNDS: Final = 5


def main() -> None:
    """Measure each pass some times, in turns."""
    spool, cores = sys.argv[1:]
    settings = RollupSettings(
        spool_files=SpoolFilesSettings(path=Path(spool)), spark={"spark.master": f"local[{cores}]"}
    )
    spark = spark_session(settings)
    pushes = sources.read(spark, settings)
    text = f.lit(plan(max_behind_s=settings.max_behind_s, max_ahead_s=settings.max_ahead_s))
    key = IdKey(key_id="benchmark", secret=secrets.token_bytes(16))
    register_key(spark, key)
    arguments = (
        f.col("otlp"),
        f.col("client_instance_id"),
        f.col("received_at_ns"),
        text,
        f.lit(key.key_id),
    )
    passes = {
        "read": pushes.select("client_instance_id", "received_at_ns", "otlp"),
        "otlp_entries": pushes.select(f.call_function("otlp_entries", *arguments)),
    }
    jvm = spark._jvm  # noqa: SLF001 -- there is no public way to its process id
    assert jvm is not None
    pid = jvm.java.lang.ProcessHandle.current().pid()
    seconds: dict[str, list[float]] = {name: [] for name in passes}
    for _ in range(_ROUNDS):
        for name, one in passes.items():
            before = cpu_seconds(pid)
            one.write.format("noop").mode("overwrite").save()
            seconds[name].append(cpu_seconds(pid) - before)
    print(json.dumps(seconds))
    end(spark)


if __name__ == "__main__":
    main()
