"""Command line of the roll-up: its job, its tables, its findings.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 ``findings --check`` found some.
Spark and the PostgreSQL driver belong to an optional extra, so they are imported only when a
command needs them.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from spark_streaming import dumps
from spark_streaming.times import time_from_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_streaming.alertmanager import Alertmanager
    from spark_streaming.findings.answers import FindingFilter
    from spark_streaming.metrics import MetricsServer, RollupMetrics
    from spark_streaming.postgres import Store
    from spark_streaming.settings import RollupSettings

_EXTRA: Final = "pip install 'kafka-client-telemetry[rollup]'"
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

app = typer.Typer(
    help="Roll client telemetry up into PostgreSQL tables, for Grafana.",
    epilog="Start with: `kafka-telemetry rollup run --source spool_files --path ./telemetry`",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _program() -> None:
    # First, because the settings hold the database password.
    dumps.forbid()


class Source(StrEnum):
    """Kind of the source that pushes are read from."""

    SPOOL_FILES = "spool_files"
    KAFKA = "kafka"


class LakeFormat(StrEnum):
    """File format of the lake."""

    PARQUET = "parquet"
    DELTA = "delta"


class FindingsOutput(StrEnum):
    """Output format of findings."""

    TEXT = "text"
    JSON = "json"


_Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="KAFKA_TELEMETRY_ROLLUP_CONFIG",
        help="Configuration file (YAML).",
        metavar="FILE",
    ),
]
_Source = Annotated[Source | None, typer.Option(help="Kind of the source that pushes are read from.")]
_Path = Annotated[
    Path | None, typer.Option(help="Folder that the receiver's plugin spool_files writes.", metavar="DIR")
]
_Servers = Annotated[str | None, typer.Option(help="Kafka brokers.", metavar="HOST:PORT,...")]
_Topic = Annotated[str | None, typer.Option(help="Kafka topic.", metavar="NAME")]
_Postgres = Annotated[
    str | None,
    typer.Option(
        envvar="KAFKA_TELEMETRY_ROLLUP_POSTGRES",
        help="postgresql://user@host/database, or embedded:DIR to start a PostgreSQL with its data in DIR. "
        "All users of the machine can read arguments: pass a password in the variable, in PGPASSWORD, "
        "in ~/.pgpass or in --postgres-file.",
        metavar="URL",
    ),
]
_PostgresFile = Annotated[Path | None, typer.Option(help="File that contains the URL.", metavar="FILE")]
_Checkpoint = Annotated[
    str | None, typer.Option(help="Folder for this job's offsets and progress.", metavar="DIR")
]
_Lake = Annotated[
    str | None,
    typer.Option(help="Also write raw data points and roll-up rows to this folder.", metavar="DIR"),
]
_LakeFormat = Annotated[LakeFormat | None, typer.Option(help="File format of the lake; default parquet.")]
_MetricsBind = Annotated[
    str | None,
    typer.Option(
        help="Serve the roll-up's own metrics to Prometheus, at /metrics on this address.",
        metavar="HOST:PORT",
    ),
]


def _time(text: str) -> datetime:
    try:
        return time_from_text(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r}: expected a time such as 2026-01-31T00:00Z") from None


@app.command()
def run(
    *,
    source: _Source = None,
    path: _Path = None,
    bootstrap_servers: _Servers = None,
    topic: _Topic = None,
    postgres: _Postgres = None,
    postgres_file: _PostgresFile = None,
    checkpoint: _Checkpoint = None,
    lake: _Lake = None,
    lake_format: _LakeFormat = None,
    metrics_bind: _MetricsBind = None,
    config: _Config = None,
    once: Annotated[
        bool, typer.Option("--once", help="Process everything the source holds, then exit.")
    ] = False,
) -> None:
    """Process pushes until SIGTERM or SIGINT. Creates and migrates the tables first.

    \u0008
    Examples:
      kafka-telemetry rollup run --source spool_files --path ./telemetry
      kafka-telemetry rollup run --source kafka --bootstrap-servers localhost:9092 --topic telemetry
        --postgres postgresql://rollup@localhost/telemetry --checkpoint ./checkpoint
    """
    given = locals()
    with _errors(spark=True):
        settings = _settings(given)
        if settings.checkpoint_path is None:
            raise _fail("checkpoint: required unless PostgreSQL is embedded; give --checkpoint DIR", 2)
        if once:
            _check_source(settings)
        _log_in_thread(settings)
        with (
            _stopping() as stopping,
            _metrics(settings) as (metrics, server),
            _store(settings) as store,
            _findings(server, store),
            _alertmanager(settings, store) as alertmanager,
            _session(settings) as spark,
        ):
            stop = stopping.after_the_batch()
            job = _module("job").Job(spark, store, settings, stop, metrics=metrics, alertmanager=alertmanager)
            if once:
                job.run_once()
            else:
                job.run()


@app.command()
def migrate(
    *,
    postgres: _Postgres = None,
    postgres_file: _PostgresFile = None,
    config: _Config = None,
) -> None:
    """Create the tables or migrate them to this version. `run` does it too.

    \u0008
    Example:
      kafka-telemetry rollup migrate --postgres postgresql://rollup@localhost/telemetry
    """
    given = locals()
    with _errors(), _store(_settings(given)) as store:
        applied = store.migrate()
    typer.echo(f"migrations applied: {', '.join(applied) or 'none, the schema is up to date'}")


@app.command()
def rebuild(
    *,
    since: Annotated[
        datetime,
        typer.Option(
            parser=_time, help="First minute to rebuild, for example 2026-01-31T00:00Z.", metavar="TIME"
        ),
    ],
    source: _Source = None,
    path: _Path = None,
    bootstrap_servers: _Servers = None,
    topic: _Topic = None,
    postgres: _Postgres = None,
    postgres_file: _PostgresFile = None,
    checkpoint: _Checkpoint = None,
    lake: _Lake = None,
    lake_format: _LakeFormat = None,
    metrics_bind: _MetricsBind = None,
    config: _Config = None,
) -> None:
    """Delete the totals since a time and compute them again from the source.

    The rebuild starts no earlier than the oldest push in the source. Older totals stay. So do the
    lake and the job's checkpoint: the job goes on where it was. It takes all options of `run`.

    \u0008
    Example:
      kafka-telemetry rollup rebuild --since 2026-01-31T00:00Z --source spool_files --path
        ./telemetry --postgres postgresql://rollup@localhost/telemetry
    """
    given = locals()
    with _errors(spark=True):
        settings = _settings(given)
        _check_source(settings)
        _log_in_thread(settings)
        with (
            _stopping() as stopping,
            _metrics(settings) as (metrics, server),
            _store(settings) as store,
            _findings(server, store),
            _session(settings) as spark,
        ):
            stop = stopping.after_the_batch()
            minute = int(since.timestamp()) // 60
            began = _module("job").rebuild(spark, store, settings, stop, since=minute, metrics=metrics)
    if began is None:
        raise _fail("the source holds no pushes to rebuild from; nothing was changed")
    typer.echo(f"rebuilt since {datetime.fromtimestamp(began * 60, UTC):%Y-%m-%dT%H:%MZ}")


@app.command()
def status(
    *,
    postgres: _Postgres = None,
    postgres_file: _PostgresFile = None,
    config: _Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Show the progress of the roll-up and the size of its tables.

    \u0008
    Examples:
      kafka-telemetry rollup status --postgres postgresql://rollup@localhost/telemetry
      kafka-telemetry rollup status --json
    """
    given = locals()
    with _errors(), _store(_settings(given)) as store:
        found = asdict(store.status())
    if as_json:
        typer.echo(json.dumps(found, indent=2, default=str))
        return
    queries = found.pop("queries")
    width = max(map(len, found))
    for name, value in found.items():
        typer.echo(f"{name.replace('_', ' '):{width}}  {_shown(value)}")
    for query in queries:
        typer.echo(f"query {query.pop('query_id')}")
        for name, value in query.items():
            typer.echo(f"{'  ' + name.replace('_', ' '):{width}}  {_shown(value)}")


