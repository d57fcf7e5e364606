"""``series`` and ``plugins``: budgets and destinations."""

from __future__ import annotations

from typing import Annotated, Any

import httpx
import typer

from receiver.amounts import bytes_text, duration_text
from receiver.cli.output import OutputFormat, print_document, print_list, print_table
from receiver.cli.pages import PAGE
from receiver.cli.session import document_of, rest_command

_Output = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="A table, or JSON or YAML for programs.")
]


@rest_command
def show_series(
    session: httpx.Client,
    limit: Annotated[int, typer.Option("--limit", min=1, max=PAGE, help="Most rows of each kind.")] = 10,
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
    if output is not OutputFormat.TABLE:
        print_document(found, output)
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
    spool, waiting = plugin["spool"], plugin["waiting"]
    failure = plugin["last_error"] if plugin["consecutive_failures"] else None
    dropped = ", ".join(f"{count} {reason}" for reason, count in plugin["dropped"].items() if count)
    return {
        **{name: plugin[name] for name in ("name", "type", "state", "circuit", "delivery")},
        "waiting": f"{waiting['pushes']} ({bytes_text(waiting['bytes'])})",
        "spool": "-" if spool is None else f"{waiting['used_percent']:g} %",
        "full in": "-" if waiting["full_in_s"] is None else duration_text(waiting["full_in_s"]),
        "lag": duration_text(plugin["lag_s"]),
        "exported": str(plugin["exported"]),
        "dropped": dropped or "0",
        "problem": (spool and spool["problem"]) or plugin.get("files_problem") or failure or "-",
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
