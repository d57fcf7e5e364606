"""The commands of the roll-up: ``run``, ``migrate``, ``rebuild`` and ``status``.

Owns arguments, output and exit codes: 0 done, 1 failed, 2 wrong usage or configuration. It imports Spark and
PostgreSQL's driver, which are of an extra, only when a command needs them.
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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_streaming.postgres import Store
    from spark_streaming.settings import RollupSettings

__all__ = ["app"]

_EXTRA: Final = "pip install 'kafka-client-telemetry[rollup]'"

app = typer.Typer(
    help="Rolls pushes up into tables of PostgreSQL, for Grafana.",
    epilog="Start with: kafka-telemetry rollup run --source spool_files --path ./telemetry",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _program() -> None:
    # Before the settings are read, because they hold the password of the database.
    dumps.forbid()


class Source(StrEnum):
    """Where pushes come from."""

    SPOOL_FILES = "spool_files"
    KAFKA = "kafka"


class LakeFormat(StrEnum):
    """The lake's form."""

    PARQUET = "parquet"
    DELTA = "delta"


_Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", envvar="KAFKA_TELEMETRY_ROLLUP_CONFIG", help="A YAML file.", metavar="FILE"
    ),
]
_Source = Annotated[Source | None, typer.Option("--source", help="Where pushes come from.")]
_Path = Annotated[
    Path | None, typer.Option("--path", help="The folder that spool_files writes.", metavar="DIR")
]
_Servers = Annotated[
    str | None, typer.Option("--bootstrap-servers", help="Kafka's brokers.", metavar="HOST:PORT,...")
]
_Topic = Annotated[str | None, typer.Option("--topic", help="The topic.", metavar="NAME")]
_Postgres = Annotated[
    str | None,
    typer.Option(
        "--postgres",
        envvar="KAFKA_TELEMETRY_ROLLUP_POSTGRES",
        help="postgresql://user@host/database, or embedded:DIR for one of its own in that folder. "
        "Everybody on the machine can read an argument: give a password in the variable, in PGPASSWORD, "
        "in ~/.pgpass or in --postgres-file.",
        metavar="URL",
    ),
]
_PostgresFile = Annotated[
    Path | None, typer.Option("--postgres-file", help="A file that holds the URL.", metavar="FILE")
]
_Checkpoint = Annotated[
    str | None,
    typer.Option("--checkpoint", help="The folder of this job's offsets and progress.", metavar="DIR"),
]
_Lake = Annotated[
    str | None,
    typer.Option("--lake", help="Write raw points and roll-ups into this folder too.", metavar="DIR"),
]
_LakeFormat = Annotated[LakeFormat | None, typer.Option("--lake-format", help="How; parquet if not given.")]


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r}: expected a time such as 2026-01-31T00:00Z") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


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
    config: _Config = None,
    once: Annotated[bool, typer.Option("--once", help="Take in everything there is, and end.")] = False,
) -> None:
    """Take pushes in as they come, until SIGTERM or SIGINT; creates and migrates the tables first.

    \u0008
    Examples:
      kafka-telemetry rollup run --source spool_files --path ./telemetry
      kafka-telemetry rollup run --source kafka --bootstrap-servers localhost:9092 --topic telemetry
        --postgres postgresql://rollup@localhost/telemetry --checkpoint ./checkpoint
    """
    given = locals()
    with _errors(spark=True):
        settings = _settings(given)
        if settings.checkpoint is None and settings.embedded is None:
            raise _fail(
                "checkpoint: required with a PostgreSQL that is not embedded; give --checkpoint DIR", 2
            )
        with _stop() as stop, _store(settings) as store, _session(settings) as spark:
            job = _module("job").Job(spark, store, settings, stop)
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
    """Create the tables, or bring them up to this version; `run` does it too.

    \u0008
    Example:
      kafka-telemetry rollup migrate --postgres postgresql://rollup@localhost/telemetry
    """
    given = locals()
    with _errors(), _store(_settings(given)) as store:
        done = store.migrate()
    typer.echo(f"migrations done: {', '.join(done) or 'none, it is up to date'}")