@app.command()
def findings(
    *,
    client_id: Annotated[
        str | None, typer.Option(help="Only of clients whose whole id this regular expression matches.")
    ] = None,
    principal: Annotated[
        str | None, typer.Option(help="Only of principals that this regular expression matches.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Only of groups that this regular expression matches.")
    ] = None,
    owner: Annotated[
        str | None, typer.Option(help="Only of owners that this regular expression matches.")
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Only of this kind; may be given several times.")
    ] = None,
    severity: Annotated[
        str | None, typer.Option(help="Only of this severity or worse: info, warning, critical.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only what held at this time or later: 2026-01-31T00:00Z, or 2h.")
    ] = None,
    resolved: Annotated[bool, typer.Option("--all", help="Also resolved findings.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with status 3 if there is a finding, for scripts.")
    ] = False,
    output: Annotated[
        FindingsOutput, typer.Option("--output", "-o", help="Text for people, or JSON with the evidence.")
    ] = FindingsOutput.TEXT,
    postgres: _Postgres = None,
    postgres_file: _PostgresFile = None,
    config: _Config = None,
) -> None:
    """Show what is wrong with clients, since when, and what to do.

    \u0008
    Examples:
      kafka-telemetry rollup findings --kind throttled --principal 'User:payments-.*'
      kafka-telemetry rollup findings --severity critical --check
      kafka-telemetry rollup findings --all --since 2d -o json
    """
    given = locals()
    once = ("client_id", "principal", "group", "owner", "severity", "since")
    texts = {name: [given[name]] for name in once}
    texts |= {"kind": kind or [], "state": ["all" if resolved else "open"]}
    with _errors(), _store(_settings(given)) as store, contextlib.closing(store.findings()) as reader:
        queries, wrong = _module("findings.queries"), _module("findings.answers").FilterError
        try:
            asked = queries.filter_of({name: text for name, text in texts.items() if text != [None]}, _now())
        except wrong as error:
            raise _fail(str(error), 2) from None
        found = reader.read(asked)
    if output is FindingsOutput.JSON:
        typer.echo(json.dumps({"findings": found}, indent=2))
    else:
        typer.echo(_module("findings.text").report(found))
    if check and found:
        raise typer.Exit(3)


