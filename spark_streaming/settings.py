"""The roll-up's configuration as types: every key of ``rollup.yaml``, its default, its bounds, what it does.

Owns the keys' names and what they must fulfil together. It opens no file but a secret's, and starts nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from spark_streaming.catalogue import MAX_COUNT, MAX_VALUE
from spark_streaming.findings import FindingSettings

__all__ = [
    "KafkaSettings",
    "LakeSettings",
    "LogSettings",
    "RetentionSettings",
    "RollupSettings",
    "SpoolFilesSettings",
]

_MOST_SECRET_BYTES: Final = 65_536
_DAY_S: Final = 86_400
_EMBEDDED: Final = "embedded:"


def _read(value: Any) -> Any:
    if not (isinstance(value, dict) and set(value) == {"file"} and isinstance(value["file"], str)):
        return value
    try:
        with Path(value["file"]).open(encoding="utf-8") as file:
            text = file.read(_MOST_SECRET_BYTES + 1).removesuffix("\n")
    except OSError as error:
        raise ValueError(f"cannot read the secret's file {value['file']}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"the secret's file {value['file']} is not UTF-8 text") from None
    if not 0 < len(text) <= _MOST_SECRET_BYTES:
        raise ValueError(f"the secret's file {value['file']} is empty or no secret's")
    return text


#: A text that no message shows; ``{file: PATH}`` takes it from a file.
_Secret = Annotated[SecretStr, BeforeValidator(_read)]


class Settings(BaseModel):
    """The base of every section: unknown keys are errors, and no error shows what was put in."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)


class SpoolFilesSettings(Settings):
    """The folder that the receiver's plugin spool_files writes."""

    path: Path = Field(default=Path("telemetry"), description="The folder; it may come later than the job.")
    max_bytes: int = Field(
        default=33_554_432,
        ge=1,
        description="Bytes of files in one batch, at least one file. A file's pushes are some ten times "
        "larger in memory, and the driver holds 25 bytes for each of their points.",
    )
    max_files: int | None = Field(
        default=None, ge=1, description="Files in one batch; given, it stands in place of max_bytes."
    )


class KafkaSettings(Settings):
    """A topic that the receiver's plugin kafka_topic writes, or a Collector's Kafka exporter (otlp_proto)."""

    bootstrap_servers: str | None = Field(default=None, description="host:port,host:port of the brokers.")
    topic: str | None = Field(default=None, description="The topic's name.")
    max_offsets: int = Field(
        default=20_000,
        ge=1,
        description="Records in one batch, over all partitions; fewer where a Collector packs many clients "
        "into one record.",
    )
    options: dict[str, _Secret] = Field(
        default={},
        description="Options of Kafka's client, as `security.protocol`, `sasl.jaas.config`, "
        "`ssl.truststore.location`.",
    )


class RetentionSettings(Settings):
    """How long rows are kept. Late points older than the minutes go straight into hours and days."""

    minute_days: int = Field(default=7, ge=1, le=365, description="Minutes.")
    hour_days: int = Field(default=90, ge=1, le=3_650, description="Hours.")
    day_days: int = Field(default=1_095, ge=1, le=36_500, description="Days.")
    push_days: int = Field(
        default=8,
        ge=1,
        le=365,
        description="Ids of pushes, by which a repeated one is recognised, one small row each. Longer than "
        "the source keeps pushes, so that all are recognised when it is read again from its beginning.",
    )
    contribution_hours: int = Field(
        default=6,
        ge=1,
        le=168,
        description="What each client added to a minute, by which a late push of that minute corrects it.",
    )
    dead_letter_days: int = Field(default=14, ge=1, le=3_650, description="Payloads that are no OTLP.")
    finding_days: int = Field(default=90, ge=1, le=3_650, description="Findings, since they were last seen.")
    ledger_days: int = Field(default=30, ge=1, le=3_650, description="Which batches are in.")

    @model_validator(mode="after")
    def _coarser_longer(self) -> RetentionSettings:
        if not self.minute_days <= self.hour_days <= self.day_days:
            raise ValueError("minute_days, hour_days and day_days must not decrease: coarser is kept longer")
        return self


class LakeSettings(Settings):
    """A second sink: raw data points and roll-ups as files."""

    path: str = Field(min_length=1, description="A folder, or a URL of a file system that Hadoop knows.")
    format: Literal["parquet", "delta"] = Field(default="parquet", description="Files, or a Delta table.")


