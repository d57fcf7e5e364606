"""The commands that speak REST to a running sidecar: for subscriptions, clients, series and plugins.

Owns what they ask and show. How they reach the sidecar is :mod:`receiver.cli.session`'s.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import httpx
import typer

from receiver.cli.output import OutputFormat, print_json, print_table
from receiver.cli.session import answer, speaks_rest
from receiver.telemetry.subscription import SELECTORS

__all__ = ["clients_app", "show_plugins", "show_series", "subscriptions_app"]

_PAGE = 1000

_Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="A table, or JSON for programs.")]
_Name = Annotated[str, typer.Argument(help="The subscription's name.", metavar="NAME")]

subscriptions_app = typer.Typer(
    help="What is asked of which clients, and how often.", no_args_is_help=True, rich_markup_mode=None
)
clients_app = typer.Typer(help="The clients that are known.", no_args_is_help=True, rich_markup_mode=None)


@subscriptions_app.command("list")
@speaks_rest
def list_subscriptions(session: httpx.Client, output: _Output = OutputFormat.TABLE) -> None:
    """List the subscriptions.

    \u0008
    Examples:
      kafka-telemetry subscriptions list
      kafka-telemetry subscriptions list --output json
    """
    found = list(_pages(session, "/v1/subscriptions"))
    _show_subscriptions(found, output)


@subscriptions_app.command("show")
@speaks_rest
def show_subscription(session: httpx.Client, name: _Name, output: _Output = OutputFormat.TABLE) -> None:
    """Show one subscription.

    \u0008
    Example:
      kafka-telemetry subscriptions show producers
    """
    found = answer(session.get(_path(name)))
    if output is OutputFormat.JSON:
        print_json(found)
    else:
        _show_subscriptions([found], output)


@subscriptions_app.command("put")
@speaks_rest
def put_subscription(
    session: httpx.Client,
    name: _Name,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            help="Prefix of metric names; '*': all. Give it again for more.",
            metavar="PREFIX",
        ),
    ] = None,
    interval_ms: Annotated[
        int | None,
        typer.Option(
            "--interval-ms", help="How often clients push, 100 to 3600000 milliseconds; 300000 if not given."
        ),
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option(
            "--match",
            help="Selector and regular expression (RE2) for the whole value; several must all match. "
            f"Without any, the subscription is for every client. Selectors: {', '.join(SELECTORS)}.",
            metavar="SELECTOR=REGEX",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", help="Take the subscription from this JSON file; -: from stdin.", metavar="FILE"
        ),
    ] = None,
    output: _Output = OutputFormat.TABLE,
) -> None:
    """Create a subscription, or replace the one of its name. It is in force for every client's next request.

    \u0008
    Examples:
      kafka-telemetry subscriptions put all --metric '*'
      kafka-telemetry subscriptions put producers --metric org.apache.kafka.producer. --interval-ms 60000
      kafka-telemetry subscriptions put java --metric '*' --match client_software_name=apache-kafka-java
      kafka-telemetry subscriptions put producers --file producers.json
    """
    if file is not None:
        if metric or match or interval_ms is not None:
            raise typer.BadParameter("give either a file or the subscription's parts", param_hint="--file")
        content = _content(file)
    else:
        if not metric:
            raise typer.BadParameter("give at least one, for example --metric '*'", param_hint="--metric")
        body: dict[str, Any] = {"metrics": metric, "match": dict(_selector(one) for one in match or ())}
        if interval_ms is not None:
            body["interval_ms"] = interval_ms
        content = json.dumps(body).encode()
    response = session.put(_path(name), content=content, headers={"content-type": "application/json"})
    found = answer(response)
    if output is OutputFormat.JSON:
        print_json(found)
    else:
        typer.echo(f"{name}: {'created' if response.status_code == 201 else 'replaced'}")


@subscriptions_app.command("delete")
@speaks_rest
def delete_subscription(session: httpx.Client, name: _Name) -> None:
    """Delete a subscription. Clients are asked for what is left from their next request on.

    \u0008
    Example:
      kafka-telemetry subscriptions delete producers
    """
    answer(session.delete(_path(name)))
    typer.echo(f"{name}: deleted")


@clients_app.command("list")
@speaks_rest
def list_clients(
    session: httpx.Client,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The most clients to list.")] = 1000,
    output: _Output = OutputFormat.TABLE,
) -> None:
    """List the client instances that have asked for subscriptions or pushed metrics.

    \u0008
    Examples:
      kafka-telemetry clients list
      kafka-telemetry clients list --limit 10000 --output json
    """
    found = list(_pages(session, "/v1/clients", limit))
    if output is OutputFormat.JSON:
        print_json(found)
        return
    columns = (
        "client instance id",
        "client id",
        "software",
        "version",
        "address",
        "interval",
        "pushes",
        "last push",
    )
    print_table(columns, [_client_row(client) for client in found], "no clients are known")


@speaks_rest
def show_series(
    session: httpx.Client,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=_PAGE, help="The most of each kind to list.")
    ] = 10,
    output: _Output = OutputFormat.TABLE,
) -> None:
    """Show how many series clients have, what their budgets are, and who has the most.

    Whoever has points over a budget comes first.

    \u0008
    Examples:
      kafka-telemetry series
      kafka-telemetry series --limit 100 --output json
    """
    found = answer(session.get("/v1/series", params={"limit": limit}))
    if output is OutputFormat.JSON:
        print_json(found)
        return
    budgets = found["budgets"]
    rows = [_series_row("everybody", "", found["total"], budgets["max_total"])]
    rows += (
        _series_row("principal", one["principal"], one, budgets["max_per_principal"])
        for one in found["principals"]
    )
    rows += (_series_row("client id", one["client_id"], one, None) for one in found["client_ids"])
    rows += (
        _series_row(
            "instance", f"{one['client_instance_id']} {one['client_id']}", one, budgets["max_per_client"]
        )
        for one in found["clients"]
    )
    print_table(("of", "name", "instances", "series", "budget", "over budget", "for"), rows, "")


@speaks_rest
def show_plugins(session: httpx.Client, output: _Output = OutputFormat.TABLE) -> None:
    """Show how each plugin's destination does: what waits for it in memory and on disk, and what was lost.

    \u0008
    Examples:
      kafka-telemetry plugins
      kafka-telemetry plugins --output json
    """
    found = list(_pages(session, "/v1/plugins"))
    if output is OutputFormat.JSON:
        print_json(found)
        return
    columns = (
        "name",
        "type",
        "state",
        "circuit",
        "delivery",
        "memory",
        "disk",
        "lag",
        "exported",
        "dropped",
        "problem",
    )
    print_table(columns, [_plugin_row(plugin) for plugin in found], "no plugins are configured")


def _plugin_row(plugin: dict[str, Any]) -> tuple[str, ...]:
    spool = plugin["spool"]
    failing = plugin["last_error"] if plugin["consecutive_failures"] else None
    return (
        plugin["name"],
        plugin["type"],
        plugin["state"],
        plugin["circuit"],
        plugin["delivery"],
        str(plugin["queue"]["pushes"] + plugin["in_flight"]),
        "-" if spool is None else str(spool["pushes"]),
        f"{plugin['lag_s']:.0f} s",
        str(plugin["exported"]),
        ", ".join(f"{count} {reason}" for reason, count in plugin["dropped"].items() if count) or "0",
        (spool and spool["problem"]) or failing or "-",
    )


def _series_row(kind: str, name: str, use: dict[str, Any], budget: int | None) -> tuple[str, ...]:
    over_for_s = use["over_for_s"]
    return (
        kind,
        name,
        str(use.get("instances", 1)),
        str(use["series"]),
        "-" if budget is None else str(budget),
        str(use["overflowed"]),
        "-" if over_for_s is None else f"{over_for_s:.0f} s",
    )


def _client_row(client: dict[str, Any]) -> tuple[str, ...]:
    host = client["source_address"]
    address = f"{f'[{host}]' if ':' in host else host}:{client['source_port']}"
    age = client["last_push_age_s"]
    return (
        client["client_instance_id"],
        client["client_id"],
        client["client_software_name"],
        client["client_software_version"],
        address,
        f"{client['push_interval_ms'] / 1000:g} s",
        str(client["pushes"]),
        "-" if age is None else f"{age:.0f} s ago",
    )


def _show_subscriptions(found: list[dict[str, Any]], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json(found)
        return
    rows = [
        (
            one["name"],
            f"{one['interval_ms'] / 1000:g} s",
            " ".join(one["metrics"]) or "(none)",
            " ".join(f"{selector}={pattern}" for selector, pattern in one["match"].items())
            or "(every client)",
        )
        for one in found
    ]
    print_table(("name", "interval", "metrics", "match"), rows, "there are no subscriptions")


def _pages(session: httpx.Client, path: str, limit: int | None = None) -> Iterator[dict[str, Any]]:
    left, after = limit, None
    while left is None or left > 0:
        parameters: dict[str, str | int] = {"limit": _PAGE if left is None else min(left, _PAGE)}
        if after is not None:
            parameters["after"] = after
        page = answer(session.get(path, params=parameters))
        yield from page["items"]
        after = page["next"]
        if after is None:
            return
        if left is not None:
            left -= len(page["items"])


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
