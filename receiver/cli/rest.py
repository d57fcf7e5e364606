"""``listeners``, ``plugins`` and ``series``: listeners, destinations and budgets."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from receiver.amounts import bytes_text, duration_text
from receiver.cli.output import Output, OutputFormat, print_document, print_list, print_table, print_wrapped
from receiver.cli.pages import PAGE
from receiver.cli.session import Fleet, Session, document_of, fleet_command, is_document, rest_command

_LISTENERS: Final = ("name", "bind", "upstream", "broker", "proven", "connections")
_PLUGINS: Final = ("name", "state", "circuit", "waiting", "lag", "exported", "dropped")
_SERIES: Final = ("of", "name", "series", "budget", "over budget", "for")


@fleet_command
def show_listeners(fleet: Fleet, output: Output = OutputFormat.TABLE) -> None:
    """Show the listeners, the broker behind each, and whether its node id is proven.

    Those with a problem come first.

    \u0008
    Examples:
      kafka-telemetry listeners
      kafka-telemetry listeners --output wide
    """
    print_listeners(fleet.lists(lambda session: _items(session, "/v1/listeners")), output)


@fleet_command
def show_plugins(fleet: Fleet, output: Output = OutputFormat.TABLE) -> None:
    """Show the plugins: state, waiting pushes and dropped pushes.

    Those with a problem come first.

    \u0008
    Examples:
      kafka-telemetry plugins
      kafka-telemetry plugins --output json
    """
    print_plugins(fleet.lists(lambda session: _items(session, "/v1/plugins")), output)


@rest_command
def show_series(
    session: Session,
    limit: Annotated[int, typer.Option(min=1, max=PAGE, help="Most rows of each kind.")] = 10,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show the series budgets, their use, and the clients that use most.

    Those with data points over a budget come first.

    \u0008
    Examples:
      kafka-telemetry series
      kafka-telemetry series --limit 100 --output json
    """
    found = document_of(session.get("/v1/series", params={"limit": limit}))
    if is_document(output):
        print_document(found, output, session.cluster)
        return
    budgets = found["budgets"]
    rows = [_series_row("all", "", found["total"], budgets["max_total"])]
    for kind, key, uses, budget in (
        ("principal", "principal", found["principals"], budgets["max_per_principal"]),
        ("client id", "client_id", found["client_ids"], None),
        ("instance", "client_instance_id", found["clients"], budgets["max_per_client"]),
    ):
        rows += (_series_row(kind, use[key], use, budget) for use in uses)
    print_table(rows, output, narrow=_SERIES, whole=_SERIES[2:])


def print_listeners(listeners: list[dict[str, Any]], output: OutputFormat) -> None:
    """Write the listeners, and below them what is wrong with each."""
    print_listener_table(listeners, output)
    _print_problems([(_name(item), problem) for item in listeners for problem in _problems(item)], output)


def print_listener_table(listeners: list[dict[str, Any]], output: OutputFormat) -> None:
    """Write the listeners, those with a problem first."""
    print_list(
        sorted(listeners, key=lambda listener: (not _problems(listener), listener["broker"]["proven"])),
        output,
        _listener_row,
        "there are no listeners",
        narrow=_LISTENERS,
        whole=_LISTENERS[3:],
    )


def print_plugins(plugins: list[dict[str, Any]], output: OutputFormat) -> None:
    """Write the plugins, and below them what is wrong with each."""
    plugins = sorted(plugins, key=lambda plugin: plugin_problem(plugin) is None)
    print_list(plugins, output, _plugin_row, "no plugins are configured", narrow=_PLUGINS, whole=_PLUGINS[1:])
    found = [(_name(plugin), plugin_problem(plugin)) for plugin in plugins]
    _print_problems([(name, problem) for name, problem in found if problem is not None], output)


def plugin_problem(plugin: dict[str, Any]) -> str | None:
    """Return what is wrong with a plugin; None if nothing is known."""
    spool = plugin["spool"]
    problem: str | None = (spool and spool["problem"]) or plugin["files_problem"]
    if problem is None and plugin["consecutive_failures"]:
        problem = plugin["last_error"]
    return problem


def _items(session: Session, path: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = document_of(session.get(path))["items"]
    return items


def _problems(listener: dict[str, Any]) -> list[str]:
    return [
        listener[kind] for kind in ("bypass", "crossed", "hidden_telemetry") if listener[kind] is not None
    ]


def _print_problems(problems: list[tuple[str, str]], output: OutputFormat) -> None:
    """Write each problem once, with the names of those that have it."""
    if is_document(output):
        return
    names: dict[str, list[str]] = {}
    for name, problem in problems:
        names.setdefault(problem, []).append(name)
    for problem, having in names.items():
        print_wrapped(problem, f"{', '.join(having)}: ")


def _name(item: dict[str, Any]) -> str:
    return f"{item['cluster']} {item['name']}" if "cluster" in item else str(item["name"])


def _listener_row(listener: dict[str, Any]) -> dict[str, str]:
    broker, nodes = listener["broker"], listener["nodes"]
    return {
        "name": listener["name"],
        "bind": listener["bind"],
        "upstream": listener["upstream"],
        "broker": "-" if broker["id"] is None else str(broker["id"]),
        "proven": "yes" if broker["proven"] else "no",
        "connections": str(listener["connections"]),
        "security protocol": listener["security_protocol"],
        "cluster id": broker["cluster_id"] or "-",
        "advertised": broker["advertised"] or "-",
        "nodes": ", ".join(f"{node['broker']['id']} at {node['address']}" for node in nodes) or "-",
    }


def _plugin_row(plugin: dict[str, Any]) -> dict[str, str]:
    spool, waiting = plugin["spool"], plugin["waiting"]
    dropped = {reason: count for reason, count in plugin["dropped"].items() if count}
    return {
        "name": plugin["name"],
        "type": plugin["type"],
        "state": plugin["state"],
        "circuit": plugin["circuit"].replace("_", " "),
        "delivery": plugin["delivery"],
        "waiting": f"{waiting['pushes']} ({bytes_text(waiting['bytes'])})",
        "spool": "-" if spool is None else f"{waiting['used_percent']:g} %",
        "full in": "-" if waiting["full_in_s"] is None else duration_text(waiting["full_in_s"]),
        "lag": duration_text(plugin["lag_s"]),
        "exported": str(plugin["exported"]),
        "dropped": str(sum(dropped.values())),
        "dropped because": ", ".join(f"{count} {reason}" for reason, count in dropped.items()) or "-",
    }


def _series_row(kind: str, name: str, use: dict[str, Any], budget: int | None) -> dict[str, str]:
    over_for_s = use["over_for_s"]
    return {
        "of": kind,
        "name": name,
        "client id": use["client_id"] if kind == "instance" else "-",
        "instances": str(use.get("instances", 1)),
        "series": str(use["series"]),
        "budget": "-" if budget is None else str(budget),
        "over budget": str(use["overflowed"]),
        "for": "-" if over_for_s is None else duration_text(over_for_s),
    }