def _now() -> datetime:
    return datetime.now(UTC)


def _shown(value: Any) -> str:
    """Write a value of the status for people."""
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items())
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return "-" if value is None else str(value)


def _module(name: str) -> Any:
    # Late, because Spark and the PostgreSQL driver are optional and take a second to import.
    return importlib.import_module(f"spark_streaming.{name}")


@contextlib.contextmanager
def _errors(*, spark: bool = False) -> Iterator[None]:
    """Turn errors that a user can correct into one line and an exit code."""
    try:
        load = _module("load")
        expected = [_module("embedded").EmbeddedError, _module("postgres").StoreError]
        if spark:
            expected += [_module("session").SessionError, _module("job").JobError]
            expected += [_module("metrics").MetricsError, _module("alertmanager").AlertmanagerError]
    except ImportError as error:
        raise _fail(f"the roll-up is not installed ({error.name or error} is missing): {_EXTRA}") from None
    try:
        yield
    except load.SettingsError as error:
        raise _fail(str(error), 2) from None
    except tuple(expected) as error:
        raise _fail(str(error)) from None


def _settings(options: Mapping[str, Any]) -> RollupSettings:
    given = {name: value for name, value in options.items() if value is not None}
    lake: dict[str, Any] = {}
    if "lake" in given:
        lake["path"] = given["lake"]
    if "lake_format" in given:
        lake["format"] = str(given["lake_format"])
    postgres_file = given.get("postgres_file")
    overrides = {
        "source": str(given["source"]) if "source" in given else None,
        "spool_files": {"path": str(given["path"]) if "path" in given else None},
        "kafka": {name: given.get(name) for name in ("bootstrap_servers", "topic")},
        "postgres": given.get("postgres") if postgres_file is None else {"file": str(postgres_file)},
        "checkpoint": given.get("checkpoint"),
        "lake": lake,
        "metrics": {"bind": given.get("metrics_bind")},
    }
    settings: RollupSettings = _module("load").load(given.get("config"), overrides)
    _module("log").configure(settings.log.level, settings.log.format)
    return settings


