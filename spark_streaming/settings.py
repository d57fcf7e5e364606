"""Schema of ``rollup.yaml``: every key with its default, bounds and description.

Validation opens no files except those that contain secrets.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from spark_streaming.catalogue import MAX_COUNT, MAX_PARTITIONS, MAX_VALUE
from spark_streaming.files import FileError, read_secret
from spark_streaming.findings import FindingSettings

_DAY_S: Final = 86_400
_LONGEST_TRIGGER_FACTOR: Final = 3
_EMBEDDED: Final = "embedded:"
_MAX_PORT: Final = 65_535
_PORT: Final = re.compile("[0-9]{1,5}")
_LABEL: Final = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
_IN_BRACKETS: Final = re.compile(r"\[[0-9a-fA-F:.]+\]")


def _read_secret(value: Any) -> Any:
    if not (isinstance(value, dict) and set(value) == {"file"} and isinstance(value["file"], str)):
        return value
    try:
        return read_secret(Path(value["file"]))
    except FileError as error:
        raise ValueError(f"the secret's file {value['file']} {error}") from None


#: A string that no message shows. ``{file: PATH}`` reads it from a file.
_Secret = Annotated[SecretStr, BeforeValidator(_read_secret)]


class Settings(BaseModel):
    """Base of every section. Rejects unknown keys and hides values in errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)


class SpoolFilesSettings(Settings):
    """Folder that the receiver's plugin spool_files writes."""

    # Strict JSON takes no path.
    path: Path = Field(default=Path("telemetry"), validate_default=False)
    """The folder. It may be created after the job starts."""
    max_bytes: int = Field(default=33_554_432, ge=1)
    """Maximum size of the files in one batch, in bytes. A batch has at least one file. Pushes take
    about ten times as much memory as their file, and a task 200 bytes for each of its data
    points."""
    max_files: int | None = Field(default=None, ge=1)
    """Maximum number of files in one batch. Replaces max_bytes."""


class KafkaSettings(Settings):
    """Topic written by the plugin kafka_topic, or by a Collector as otlp_proto."""

    bootstrap_servers: str | None = None
    """Addresses of the brokers: host:port,host:port."""
    topic: str | None = None
    """Name of the topic."""
    # About as many pushes as spool_files.max_bytes holds.
    max_offsets: int = Field(default=40_000, ge=1)
    """Maximum number of records in one batch, over all partitions. Lower it if a Collector puts
    many clients into one record."""
    options: dict[str, _Secret] = {}
    """Kafka client options, such as `security.protocol`, `sasl.jaas.config` or
    `ssl.truststore.location`."""


class RetentionSettings(Settings):
    """How long rows are kept. Later points go to hours or days."""

    minute_days: int = Field(default=7, ge=1, le=365)
    """Days to keep minutes."""
    hour_days: int = Field(default=90, ge=1, le=3_650)
    """Days to keep hours."""
    day_days: int = Field(default=1_095, ge=1, le=36_500)
    """Days to keep days."""
    series_days: int = Field(default=180, ge=1, le=36_500)
    """Days to keep a series that no client pushes any longer, with its days. At least `hour_days`
    apply."""
    pack_after_hours: int = Field(default=2, ge=1, le=168)
    """Hours after its end until an hour of minutes is packed, which makes it at least ten times
    smaller. Later points are still added, at more cost."""
    pack_connections: int = Field(default=2, ge=1, le=16)
    """Connections to PostgreSQL that pack beside batches. Each keeps a core of the server busy: for
    some ten seconds a minute, or until a large hour is packed."""
    push_days: int = Field(default=8, ge=1, le=365)
    """Days to keep push ids, which identify repeated pushes. One small row each. Set it longer than
    the source keeps pushes, so that reading the source again counts nothing twice."""
    contribution_hours: int = Field(default=6, ge=1, le=168)
    """Hours to keep what each client added to a minute. A late push corrects the minute by it."""
    dead_letter_days: int = Field(default=14, ge=1, le=3_650)
    """Days to keep payloads that could not be read."""
    dead_letters: int = Field(default=10_000, ge=1, le=10_000_000)
    """Most of them to keep, the newest. A payload takes up to 64 KiB."""
    finding_days: int = Field(default=90, ge=1, le=3_650)
    """Days to keep a finding after it was last seen."""
    ledger_days: int = Field(default=30, ge=1, le=3_650)
    """Days to keep the record of committed batches."""

    @model_validator(mode="after")
    def _coarser_longer(self) -> RetentionSettings:
        if not self.minute_days <= self.hour_days <= self.day_days:
            raise ValueError(
                "minute_days, hour_days and day_days must not decrease: keep coarser rows longer"
            )
        return self


