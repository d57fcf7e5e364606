"""Starts and stops the Spark session, or joins that of ``spark-submit``.

Owns Spark's configuration, and checks that Java and the jars are available.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from spark_streaming.jars import JarsError, jars
from spark_streaming.settings import RollupSettings

_MIN_JAVA: Final = 17
_EXTENSION: Final = "kafkaclienttelemetry.rollup.OtlpFunctions"
_LOOPBACK: Final = "127.0.0.1"
#: The file that ``spark-submit`` runs, after which it names an application without a name.
_FILE: Final = "__main__.py"
_FILE_MANAGER: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


class SessionError(Exception):
    """Spark can't be started. The message says what is missing and how to get it."""


def spark_session(settings: RollupSettings) -> SparkSession:
    """Start Spark with the decoder, or join the session of ``spark-submit``.

    Raises:
        SessionError: Java is missing or too old, a jar is missing, or Spark did not start.
    """
    require_java()
    require_user(os.geteuid())
    options = configuration(settings, _submitted() if _is_submitted() else None)
    if options.get("spark.master", "").startswith("local"):
        # Otherwise Spark resolves the host's name and listens on an address that others can reach.
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
        options.setdefault("spark.driver.bindAddress", _LOOPBACK)
        options.setdefault("spark.driver.host", _LOOPBACK)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for key, value in options.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SessionError(
            f"Spark did not start: {error.getCondition() or error}; the lines above say why"
        ) from None


def require_user(uid: int) -> None:
    """Check that a user has a name, without which Hadoop's login in Spark ends.

    Raises:
        SessionError: It has none.
    """
    try:
        pwd.getpwuid(uid)
    except KeyError:
        raise SessionError(
            f"no user has the uid {uid}, and Spark needs its name: run as a user of /etc/passwd, run the "
            "image's entry point, or load nss_wrapper (Debian: apt-get install libnss-wrapper)"
        ) from None


def configuration(settings: RollupSettings, submitted: Mapping[str, str] | None) -> dict[str, str]:
    """Return Spark's configuration.

    What ``spark-submit`` sets overrides the defaults of this module, and the section ``spark``
    overrides both. Lists of jars and of extensions are joined.

    Args:
        submitted: That of ``spark-submit``, which has started the driver's JVM with the jars. None
            if the job starts it.

    Raises:
        SessionError: A jar is missing.
    """
    options = dict(_DEFAULTS)
    delta = settings.lake is not None and settings.lake.format == "delta"
    if delta:
        options[_EXTENSIONS] += ",io.delta.sql.DeltaSparkSessionExtension"
        options["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    given = _local_defaults(settings, delta=delta) if submitted is None else submitted
    own = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in settings.spark.items()
    }
    for layer in (given, own):
        lists = {name: _joined(layer[name], options.get(name, "")) for name in _LISTS if name in layer}
        options |= {**layer, **lists}
    return options


def _joined(*lists: str) -> str:
    """Join comma-separated lists, without repeats."""
    return ",".join(
        dict.fromkeys(item.strip() for values in lists for item in values.split(",") if item.strip())
    )


def has_ended(spark: SparkSession) -> bool:
    """Return whether Spark's process has ended or its context was stopped."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001 -- no public API
    except (Py4JError, OSError):
        return True


def end(spark: SparkSession) -> None:
    """Stop Spark and wait for its process, if this process started it."""
    gateway = SparkContext._gateway  # noqa: SLF001 -- no public API
    with contextlib.suppress(Py4JError, OSError):
        spark.stop()
    process = getattr(gateway, "proc", None)
    if gateway is not None and process is not None:
        gateway.shutdown()
        # The process ends when its standard input is closed.
        process.stdin.close()
        process.wait()
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 -- lets a new session start another


_NAME: Final = "spark.app.name"
_EXTENSIONS: Final = "spark.sql.extensions"
_JARS: Final = "spark.jars"
#: Settings with several values.
_LISTS: Final = (_EXTENSIONS, _JARS)
#: Spark calls thousands of methods a few times for each batch, and optimising them costs more than
#: it saves. So the optimising compiler waits for ten times as many calls as by default. The decoder
#: makes them within seconds.
_COMPILE_LATER: Final = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
_DEFAULTS: Final = {
    _NAME: "kafka-client-telemetry rollup",
    _EXTENSIONS: _EXTENSION,
    # Spark puts these options before those that users set.
    "spark.executor.defaultJavaOptions": _COMPILE_LATER,
    "spark.sql.session.timeZone": "UTC",
    # The job reads the offsets of recent batches from their progress.
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.metricsEnabled": "false",
    # Spark looks at the files of a batch again. By default it does so for more than 32 files in a
    # job with a task for each. For 40 files of a folder that took 100 ms instead of 8.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
    # The greatest limit means none. Below it Spark adds up the size of a batch after each row. A
    # record is an entry, which an accepted push bounds, so few records are a limit of their own.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "250",
    # A payload has several kilobytes. The default's 4096 rows fill the young generation of the heap
    # and no cache of a processor.
    "spark.sql.parquet.columnarReaderBatchSize": "256",
}


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted() -> dict[str, str]:
    """Return the configuration of ``spark-submit``."""
    SparkContext._ensure_initialized()  # noqa: SLF001 -- or SparkConf is empty
    given = dict(SparkConf().getAll())
    if given.get(_NAME) == _FILE:
        # Nobody chose this name.
        del given[_NAME]
    return given


def _local_defaults(settings: RollupSettings, *, delta: bool) -> dict[str, str]:
    try:
        found = jars(kafka=settings.source == "kafka", delta=delta)
    except JarsError as error:
        raise SessionError(str(error)) from None
    log = Path(str(files("spark_streaming"))) / "log4j2.properties"
    options = {
        "spark.master": "local[*]",
        _JARS: ",".join(map(str, found)),
        "spark.driver.memory": "1g",
        "spark.driver.defaultJavaOptions": f"{_COMPILE_LATER} -Dlog4j2.configurationFile={log.as_uri()}",
        # Latency does not matter, so use the collector with the least CPU and memory overhead. Java
        # takes one collector only, so options of users replace it.
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        # Adaptive execution starts a job for each stage. That does not pay off for a few thousand
        # rows.
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Only this user may read lakes and checkpoints, because they contain client data.
        "spark.hadoop.fs.permissions.umask-mode": "077",
    }
    # A rebuild has no checkpoint but a local folder.
    if urlsplit(settings.checkpoint_path or "").scheme in {"", "file"}:
        # Spark's default starts some thirty `readlink` processes for each batch. This class renames
        # files, too, and a local file system renames them atomically.
        options["spark.sql.streaming.checkpointFileManagerClass"] = _FILE_MANAGER
    return options


def require_java() -> None:
    """Check that Spark can be started. ``spark-submit`` has started it already.

    Raises:
        SessionError: Java is missing or too old.
    """
    if _is_submitted():
        return
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java") if home is None else shutil.which(str(Path(home) / "bin" / "java"))
    fix = f"install Java {_MIN_JAVA} or newer (Debian: apt-get install openjdk-17-jre-headless)"
    if java is None:
        where = "on the PATH" if home is None else f"in JAVA_HOME={home}"
        raise SessionError(f"Spark needs Java, which was not found {where}: {fix}")
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    if found is None or int(found[1]) < _MIN_JAVA:
        raise SessionError(f"{java} is {found[0] if found else 'not a working Java'}: {fix}")
