"""Reads pushes from spool files or a Kafka topic, with the same columns.

It does not decode payloads. Columns:

- ``push_id`` string: identifies a push and its repeats; short and ASCII.
- ``client_id`` string: of the push's connection; may be null.
- ``client_instance_id`` string: the instance if the payload does not contain it; may be null.
- ``received_at_ns`` long, ``terminating`` boolean, ``push_interval_ms`` long: 100 ms to an hour.
- ``disconnected`` boolean: no push, but the end of the client's connection.
- ``otlp`` binary: the payload; null if a record has no value.
- ``position`` string: unique position in the source. ``file`` string: the file; null for Kafka.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, BooleanType, LongType, StringType, StructField, StructType

from spark_streaming.load import SettingsError
from spark_streaming.settings import KafkaSettings, RollupSettings, SpoolFilesSettings

#: Columns that are read from the receiver's files. plugins/spool_files/FORMAT.md specifies them.
SPOOL_COLUMNS: Final = StructType(
    [
        StructField("push_id", StringType()),
        StructField("client_instance_id", StringType()),
        StructField("client_id", StringType()),
        StructField("received_at_ns", LongType()),
        StructField("sequence", LongType()),
        StructField("terminating", BooleanType()),
        StructField("push_interval_ms", LongType()),
        StructField("otlp", BinaryType()),
    ]
)

#: Other ids count as missing, because anyone may be able to write to a topic or a folder.
_ID: Final = r"\A[!-~]{1,128}\z"
#: 1970 to 2199. Other times could overflow in sums and comparisons.
_MIN_TIME_NS: Final = 0
_MAX_TIME_NS: Final = 7_258_118_400_000_000_000
#: Push intervals that a receiver requests, in milliseconds.
_MIN_INTERVAL_MS, _MAX_INTERVAL_MS = 100, 3_600_000
_HIDDEN: Final = ("_", ".")
#: For one of Kafka's addresses to accept a connection. Spark's own client tries for minutes.
_REACHED_WITHIN_S: Final = 5.0
#: Spark silently skips files that are this much older than the newest one.
_MAX_FILE_AGE: Final = "36500d"


def check_exists(settings: RollupSettings) -> None:
    """Check that there is a folder to read.

    A job that runs on creates the folder, because a sidecar may be started later. A command that
    reads what the source holds now would read nothing, and not say so.

    Raises:
        SettingsError: The folder of the spool files does not exist.
    """
    if settings.source == "spool_files" and not settings.spool_files.path.expanduser().is_dir():
        raise SettingsError(
            f"spool_files.path: {settings.spool_files.path} is not a folder; give the folder that the "
            "receiver's plugin spool_files writes (--path DIR)"
        )


def check_reachable(settings: RollupSettings) -> None:
    """Check that one of Kafka's addresses accepts connections.

    Spark's own client tries silently for minutes. An address that a firewall or a NetworkPolicy
    closes looks the same as a slow one until then.

    Raises:
        ConnectionError: None does; names each with the reason.
    """
    if settings.source != "kafka":
        return
    problems = []
    for address in (settings.kafka.bootstrap_servers or "").split(","):
        host, _, port = address.strip().rpartition(":")
        if re.fullmatch("[0-9]{1,5}", port) is None or int(port) > 65_535:
            return  # Kafka's client names the mistake
        try:
            socket.create_connection((host.strip("[]"), int(port)), _REACHED_WITHIN_S).close()
        except OSError as error:
            problems.append(f"{address.strip()}: {error.strerror or error}")
        else:
            return
    raise ConnectionError(f"kafka.bootstrap_servers: none can be reached: {'; '.join(problems)}")


class EmptyFiles:
    """Finds spool files without a byte, which Spark skips silently.

    The receiver never writes one, so a disk was full, or a machine failed. A folder is listed again
    only after it has changed.

    Args:
        settings: The source. A topic has no files.
    """

    def __init__(self, settings: RollupSettings) -> None:
        self._root = settings.spool_files.path.expanduser().resolve()
        self._is_spool = settings.source == "spool_files"
        self._listed: dict[str, int] = {}
        self._found: set[str] = set()

    def find(self) -> dict[str, str]:
        """Return the empty files since the last :meth:`clear`, with the reason of each.

        They are named like those in the column ``file``.
        """
        if self._is_spool:
            # Like Spark, it reads no hidden files and folders.
            for folder, folders, _ in os.walk(self._root):
                folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
                self._list(folder)
        return dict.fromkeys(sorted(self._found), "the file is empty: its pushes are lost")

    def clear(self) -> None:
        """Forget the files that :meth:`find` returned."""
        self._found.clear()

    def _list(self, folder: str) -> None:
        try:
            changed_ns = Path(folder).stat().st_mtime_ns
            if self._listed.get(folder) == changed_ns:
                return
            with os.scandir(folder) as entries:
                self._found.update(
                    f"file:{entry.path}"
                    for entry in entries
                    if entry.name.endswith(".parquet")
                    and not entry.name.startswith(_HIDDEN)
                    and entry.is_file()
                    and not entry.stat().st_size
                )
        except OSError:  # A file or folder has expired meanwhile.
            return
        self._listed[folder] = changed_ns


def stream(
    spark: SparkSession,
    settings: RollupSettings,
    *,
    since_ns: int | None = None,
) -> DataFrame:
    """Stream pushes that were received at ``since_ns`` or later, the oldest first."""
    if settings.source == "kafka":
        options = _kafka_options(settings.kafka, since_ns)
        options["maxOffsetsPerTrigger"] = str(settings.kafka.max_offsets)
        raw = spark.readStream.format("kafka").options(**options).load()
        return _since(_of_kafka(raw, settings), since_ns)
    spool = settings.spool_files
    limit = (
        {"maxBytesPerTrigger": str(spool.max_bytes)}
        if spool.max_files is None
        else {"maxFilesPerTrigger": str(spool.max_files)}
    )
    reader = spark.readStream.schema(SPOOL_COLUMNS).options(
        **_SPOOL_OPTIONS, **limit, maxFileAge=_MAX_FILE_AGE
    )
    return _since(_of_spool(reader.parquet(_folder(spool)), settings), since_ns)


def read(spark: SparkSession, settings: RollupSettings) -> DataFrame:
    """Return a DataFrame of all pushes that the source holds now."""
    if settings.source == "kafka":
        return _of_kafka(_records(spark, settings.kafka), settings)
    reader = spark.read.schema(SPOOL_COLUMNS).options(**_SPOOL_OPTIONS)
    return _of_spool(reader.parquet(_folder(settings.spool_files)), settings)


class Held(NamedTuple):
    """Which pushes a source holds, by times of receipt in nanoseconds since the epoch."""

    whole_since_ns: int
    """Since when it holds all pushes."""
    newest_ns: int
    """Of its newest push."""


def held(spark: SparkSession, settings: RollupSettings) -> Held | None:
    """Return which pushes the source holds; None if it holds nothing.

    Partitions of a topic expire separately, busy ones sooner. The topic is complete since the
    latest first record of those partitions that have lost records.
    """
    if settings.source == "kafka":
        received_at_ns = _received_at_ns()
        begins = (
            _records(spark, settings.kafka)
            .groupBy("topic", "partition")
            .agg(
                f.min("offset").alias("offset"),
                f.min(received_at_ns).alias("since_ns"),
                f.max(received_at_ns).alias("newest_ns"),
            )
        )
        expired = f.max(f.when(f.col("offset") > 0, f.col("since_ns")))
        found = begins.agg(f.coalesce(expired, f.min("since_ns")), f.max("newest_ns")).first()
    else:
        found = read(spark, settings).agg(f.min("received_at_ns"), f.max("received_at_ns")).first()
    return None if found is None or found[0] is None else Held(*found)


def first_batch(settings: RollupSettings) -> str:
    """Return when the first batch is to be expected, for people."""
    within = f"within {settings.trigger_seconds:g} s of"
    if settings.source == "kafka":
        return f"{within} the first new record"
    folder = settings.spool_files.path.expanduser()
    if any(not path.name.startswith(_HIDDEN) for path in folder.rglob("*.parquet")):
        return f"{within} the first new file"
    return (
        f"{within} the first file, of which there is none yet: the receiver writes one "
        "spool_files.roll_seconds (30) after a push"
    )


def _records(spark: SparkSession, kafka: KafkaSettings) -> DataFrame:
    return spark.read.format("kafka").options(**_kafka_options(kafka, None)).load()


_SPOOL_OPTIONS: Final = {
    "recursiveFileLookup": "true",
    "pathGlobFilter": "*.parquet",
    # A file may expire after it was listed. The batch checks its counts and is repeated if one did.
    "ignoreMissingFiles": "true",
}


def _folder(spool: SpoolFilesSettings) -> str:
    folder = spool.path.expanduser().resolve()
    # Only this user may read it. If the sidecar runs as another user, it creates the folder first.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(folder)


def _of_spool(raw: DataFrame, settings: RollupSettings) -> DataFrame:
    file = f.col("_metadata.file_path")
    position = f.concat_ws("#", file, f.col("_metadata.row_index"))
    modified_ns = f.try_multiply(f.unix_micros("_metadata.file_modification_time"), f.lit(1000))
    return _pushes(
        raw,
        settings,
        push_id=f.col("push_id"),
        client_instance_id=f.col("client_instance_id"),
        client_id=f.col("client_id"),
        received_at_ns=_first_valid_time(f.col("received_at_ns"), modified_ns),
        terminating=f.col("terminating"),
        disconnected=f.col("sequence") == 0,
        push_interval_ms=f.col("push_interval_ms"),
        otlp=f.col("otlp"),
        position=position,
        file=file,
    )


def _of_kafka(raw: DataFrame, settings: RollupSettings) -> DataFrame:
    # The receiver sets these headers. A record of another producer (a Collector) has none of them.
    return _pushes(
        raw,
        settings,
        push_id=_header("push_id"),
        client_id=_header("client_id"),
        client_instance_id=f.when(_header("format_version").isNotNull(), f.col("key").cast("string")),
        received_at_ns=_received_at_ns(),
        terminating=_header("terminating") == "true",
        disconnected=_header("sequence") == "0",
        push_interval_ms=_header("push_interval_ms").try_cast("long"),
        otlp=f.col("value"),
        position=f.concat_ws("/", "topic", "partition", "offset"),
        file=f.lit(None).cast("string"),
    )


def _received_at_ns() -> Column:
    # Validated, because another producer may set any timestamp.
    return _first_valid_time(
        _header("received_at_ns").try_cast("long"), f.try_multiply(f.unix_micros("timestamp"), f.lit(1000))
    )


def _first_valid_time(*times_ns: Column) -> Column:
    """Return the first time within the bounds, or 1970 if there is none."""
    valid = [f.when(time.between(_MIN_TIME_NS, _MAX_TIME_NS), time) for time in times_ns]
    return f.coalesce(*valid, f.lit(_MIN_TIME_NS))


def _header(name: str) -> Column:
    found = f.filter("headers", lambda header: header["key"] == name)
    return f.try_element_at(found, f.lit(-1))["value"].cast("string")


def _pushes(raw: DataFrame, settings: RollupSettings, **columns: Column) -> DataFrame:
    columns["push_id"] = f.coalesce(
        f.when(columns["push_id"].rlike(_ID), columns["push_id"]),
        f.md5(columns["otlp"]),
        f.md5(columns["position"].cast("binary")),
    )
    instance = columns["client_instance_id"]
    columns["client_instance_id"] = f.when(instance.rlike(_ID), instance)
    for flag in ("terminating", "disconnected"):
        columns[flag] = f.coalesce(columns[flag], f.lit(False))  # noqa: FBT003 -- a value
    interval_ms = f.coalesce(columns["push_interval_ms"], f.lit(round(settings.push_interval_s * 1000)))
    columns["push_interval_ms"] = f.greatest(
        f.lit(_MIN_INTERVAL_MS), f.least(interval_ms, f.lit(_MAX_INTERVAL_MS))
    )
    return raw.select(*(column.alias(name) for name, column in columns.items()))


def _since(pushes: DataFrame, since_ns: int | None) -> DataFrame:
    return pushes if since_ns is None else pushes.where(f.col("received_at_ns") >= since_ns)


def _kafka_options(kafka: KafkaSettings, since_ns: int | None) -> dict[str, str]:
    options = {f"kafka.{key}": value.get_secret_value() for key, value in kafka.options.items()}
    options |= {
        "kafka.bootstrap.servers": kafka.bootstrap_servers or "",
        "subscribe": kafka.topic or "",
        "includeHeaders": "true",
        # The job reports records that expired unread. Stopping would not bring them back.
        "failOnDataLoss": "false",
    }
    if since_ns is None:
        return options | {"startingOffsets": "earliest"}
    return options | {
        "startingTimestamp": str(since_ns // 1_000_000),
        "startingOffsetsByTimestampStrategy": "latest",
    }