class NewSeriesSettings(Settings):
    """Bounds of the series that the database does not have yet.

    A data point of a series beyond them is left out and counted in the client's overflow series.
    Its series is added in a later hour or minute. Times are those of receipt.
    """

    client_per_hour: int | None = Field(default=20_000, ge=1)
    """New series of a client id and principal in an hour; null: no bound. Data points of further
    ones are left out until the next hour."""
    principal_per_hour: int | None = Field(default=400_000, ge=1)
    """New series of all clients of a principal in an hour; null: no bound. `User:ANONYMOUS` and
    `User:unknown` have none."""
    per_minute: int | None = Field(default=60_000, ge=1)
    """New series of all clients in a minute; null: no bound. PostgreSQL adds about a thousand in a
    second."""


class LakeSettings(Settings):
    """Second sink: raw data points and roll-up rows as files."""

    path: str = Field(min_length=1)
    """A folder, or the URL of a file system that Hadoop supports."""
    format: Literal["parquet", "delta"] = "parquet"
    """Parquet files or Delta tables."""


class LogSettings(Settings):
    """Log on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level to log."""
    format: Literal["console", "json"] = "console"
    """Text for people, or JSON for programs."""


class MetricsSettings(Settings):
    """The roll-up's own metrics, for Prometheus."""

    bind: str | None = Field(default=None, json_schema_extra={"pattern": "^.+:[0-9]{1,5}$"})
    """Address of the scrape endpoint: `host:port`, for example `127.0.0.1:8643`; the path is
    `/metrics`. Without `web_config_file` everyone who can connect can read it. Null means no
    endpoint."""
    web_config_file: Path | None = None
    """TLS and logins of the scrape endpoint: a web configuration file of Prometheus, with
    `tls_server_config` and `basic_auth_users`. It and the certificates are read again when they
    change. Null means plaintext and no login."""
    token_files: tuple[Path, ...] = Field(default=(), max_length=100)
    """Files that each hold a bearer token (`kafka-telemetry token new`), for `GET /v1/findings` at
    the same address. Without them and without logins, only this machine may read findings."""
    allowed_hosts: tuple[str, ...] = Field(default=(), max_length=100)
    """Host names that a scrape may use, without a port. IP addresses, `localhost` and the host of
    `bind` are always allowed; a scrape by another name is answered with 421."""

    @field_validator("bind")
    @classmethod
    def _check_bind(cls, bind: str | None) -> str | None:
        if bind is not None:
            host, _, port = bind.rpartition(":")
            numeric = _PORT.fullmatch(port) is not None and int(port) <= _MAX_PORT
            if not host or not numeric or (":" in host and not _IN_BRACKETS.fullmatch(host)):
                raise ValueError(
                    f"{bind!r}: expected host:port with a port up to {_MAX_PORT}, such as "
                    "127.0.0.1:8643 or [::1]:8643"
                )
        return bind

    @model_validator(mode="after")
    def _check_web_config(self) -> Self:
        if self.bind is None and self.web_config_file is not None:
            raise ValueError("web_config_file is for the scrape endpoint: set bind, or leave it out")
        if self.bind is None and self.token_files:
            raise ValueError("token_files are for the scrape endpoint: set bind, or leave them out")
        return self

    @property
    def address(self) -> tuple[str, int] | None:
        """Host without brackets, and port. None without an endpoint."""
        if self.bind is None:
            return None
        host, _, port = self.bind.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)


class AlertmanagerSettings(Settings):
    """Findings as alerts of Alertmanager, which knows webhooks, mail and chats."""

    urls: tuple[str, ...] = Field(default=(), max_length=20)
    """Alertmanagers that get all findings, once a minute: for example `http://alertmanager:9093`.
    Give each member of a cluster. Empty: none."""
    token: _Secret | None = None
    """Bearer token of the requests: `{file: PATH}`. Null: none."""
    ca_file: Path | None = None
    """PEM file with the authorities that sign the Alertmanagers' certificates. Null: the
    system's."""
    severity: Literal["info", "warning", "critical"] = "warning"
    """Least severity of a finding that is sent."""
    labels: dict[str, str] = Field(default={}, max_length=20)
    """Further labels of each alert, for routes."""

    @field_validator("urls")
    @classmethod
    def _check_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError("expected URLs such as http://alertmanager:9093")
            if parts.username is not None or parts.password is not None:
                raise ValueError("a URL has a login, which logs would show: put a token into token")
        return urls

    @field_validator("labels")
    @classmethod
    def _check_labels(cls, labels: dict[str, str]) -> dict[str, str]:
        for name in labels:
            if _LABEL.fullmatch(name) is None:
                raise ValueError(f"{name!r}: a label's name has letters, digits and underscores")
        return labels