def _log_in_thread(settings: RollupSettings) -> None:
    """Let a log that can't be written neither hold nor fail a job."""
    _module("log_writer").install()
    _module("log").configure(settings.log.level, settings.log.format)


def _check_source(settings: RollupSettings) -> None:
    """Check what a command needs, before PostgreSQL and Spark start."""
    _module("session").require_java()
    _module("sources").check_exists(settings)


@contextlib.contextmanager
def _store(settings: RollupSettings) -> Iterator[Store]:
    postgres = _module("postgres")
    with contextlib.ExitStack() as stack:
        url = settings.postgres.get_secret_value()
        if settings.embedded is not None:
            server = _module("embedded").EmbeddedPostgres(settings.embedded)
            url = stack.enter_context(server).url
            typer.echo(f"PostgreSQL runs until this command ends: {url}", err=True)
        store = postgres.Store(url, retention=settings.retention, reader_role=settings.reader_role)
        yield stack.enter_context(contextlib.closing(store))


@contextlib.contextmanager
def _metrics(settings: RollupSettings) -> Iterator[tuple[RollupMetrics, MetricsServer | None]]:
    """Yield the metrics, and serve them if the settings have an address."""
    module = _module("metrics")
    metrics: RollupMetrics = module.RollupMetrics()
    server: MetricsServer | None = None
    with contextlib.ExitStack() as stack:
        if (address := settings.metrics.address) is not None:
            opened: MetricsServer = module.MetricsServer(
                *address,
                metrics,
                allowed_hosts=settings.metrics.allowed_hosts,
                web_config_file=settings.metrics.web_config_file,
                token_files=settings.metrics.token_files,
            )
            server = stack.enter_context(opened)
            host = f"[{address[0]}]" if ":" in address[0] else address[0]
            scheme = "http" if server.web.tls() is None else "https"
            typer.echo(f"metrics: {scheme}://{host}:{server.port}/metrics", err=True)
        yield metrics, server


@contextlib.contextmanager
def _findings(server: MetricsServer | None, store: Store) -> Iterator[None]:
    """Let the server answer questions about findings."""
    if server is None:
        yield
        return
    unavailable, broken = _module("metrics").FindingsUnavailableError, _module("postgres").StoreError

    def answer(asked: FindingFilter) -> list[dict[str, Any]]:
        try:
            return reader.read(asked)
        except broken as error:
            raise unavailable(str(error)) from None

    with contextlib.closing(store.findings()) as reader:
        server.findings = answer
        try:
            yield
        finally:
            server.findings = None


@contextlib.contextmanager
def _alertmanager(settings: RollupSettings, store: Store) -> Iterator[Alertmanager | None]:
    """Yield what sends findings, if the settings have an Alertmanager."""
    if not settings.alertmanager.urls:
        yield None
        return
    with contextlib.closing(store.findings()) as reader:
        opened: Alertmanager = _module("alertmanager").Alertmanager(
            settings.alertmanager, settings.findings, reader.read
        )
        with contextlib.closing(opened):
            yield opened


@contextlib.contextmanager
def _session(settings: RollupSettings) -> Iterator[SparkSession]:
    session = _module("session")
    spark = session.spark_session(settings)
    try:
        yield spark
    finally:
        session.end(spark)


class _Stopping:
    """What SIGTERM and SIGINT do.

    They end the start at once, and later stop the job after its batch.
    """

    def __init__(self) -> None:
        self._stop: threading.Event | None = None

    def after_the_batch(self) -> threading.Event:
        """Return an event that the signals set from now on."""
        self._stop = threading.Event()
        return self._stop

    def signalled(self, number: int, frame: object) -> None:
        """Handle a signal.

        Nothing has begun at the start, but what is open has to be closed.
        """
        if self._stop is None:
            raise SystemExit(128 + number)
        self._stop.set()


@contextlib.contextmanager
def _stopping() -> Iterator[_Stopping]:
    stopping = _Stopping()
    before = {number: signal.signal(number, stopping.signalled) for number in _SIGNALS}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _fail(message: str, code: int = 1) -> typer.Exit:
    sys.stderr.write(f"kafka-telemetry: {' '.join(message.split())}\n")
    return typer.Exit(code)
