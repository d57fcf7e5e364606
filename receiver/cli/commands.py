"""The tree of commands.

A command is imported when it is used, since each needs other libraries, and all of them take a
second.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer
import typer.core
import typer.main

from receiver.importing import import_all

#: Where each command or group of commands is, in the order of the help.
_PLACES: Final = MappingProxyType(
    {
        "serve": "serve:serve",
        "config": "serve:config_app",
        "doctor": "doctor:doctor",
        "testkit": "testkit:judge_clients",
        "status": "status:show_status",
        "subscriptions": "subscriptions:subscriptions_app",
        "clients": "clients:clients_app",
        "connections": "clients:list_connections",
        "usage": "traffic:show_usage",
        "upgrade-check": "traffic:check_upgrade",
        "owners": "owners:owners_app",
        "listeners": "rest:show_listeners",
        "plugins": "rest:show_plugins",
        "series": "rest:show_series",
        "mcp": "mcp_server:serve_mcp",
        "events": "events:follow_events",
        "token": "token:token_app",
        "rollup": "rollup:rollup_app",
    }
)


class _Commands(Mapping[str, Any]):
    """The commands by name."""

    def __getitem__(self, name: str) -> Any:
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


@cache
def _command(name: str) -> Any:
    """Import a command; KeyError if there is none of this name."""
    module, _, attribute = _PLACES[name].partition(":")
    found = getattr(import_all(f"receiver.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name)(found)
        found = alone
    return typer.main.get_command(found)


class _Program(typer.core.TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()  # type: ignore[assignment]  # nobody adds to them


app = typer.Typer(
    name="kafka-telemetry",
    cls=_Program,
    help="Receives the metrics that Kafka clients push (KIP-714), in front of any Kafka-compatible broker.",
    epilog="Start with: `kafka-telemetry serve --config receiver.yaml`",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line with the arguments of the process, and exit."""
    app(prog_name="kafka-telemetry")


def _version(wanted: bool | None) -> None:  # noqa: FBT001 -- typer's signature of a callback
    if wanted:
        data_path = importlib.import_module("receiver.wire.walk").DATA_PATH
        typer.echo(f"kafka-telemetry {version('kafka-client-telemetry')}")
        typer.echo(f"data path: {data_path}")
        raise typer.Exit


@app.callback()
def _program(
    _: Annotated[
        bool | None,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = None,
) -> None:
    pass
