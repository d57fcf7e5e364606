"""``serve`` and ``config``: the receiver itself, and what it would run with."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer

from receiver import process_1
from receiver.checked import Checked, check_configuration, load_checked, placed
from receiver.cli.output import fail
from receiver.cli.subscription_files import read_file
from receiver.host.discovery import HostedPlugin, installed_types
from receiver.host.settings import HostSettings
from receiver.importing import import_all
from receiver.plugin import ClientTelemetryReceiver, PluginConfig
from receiver.settings.errors import SettingsError
from receiver.settings.model import ReceiverSettings
from receiver.settings.reference import reference
from spark_streaming import dumps

EXIT_CONFIG = 2

config_app = typer.Typer(
    help="Check a configuration, or print the reference of all keys.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def serve(
    config: Annotated[
        Path,
        typer.Option(
            "--config", "-c", envvar="KAFKA_TELEMETRY_CONFIG", help="The YAML file.", metavar="FILE"
        ),
    ],
    *,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Take the listening sockets over from the running receiver at gateway.control, without a "
            "failed request. Its open connections end by themselves or after drain.timeout_s.",
        ),
    ] = False,
) -> None:
    """Run the sidecar in front of a broker until SIGTERM or SIGINT.

    Environment variables override the file: KAFKA_TELEMETRY_ and the key's path with two
    underscores between the parts.

    \u0008
    Examples:
      kafka-telemetry serve --config receiver.yaml
      KAFKA_TELEMETRY_BROKER__ID=2 kafka-telemetry serve --config receiver.yaml

    `kafka-telemetry config reference` prints all keys. SIGTERM drains and stops. SIGHUP applies the
    changed configuration, or logs why it can't and keeps the old one.
    """
    # Before anything else, because the configuration and the environment hold secrets.
    core_bytes = dumps.forbid()
    settings, plugins = _checked(config)
    # Imported here, because it imports everything and the other commands should start fast.
    run = import_all("receiver.app").run
    if process_1.in_keeper():
        process_1.start_supervisor()
        # A supervisor that is started again reads what has changed.
        settings, plugins = _checked(config)
    if settings.debug.dumpable:
        dumps.allow(core_bytes)
    raise typer.Exit(run(settings, config, plugins, take_over=take_over))


@config_app.command("check")
def check(
    file: Annotated[Path, typer.Argument(help="The YAML file.", metavar="FILE")],
    *,
    elsewhere: Annotated[
        bool, typer.Option("--elsewhere", help="It is for another machine: don't look for its files.")
    ] = False,
    origins: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="YAML mapping of keys to the places that they came from. Errors name these places.",
        ),
    ] = None,
) -> None:
    """Check a configuration file and the environment variables that override it.

    The files and folders that it names must exist here; --elsewhere leaves them out. If something
    is wrong, the exit status is 2, and a line on stderr for each mistake names the place, the key,
    the value and the fix. Warnings leave the status 0.

    \u0008
    Examples:
      kafka-telemetry config check receiver.yaml
      kafka-telemetry config check --elsewhere receiver.yaml
    """
    places = {} if origins is None else _origins(origins)
    if elsewhere:
        settings, plugins = _checked(file, places, elsewhere=True)
    else:
        checked = _checked_with_files(file, places)
        settings, plugins = checked.settings, list(checked.plugins)
    listeners = ", ".join(f"{listener.name} on {listener.bind}" for listener in settings.listeners)
    names = ", ".join(plugin.name for plugin in plugins) or "none"
    typer.echo(f"{file}: good. Listeners: {listeners}. Plugins: {names}.")


@config_app.command("reference")
def print_reference() -> None:
    """Print all keys with type, default, bounds and environment variable as Markdown.

    \u0008
    Example:
      kafka-telemetry config reference > configuration.md
    """
    try:
        plugins = {name: _plugin_config(entry) for name, entry in installed_types().items()}
    except SettingsError as error:
        raise fail(str(error), EXIT_CONFIG) from None
    sys.stdout.write(reference(plugins, HostSettings))


def _plugin_config(entry: EntryPoint) -> type[PluginConfig]:
    plugin: type[ClientTelemetryReceiver] = entry.load()
    return plugin.Config


def _origins(file: Path) -> dict[str, str]:
    found = read_file(file)
    if not isinstance(found, dict) or not all(isinstance(place, str) for place in found.values()):
        raise fail(f"{file}: expected a mapping of keys to places, such as listeners: values.brokers", 2)
    return found


def _checked(
    file: Path, origins: Mapping[str, str] = MappingProxyType({}), *, elsewhere: bool = False
) -> tuple[ReceiverSettings, list[HostedPlugin]]:
    try:
        return load_checked(file, os.environ, elsewhere=elsewhere)
    except SettingsError as error:
        raise _fail([error, *error.further], file, origins) from None


def _checked_with_files(file: Path, origins: Mapping[str, str]) -> Checked:
    try:
        checked = check_configuration(file, os.environ)
    except SettingsError as error:
        raise _fail([error, *error.further], file, origins) from None
    for warning in checked.warnings:
        fail(f"warning: {placed(warning, file, origins)}")
    if checked.mistakes:
        raise _fail(checked.mistakes, file, origins)
    return checked


def _fail(errors: Sequence[SettingsError], file: Path, origins: Mapping[str, str]) -> typer.Exit:
    """Write each mistake on a line, and return the exception to raise."""
    for error in errors:
        fail(placed(error, file, origins), EXIT_CONFIG)
    return typer.Exit(EXIT_CONFIG)
