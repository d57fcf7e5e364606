"""The Spark session: local by default, and what is given under ``spark-submit`` or in ``spark.master``.

Owns Spark's configuration and what must be there for it: Java and the jars. It knows nothing of pushes.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from spark_streaming.jars import JarsError, jars
from spark_streaming.settings import RollupSettings

__all__ = ["SessionError", "end", "has_ended", "spark_session"]

_OLDEST_JAVA: Final = 17
_EXTENSION: Final = "kafkaclienttelemetry.rollup.OtlpFunctions"
_LOOPBACK: Final = "127.0.0.1"


class SessionError(Exception):
    """Spark can't be started; the message says what is missing and how to get it."""


def spark_session(settings: RollupSettings) -> SparkSession:
    """Start Spark, or take the session that ``spark-submit`` has begun.

    Args:
        settings: Its ``spark`` section goes over everything that is chosen here.

    Returns:
        The session, with the decoder's functions.

    Raises:
        SessionError: There is no Java, or an old one, or a jar is missing, or Spark did not start.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    chosen = dict(_EVERYWHERE)
    lake = settings.lake is not None and settings.lake.format == "delta"
    if lake:
        chosen["spark.sql.extensions"] += ",io.delta.sql.DeltaSparkSessionExtension"
        chosen["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    if not submitted:
        _require_java()
        chosen |= _local(settings, delta=lake)
    chosen |= {key: _text(value) for key, value in settings.spark.items()}
    if chosen.get("spark.master", "").startswith("local"):
        # Spark would otherwise ask the host's name for an address, and listen where others can connect.
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
        chosen.setdefault("spark.driver.bindAddress", _LOOPBACK)
        chosen.setdefault("spark.driver.host", _LOOPBACK)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("kafka-client-telemetry rollup")
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SessionError(f"Spark did not start: {error.getCondition()}; the lines above say why") from None


def has_ended(spark: SparkSession) -> bool:
    """Whether Spark's process is gone, or its context was stopped: no query runs in it any more."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001 -- there is no public way to it
    except (Py4JError, OSError):
        return True


def end(spark: SparkSession) -> None:
    """Stop Spark, and wait for its process if this one has started it; it may have ended before."""
    gateway = SparkContext._gateway  # noqa: SLF001 -- there is no public way to it
    with contextlib.suppress(Py4JError, OSError):
        spark.stop()
    process = getattr(gateway, "proc", None)
    if gateway is not None and process is not None:
        gateway.shutdown()
        # It ends when its standard input does.
        process.stdin.close()
        process.wait()
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 -- so that a next session starts another


_EVERYWHERE: Final = {
    "spark.sql.extensions": _EXTENSION,
    "spark.sql.session.timeZone": "UTC",
    # Progress of the last batches, of which the job reads how many offsets had no record.
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.metricsEnabled": "false",
}


def _local(settings: RollupSettings, *, delta: bool) -> dict[str, str]:
    try:
        found = jars(kafka=settings.source == "kafka", delta=delta)
    except JarsError as error:
        raise SessionError(str(error)) from None
    log = Path(str(files("spark_streaming"))) / "log4j2.properties"
    return {
        "spark.master": "local[*]",
        "spark.jars": ",".join(map(str, found)),
        "spark.driver.memory": "1g",
        # Nobody waits for an answer: the collector with the least CPU, and the least memory of its own.
        "spark.driver.extraJavaOptions": f"-XX:+UseParallelGC -Dlog4j2.configurationFile={log.as_uri()}",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        # There is nothing to adapt in some thousand rows: it would only begin a job for each stage.
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Lakes and checkpoints hold what clients sent: for this user alone.
        "spark.hadoop.fs.permissions.umask-mode": "077",
    }


def _text(value: str | float | bool) -> str:  # noqa: FBT001 -- a value, no switch
    return str(value).lower() if isinstance(value, bool) else str(value)


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java") if home is None else shutil.which(str(Path(home) / "bin" / "java"))
    fix = f"install Java {_OLDEST_JAVA} or newer (Debian: apt-get install openjdk-17-jre-headless)"
    if java is None:
        where = "on the PATH" if home is None else f"in JAVA_HOME={home}"
        raise SessionError(f"Spark needs Java, and there is none {where}: {fix}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None or int(found[1]) < _OLDEST_JAVA:
        raise SessionError(f"{java} is {found[0] if found else 'no Java that answers'}: {fix}")
