"""Where pushes come from: the receiver's spool files, or a Kafka topic, as one shape.

Owns the reading of both forms and the limits of a batch. It decodes no payload. Columns of every source:

- ``push_id`` string: the same for a push that is repeated, short and ASCII; ``client_instance_id`` string:
  whose push it is if its bytes don't say, may be null;
- ``received_at_ns`` long; ``terminating`` boolean; ``push_interval_ms`` long, 100 ms to an hour;
- ``otlp`` binary, null where a record has no value;
- ``position`` string: where it stands in the source, unique; ``file`` string: its file, null in Kafka.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, BooleanType, LongType, StringType, StructField, StructType

from spark_streaming.settings import KafkaSettings, RollupSettings, SpoolFilesSettings

__all__ = ["SPOOL_COLUMNS", "read", "stream", "whole_since"]

#: The columns of the receiver's files that the roll-up needs; docs/spool-files.md is their contract.
SPOOL_COLUMNS: Final = StructType(
    [
        StructField("push_id", StringType()),
        StructField("client_instance_id", StringType()),
        StructField("received_at_ns", LongType()),
        StructField("terminating", BooleanType()),
        StructField("push_interval_ms", LongType()),
        StructField("otlp", BinaryType()),
    ]
)

#: What no receiver writes is taken for missing: anybody may write to a topic or a folder.
_ID: Final = r"\A[!-~]{1,128}\z"
#: The years from 1970 to 2199. Times beyond would overflow where they are added up or compared.
_EARLIEST_NS: Final = 0
_LATEST_NS: Final = 7_258_118_400_000_000_000
#: The intervals that a receiver asks for, in milliseconds.
_SHORTEST_MS, _LONGEST_MS = 100, 3_600_000
#: A file that is older than this beside the newest would be passed over without a word.
_FOR_EVER: Final = "36500d"


def stream(
    spark: SparkSession,
    settings: RollupSettings,
    *,
    since_ns: int | None = None,
) -> DataFrame:
    """Pushes as they come, from the oldest on.

    Args:
        spark: The session.
        settings: Which source, and its limits.
        since_ns: Leave out what was received before.

    Returns:
        A streaming DataFrame of the module's columns.
    """
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
    reader = spark.readStream.schema(SPOOL_COLUMNS).options(**_SPOOL_OPTIONS, **limit, maxFileAge=_FOR_EVER)
    return _since(_of_spool(reader.parquet(_folder(spool)), settings), since_ns)


def read(spark: SparkSession, settings: RollupSettings) -> DataFrame:
    """All pushes that the source holds now, in the same shape."""
    if settings.source == "kafka":
        return _of_kafka(_records(spark, settings.kafka), settings)
    reader = spark.read.schema(SPOOL_COLUMNS).options(**_SPOOL_OPTIONS)
    return _of_spool(reader.parquet(_folder(settings.spool_files)), settings)


def whole_since(spark: SparkSession, settings: RollupSettings) -> int | None:
    """From when on the source holds all pushes.

    Partitions of a topic expire apart, a busy one sooner: all are there where the last one begins, of those
    that no longer begin with their first record.

    Returns:
        By the time of receipt, nanoseconds since the epoch; None when the source holds nothing.
    """
    if settings.source == "kafka":
        begins = (
            _records(spark, settings.kafka)
            .groupBy("topic", "partition")
            .agg(f.min("offset").alias("offset"), f.min(_received_at_ns()).alias("since_ns"))
        )
        expired = f.max(f.when(f.col("offset") > 0, f.col("since_ns")))
        first = begins.agg(f.coalesce(expired, f.min("since_ns"))).first()
    else:
        first = read(spark, settings).agg(f.min("received_at_ns")).first()
    return None if first is None else first[0]


def _records(spark: SparkSession, kafka: KafkaSettings) -> DataFrame:
    return spark.read.format("kafka").options(**_kafka_options(kafka, None)).load()


_SPOOL_OPTIONS: Final = {
    "recursiveFileLookup": "true",
    "pathGlobFilter": "*.parquet",
    # A file may expire between the listing and the reading; the batch counts, and is repeated if one did.
    "ignoreMissingFiles": "true",
}


def _folder(spool: SpoolFilesSettings) -> str:
    folder = spool.path.expanduser().resolve()
    # For this user alone, whatever the umask: a sidecar of another user makes its own folder first.
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
        received_at_ns=_sound_time(f.col("received_at_ns"), modified_ns),
        terminating=f.col("terminating"),
        push_interval_ms=f.col("push_interval_ms"),
        otlp=f.col("otlp"),
        position=position,
        file=file,
    )


def _of_kafka(raw: DataFrame, settings: RollupSettings) -> DataFrame:
    # By the receiver's headers; a record of somebody else's (a Collector's) has none of them.
    return _pushes(
        raw,
        settings,
        push_id=_header("push_id"),
        client_instance_id=f.when(_header("format_version").isNotNull(), f.col("key").cast("string")),
        received_at_ns=_received_at_ns(),
        terminating=_header("terminating") == "true",
        push_interval_ms=_header("push_interval_ms").try_cast("long"),
        otlp=f.col("value"),
        position=f.concat_ws("/", "topic", "partition", "offset"),
        file=f.lit(None).cast("string"),
    )


def _received_at_ns() -> Column:
    # A producer of its own may stamp its records with any time.
    return _sound_time(
        _header("received_at_ns").try_cast("long"), f.try_multiply(f.unix_micros("timestamp"), f.lit(1000))
    )


def _sound_time(*times_ns: Column) -> Column:
    """The first time that is in bounds; the first bound if none is, so that such a push is an old one."""
    sound = [f.when(time.between(_EARLIEST_NS, _LATEST_NS), time) for time in times_ns]
    return f.coalesce(*sound, f.lit(_EARLIEST_NS))


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
    columns["terminating"] = f.coalesce(columns["terminating"], f.lit(False))  # noqa: FBT003 -- a value
    interval_ms = f.coalesce(columns["push_interval_ms"], f.lit(round(settings.push_interval_s * 1000)))
    columns["push_interval_ms"] = f.greatest(f.lit(_SHORTEST_MS), f.least(interval_ms, f.lit(_LONGEST_MS)))
    return raw.select(*(column.alias(name) for name, column in columns.items()))


def _since(pushes: DataFrame, since_ns: int | None) -> DataFrame:
    return pushes if since_ns is None else pushes.where(f.col("received_at_ns") >= since_ns)


def _kafka_options(kafka: KafkaSettings, since_ns: int | None) -> dict[str, str]:
    options = {f"kafka.{key}": value.get_secret_value() for key, value in kafka.options.items()}
    options |= {
        "kafka.bootstrap.servers": kafka.bootstrap_servers or "",
        "subscribe": kafka.topic or "",
        "includeHeaders": "true",
        # What expired before it was read is counted by the job; stopping would not bring it back.
        "failOnDataLoss": "false",
    }
    if since_ns is None:
        return options | {"startingOffsets": "earliest"}
    return options | {
        "startingTimestamp": str(since_ns // 1_000_000),
        "startingOffsetsByTimestampStrategy": "latest",
    }