class RollupSettings(Settings):
    """Root of ``rollup.yaml``."""

    source: Literal["spool_files", "kafka"] = "spool_files"
    """Kind of the source that pushes are read from."""
    spool_files: SpoolFilesSettings = SpoolFilesSettings()
    kafka: KafkaSettings = KafkaSettings()
    postgres: _Secret = "embedded:rollup"  # type: ignore[assignment]  # defaults are validated
    """`postgresql://user@host/database`, or `embedded:DIR` to start a PostgreSQL with its data in
    DIR/postgres. The password may also come from PGPASSWORD or ~/.pgpass."""
    checkpoint: str | None = None
    """Folder for Spark's offsets and progress. Null with `embedded:DIR` means DIR/checkpoint. Use
    one for each job and database."""
    trigger_seconds: float = Field(default=10.0, ge=0.1, le=3_600)
    """Seconds between the starts of batches, while there is much to read."""
    max_trigger_seconds: float | None = Field(default=None, ge=0.1, le=3_600)
    """Seconds from the start of a batch with fewer than 10,000 pushes to the next one, because a
    batch costs as much again as these pushes. Null: three times trigger_seconds. Such a batch does
    not wait while the job is more than grace_seconds behind."""
    push_interval_s: float = Field(default=300.0, ge=0.1, le=3_600)
    """Push interval of clients whose records don't contain it (those of a Collector). A client
    stops counting after 3 intervals without a push. KIP-714's default is 5 minutes."""
    grace_seconds: float = Field(default=120.0, ge=0, le=3_600)
    """Seconds after its end until a minute counts as complete. Then the counts of clients that did
    not push in it are carried forward. Must exceed the receiver's roll_seconds plus one batch."""
    max_ahead_s: float = Field(default=300.0, ge=0, le=3_600)
    """A data point later than its push by more than this has a wrong clock and gets the time of the
    push."""
    max_behind_s: float = Field(default=21_600.0, ge=60, le=_DAY_S)
    """A data point earlier than its push by more than this gets the time of the push. At most
    retention.contribution_hours."""
    max_value: float = Field(default=MAX_VALUE, ge=1, le=1e100)
    """A push with a value of a greater magnitude becomes a dead letter. The default is 2^64, the
    range of OTLP integers. NaN, infinities and the largest double mean that nothing was
    measured."""
    max_count: int = Field(default=MAX_COUNT, ge=1, le=1 << 53)
    """A push whose histograms count more observations becomes a dead letter. The default is
    2^40."""
    max_partitions: int = Field(default=MAX_PARTITIONS, ge=0, le=100_000)
    """Partitions of a topic that have series of their own: those numbered below it. All others are
    one series, whose partition is `other`. 0 adds up all partitions of a topic."""
    new_series: NewSeriesSettings = NewSeriesSettings()
    retention: RetentionSettings = RetentionSettings()
    reader_role: str | None = Field(default=None, min_length=1)
    """PostgreSQL role that may read the views, for Grafana."""
    findings: FindingSettings = FindingSettings()
    alertmanager: AlertmanagerSettings = AlertmanagerSettings()
    lake: LakeSettings | None = None
    """Null means no lake."""
    spark: dict[str, str | int | float | bool] = {}
    """Spark configuration, such as `spark.master` or `spark.driver.memory`."""
    log: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()

    @model_validator(mode="after")
    def _check_combinations(self) -> RollupSettings:
        url = self.postgres.get_secret_value()
        if not url.startswith(("postgresql://", "postgres://", _EMBEDDED)) or url == _EMBEDDED:
            raise ValueError("postgres: expected postgresql://user@host/database, or embedded:DIR")
        if self.source == "kafka":
            for key in ("bootstrap_servers", "topic"):
                if not getattr(self.kafka, key):
                    raise ValueError(f"kafka.{key}: required with source kafka")
        if self.max_trigger_seconds is not None and self.max_trigger_seconds < self.trigger_seconds:
            raise ValueError(
                f"max_trigger_seconds: {self.max_trigger_seconds:g} is less than trigger_seconds "
                f"({self.trigger_seconds:g}); raise it, or lower trigger_seconds"
            )
        if self.max_behind_s > self.retention.contribution_hours * 3600:
            raise ValueError(
                f"max_behind_s: {self.max_behind_s:g} is more than retention.contribution_hours "
                f"({self.retention.contribution_hours}); lower it or raise contribution_hours"
            )
        wrong = next((key for key in self.spark if not key.startswith("spark.")), None)
        if wrong is not None:
            raise ValueError(f"spark.{wrong}: expected a Spark key, which begins with spark.")
        return self

    @property
    def longest_trigger_s(self) -> float:
        """Seconds from the start of a batch with few pushes to the next one."""
        return self.max_trigger_seconds or _LONGEST_TRIGGER_FACTOR * self.trigger_seconds

    @property
    def embedded(self) -> Path | None:
        """Folder of the embedded PostgreSQL. None if PostgreSQL is not embedded."""
        url = self.postgres.get_secret_value()
        return Path(url.removeprefix(_EMBEDDED)) / "postgres" if url.startswith(_EMBEDDED) else None

    @property
    def checkpoint_path(self) -> str | None:
        """Absolute checkpoint folder, because Spark resolves relative ones differently.

        None if neither the settings nor an embedded PostgreSQL give one.
        """
        text = self.checkpoint
        if text is None:
            if self.embedded is None:
                return None
            text = str(self.embedded.parent / "checkpoint")
        return text if "://" in text else str(Path(text).expanduser().resolve())