@app.command()
def rebuild(
    *,
    since: Annotated[
        datetime,
        typer.Option(
            "--since",
            parser=_time,
            help="From which minute on, for example 2026-01-31T00:00Z.",
            metavar="TIME",
        ),
    ],
    source: _Source = None,
    path: _Path = None,
    bootstrap_servers: _Servers = None,
    topic: _Topic = None,
    postgres: _Postgres = None,
    postgres_file: _PostgresFile = None,
    config: _Config = None,
) -> None:
    """Forget what was rolled up since a time, and roll it up again from what the source still holds.

    What the source holds no more stays as it is: the rebuild begins no earlier than the source does.

    \u0008
    Example:
      kafka-telemetry rollup rebuild --since 2026-01-31T00:00Z --source spool_files --path ./telemetry
    """
    given = locals()
    wanted = int(since.timestamp()) // 60
    with _errors(spark=True):
        settings = _settings(given)
        with _stop() as stop, _store(settings) as store, _session(settings) as spark:
            began = _module("job").rebuild(spark, store, settings, stop, since=wanted)
    if began is None:
        raise _fail("the source holds no pushes to rebuild from; nothing was changed")
    typer.echo(f"rebuilt since {datetime.fromtimestamp(began * 60, UTC):%Y-%m-%dT%H:%MZ}")


@app.command()
def status(
    *,
    postgres: _Postgres = None,
    postgres_file: _PostgresFile = None,
    config: _Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Show how far the roll-up is, and how much it keeps.

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
    width = max(map(len, found))
    for name, value in found.items():
        typer.echo(f"{name.replace('_', ' '):{width}}  {'-' if value is None else value}")


def _module(name: str) -> Any:
    # Not before it is needed: Spark and PostgreSQL's driver are of an extra, and take a second to load.
    return importlib.import_module(f"spark_streaming.{name}")


@contextlib.contextmanager
def _errors(*, spark: bool = False) -> Iterator[None]:
    """What a user can correct becomes one line and an exit status."""
    try:
        load = _module("load")
        known = [_module("embedded").EmbeddedError, _module("postgres").StoreError]
        if spark:
            known += [_module("session").SessionError, _module("job").JobError]
    except ImportError as error:
        raise _fail(f"the roll-up is not installed ({error.name} is missing): {_EXTRA}") from None
    try:
        yield
    except load.SettingsError as error:
        raise _fail(str(error), 2) from None
    except tuple(known) as error:
        raise _fail(str(error)) from None


def _settings(options: Mapping[str, Any]) -> RollupSettings:
    given = {name: value for name, value in options.items() if value is not None}
    lake: dict[str, Any] = {}
    if "lake" in given:
        lake["path"] = given["lake"]
    if "lake_format" in given:
        lake["format"] = str(given["lake_format"])
    postgres_file = given.get("postgres_file")
    over = {
        "source": str(given["source"]) if "source" in given else None,
        "spool_files": {"path": str(given["path"]) if "path" in given else None},
        "kafka": {name: given.get(name) for name in ("bootstrap_servers", "topic")},
        "postgres": given.get("postgres") if postgres_file is None else {"file": str(postgres_file)},
        "checkpoint": given.get("checkpoint"),
        "lake": lake,
    }
    settings: RollupSettings = _module("load").load(given.get("config"), over)
    _module("log").configure(settings.log.level, settings.log.format)
    return settings


@contextlib.contextmanager
def _store(settings: RollupSettings) -> Iterator[Store]:
    postgres = _module("postgres")
    with contextlib.ExitStack() as stack:
        url = settings.postgres.get_secret_value()
        if settings.embedded is not None:
            server = _module("embedded").EmbeddedPostgres(settings.embedded)
            url = stack.enter_context(server).url
            typer.echo(f"PostgreSQL runs as long as this command: {url}", err=True)
        store = postgres.Store(url, retention=settings.retention, reader_role=settings.reader_role)
        yield stack.enter_context(contextlib.closing(store))


@contextlib.contextmanager
def _session(settings: RollupSettings) -> Iterator[SparkSession]:
    session = _module("session")
    spark = session.spark_session(settings)
    try:
        yield spark
    finally:
        session.end(spark)


@contextlib.contextmanager
def _stop() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set."""
    stop = threading.Event()
    before = {one: signal.signal(one, lambda *_: stop.set()) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _fail(message: str, code: int = 1) -> typer.Exit:
    sys.stderr.write(f"kafka-telemetry: {' '.join(message.split())}\n")
    return typer.Exit(code)
