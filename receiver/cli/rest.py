"""The commands that call the REST API: subscriptions, clients, series, plugins."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import httpx
import typer

from receiver.cli.output import OutputFormat, print_json, print_list, print_table
from receiver.cli.session import document_of, rest_command
from receiver.telemetry.subscription import SELECTORS

__all__ = ["clients_app", "show_plugins", "show_series", "subscriptions_app"]

_PAGE = 1000

_Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="A table, or JSON for programs.")]
_Name = Annotated[str, typer.Argument(help="Name of the subscription.", metavar="NAME")]

subscriptions_app = typer.Typer(
    help="Which metrics which clients push, and how often.", no_args_is_help=True, rich_markup_mode=None
)
clients_app = typer.Typer(help="The known client instances.", no_args_is_help=True, rich_markup_mode=None)


@subscriptions_app.command("list")
@rest_command
def list_subscriptions(session: httpx.Client, output: _Output = OutputFormat.TABLE) -> None:
    """List the subscriptions.

    \u0008
    Examples:
      kafka-telemetry subscriptions list
      kafka-telemetry subscriptions list --output json
    """
    found = list(_pages(session, "/v1/subscriptions"))
    print_list(found, output, _subscription_row, "there are no subscriptions")


@subscriptions_app.command("show")
@rest_command
def show_subscription(session: httpx.Client, name: _Name, output: _Output = OutputFormat.TABLE) -> None:
    """Show one subscription.

    \u0008
    Example:
      kafka-telemetry subscriptions show producers
    """
    found = document_of(session.get(_path(name)))
    if output is OutputFormat.JSON:
        print_json(found)
    else:
        print_table([_subscription_row(found)])


@subscriptions_app.command("put")
@rest_command
def put_subscription(
    session: httpx.Client,
    name: _Name,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            help="Prefix of metric names; '*': all. Repeat it for several.",
            metavar="PREFIX",
        ),
    ] = None,
    interval_ms: Annotated[
        int | None,
        typer.Option("--interval-ms", help="Push interval in milliseconds, 100 to 3600000; default 300000."),
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option(
            "--match",
            help="Selector and a regular expression (RE2) for its whole value. Repeated: all must match. "
            f"Without it the subscription matches every client. Selectors: {', '.join(SELECTORS)}.",
            metavar="SELECTOR=REGEX",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", help="Read the subscription from this JSON file; -: from stdin.", metavar="FILE"
        ),
    ] = None,
    output: _Output = OutputFormat.TABLE,
) -> None:
    """Create or replace a subscription for the next request of every client.

    \u0008
    Examples:
      kafka-telemetry subscriptions put all --metric '*'
      kafka-telemetry subscriptions put producers -m org.apache.kafka.producer. --interval-ms 60000
      kafka-telemetry subscriptions put java -m '*' --match client_software_name=apache-kafka-java
      kafka-telemetry subscriptions put producers --file producers.json
    """
    if file is not None:
        if metric or match or interval_ms is not None:
            raise typer.BadParameter(
                "give either a file or the parts of the subscription", param_hint="--file"
            )
        content = _content(file)
    else:
        if not metric:
            raise typer.BadParameter("give at least one, for example --metric '*'", param_hint="--metric")
        body: dict[str, Any] = {"metrics": metric, "match": dict(_selector(one) for one in match or ())}
        if interval_ms is not None:
            body["interval_ms"] = interval_ms
        content = json.dumps(body).encode()
    response = session.put(_path(name), content=content, headers={"content-type": "application/json"})
    found = document_of(response)
    if output is OutputFormat.JSON:
        print_json(found)
    else:
        done = "created" if response.status_code == 201 else "replaced"
        within_s = int(response.headers.get("kafka-telemetry-asked-within-ms", 0)) / 1000
        typer.echo(f"{name}: {done}")
        if within_s:
            typer.echo(f"connected clients are asked within {within_s:.0f} s", err=True)
    for warning in found.get("warnings", ()):
        typer.echo(f"warning: {warning}", err=True)


@subscriptions_app.command("delete")
@rest_command
def delete_subscription(session: httpx.Client, name: _Name) -> None:
    """Delete a subscription. It stops to apply with the next request of every client.

    \u0008
    Example:
      kafka-telemetry subscriptions delete producers
    """
    document_of(session.delete(_path(name)))
    typer.echo(f"{name}: deleted")


@clients_app.command("list")
@rest_command
def list_clients(
    session: httpx.Client,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most clients to list.")] = 1000,
    output: _Output = OutputFormat.TABLE,
) -> None:
    """List the client instances that have sent telemetry requests.

    \u0008
    Examples:
      kafka-telemetry clients list
      kafka-telemetry clients list --limit 10000 --output json
    """
    found = list(_pages(session, "/v1/clients", limit))
    print_list(found, output, _client_row, "no clients are known")


@rest_command
def show_series(
    session: httpx.Client,
    limit: Annotated[int, typer.Option("--limit", min=1, max=_PAGE, help="Most rows of each kind.")] = 10,
    output: _Output = OutputFormat.TABLE,
) -> None:
    """Show the series budgets, their use, and the clients that use most.

    Those with data points over a budget come first.

    \u0008
    Examples:
      kafka-telemetry series
      kafka-telemetry series --limit 100 --output json
    """
    found = document_of(session.get("/v1/series", params={"limit": limit}))
    if output is OutputFormat.JSON:
        print_json(found)
        return
    budgets = found["budgets"]
    rows = [_series_row("all", "", found["total"], budgets["max_total"])]
    for kind, key, uses, budget in (
        ("principal", "principal", found["principals"], budgets["max_per_principal"]),
        ("client id", "client_id", found["client_ids"], None),
    ):
        rows += (_series_row(kind, use[key], use, budget) for use in uses)
    for use in found["clients"]:
        name = f"{use['client_instance_id']} {use['client_id']}"
        rows.append(_series_row("instance", name, use, budgets["max_per_client"]))
    print_table(rows)


@rest_command
def show_plugins(session: httpx.Client, output: _Output = OutputFormat.TABLE) -> None:
    """Show the plugins: state, waiting pushes and dropped pushes.

    \u0008
    Examples:
      kafka-telemetry plugins
      kafka-telemetry plugins --output json
    """
    found = document_of(session.get("/v1/plugins"))["items"]
    print_list(found, output, _plugin_row, "no plugins are configured")


def _plugin_row(plugin: dict[str, Any]) -> dict[str, str]:
    spool = plugin["spool"]
    failure = plugin["last_error"] if plugin["consecutive_failures"] else None
    dropped = ", ".join(f"{count} {reason}" for reason, count in plugin["dropped"].items() if count)
    return {
        **{name: plugin[name] for name in ("name", "type", "state", "circuit", "delivery")},
        "memory": str(plugin["queue"]["pushes"] + plugin["in_flight"]),
        "disk": "-" if spool is None else str(spool["pushes"]),
        "lag": f"{plugin['lag_s']:.0f} s",
        "exported": str(plugin["exported"]),
        "dropped": dropped or "0",
        "problem": (spool and spool["problem"]) or failure or "-",
    }


def _series_row(kind: str, name: str, use: dict[str, Any], budget: int | None) -> dict[str, str]:
    over_for_s = use["over_for_s"]
    return {
        "of": kind,
        "name": name,
        "instances": str(use.get("instances", 1)),
        "series": str(use["series"]),
        "budget": "-" if budget is None else str(budget),
        "over budget": str(use["overflowed"]),
        "for": "-" if over_for_s is None else f"{over_for_s:.0f} s",
    }


def _client_row(client: dict[str, Any]) -> dict[str, str]:
    host = client["source_address"]
    age = client["last_push_age_s"]
    return {
        "client instance id": client["client_instance_id"],
        "client id": client["client_id"],
        "software": client["client_software_name"],
        "version": client["client_software_version"],
        "address": f"{f'[{host}]' if ':' in host else host}:{client['source_port']}",
        "interval": f"{client['push_interval_ms'] / 1000:g} s",
        "pushes": str(client["pushes"]),
        "last push": "-" if age is None else f"{age:.0f} s ago",
    }


def _subscription_row(subscription: dict[str, Any]) -> dict[str, str]:
    match = " ".join(f"{selector}={pattern}" for selector, pattern in subscription["match"].items())
    return {
        "name": subscription["name"],
        "interval": f"{subscription['interval_ms'] / 1000:g} s",
        "metrics": " ".join(subscription["metrics"]) or "(none)",
        "match": match or "(every client)",
    }


def _pages(session: httpx.Client, path: str, limit: int = sys.maxsize) -> Iterator[dict[str, Any]]:
    parameters: dict[str, str | int] = {}
    while limit > 0:
        page = document_of(session.get(path, params={"limit": min(limit, _PAGE), **parameters}))
        yield from page["items"]
        if page["next"] is None:
            return
        parameters = {"after": page["next"]}
        limit -= len(page["items"])


def _path(name: str) -> str:
    if name in {"", ".", ".."}:
        raise typer.BadParameter(f"{name!r} cannot be the name of a subscription", param_hint="NAME")
    return f"/v1/subscriptions/{quote(name, safe='')}"


def _selector(text: str) -> tuple[str, str]:
    selector, sign, pattern = text.partition("=")
    if not sign or not selector:
        raise typer.BadParameter(
            f"{text!r}: expected SELECTOR=REGEX, for example client_id=orders-.*", param_hint="--match"
        )
    return selector, pattern


def _content(file: Path) -> bytes:
    if str(file) == "-":
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="--file") from None