class LogSettings(Settings):
    """The log, on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="From which on.")
    format: Literal["console", "json"] = Field(default="console", description="For people or programs.")


class RollupSettings(Settings):
    """The whole of ``rollup.yaml``."""

    source: Literal["spool_files", "kafka"] = Field(
        default="spool_files", description="Where pushes come from."
    )
    spool_files: SpoolFilesSettings = SpoolFilesSettings()
    kafka: KafkaSettings = KafkaSettings()
    postgres: _Secret = Field(
        default="embedded:rollup",  # type: ignore[assignment]  # defaults are validated
        description="`postgresql://user@host/database`, or `embedded:DIR` for a PostgreSQL of its own in "
        "DIR/postgres. The password may also come from PGPASSWORD or ~/.pgpass.",
    )
    checkpoint: str | None = Field(
        default=None,
        description="The folder of Spark's offsets and progress; null with `embedded:DIR`: DIR/checkpoint. "
        "Each job and each database has one of its own.",
    )
    trigger_seconds: float = Field(default=10.0, ge=0.1, le=3_600, description="How often a batch begins.")
    push_interval_s: float = Field(
        default=300.0,
        ge=0.1,
        le=3_600,
        description="How often clients push, where the source does not say (a Collector's records): after 3 "
        "intervals without a push a client no longer counts. KIP-714's default is 5 minutes.",
    )
    grace_seconds: float = Field(
        default=120.0,
        ge=0,
        le=3_600,
        description="How long after its end a minute is taken for whole, and clients that pushed nothing in "
        "it are carried on: the receiver's roll_seconds and a batch pass before a push is here.",
    )
    max_ahead_s: float = Field(
        default=300.0,
        ge=0,
        le=3_600,
        description="A point that is later than its push by more has a wrong clock: the push's time counts.",
    )
    max_behind_s: float = Field(
        default=21_600.0,
        ge=60,
        le=_DAY_S,
        description="The same for one that is earlier; not more than retention.contribution_hours.",
    )
    max_value: float = Field(
        default=MAX_VALUE,
        ge=1,
        le=1e100,
        description="A push with a value of a greater magnitude becomes a dead letter. The default is 2^64, "
        "the range of OTLP's integers. NaN, infinities and the largest double stand for no measured value.",
    )
    max_count: int = Field(
        default=MAX_COUNT,
        ge=1,
        le=1 << 53,
        description="A push whose histograms count more observations becomes a dead letter. The default is "
        "2^40.",
    )
    retention: RetentionSettings = RetentionSettings()
    reader_role: str | None = Field(
        default=None, min_length=1, description="A role of PostgreSQL that may read the views, for Grafana."
    )
    findings: FindingSettings = FindingSettings()
    lake: LakeSettings | None = Field(default=None, description="Null: no lake.")
    spark: dict[str, str | int | float | bool] = Field(
        default={}, description="Spark's own configuration, as `spark.master` or `spark.driver.memory`."
    )
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _together(self) -> RollupSettings:
        url = self.postgres.get_secret_value()
        if not url.startswith(("postgresql://", "postgres://", _EMBEDDED)) or url == _EMBEDDED:
            raise ValueError("postgres: expected postgresql://user@host/database, or embedded:DIR")
        if self.source == "kafka":
            for key in ("bootstrap_servers", "topic"):
                if not getattr(self.kafka, key):
                    raise ValueError(f"kafka.{key}: required with source kafka")
        if self.max_behind_s > self.retention.contribution_hours * 3600:
            raise ValueError(
                f"max_behind_s: {self.max_behind_s:g} is more than retention.contribution_hours "
                f"({self.retention.contribution_hours}) keep; lower it or keep more hours"
            )
        wrong = next((key for key in self.spark if not key.startswith("spark.")), None)
        if wrong is not None:
            raise ValueError(f"spark.{wrong}: expected a key of Spark's, which begins with spark.")
        return self

    @property
    def embedded(self) -> Path | None:
        """The folder of the embedded PostgreSQL; None with another one."""
        url = self.postgres.get_secret_value()
        return Path(url.removeprefix(_EMBEDDED)) / "postgres" if url.startswith(_EMBEDDED) else None

    @property
    def checkpoint_path(self) -> str:
        """The checkpoint's folder, absolute where it has no scheme, as Spark would seek it elsewhere."""
        text = self.checkpoint
        if text is None:
            assert self.embedded is not None  # noqa: S101 -- checked when it was made
            text = str(self.embedded.parent / "checkpoint")
        return text if "://" in text else str(Path(text).expanduser().resolve())
