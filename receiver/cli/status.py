"""``status``: a sidecar on one screen, or many sidecars in one table."""

from __future__ import annotations

from typing import Any, Final

import typer

from receiver.amounts import bytes_text, count_text
from receiver.cli.output import (
    Output,
    OutputFormat,
    print_document,
    print_fields,
    print_list,
    print_wrapped,
)
from receiver.cli.rest import plugin_problem, print_listener_table, print_plugins
from receiver.cli.session import Fleet, document_of, fleet_command, is_document

#: The exit status if something should be corrected.
EXIT_WARNINGS: Final = 3

_SUMMARY: Final = ("status", "version", "pushing", "waiting", "dropped")

#: All columns after the status.
_SUMMARY_CELLS: Final = (*_SUMMARY[1:], "subscriptions", "connections", "listeners", "failing destinations")

#: What is wrong, the worst first.
_STATUSES: Final = ("no answer", "not ready", "warnings", "good")


@fleet_command
def show_status(fleet: Fleet, output: Output = OutputFormat.TABLE) -> None:
    """Show processes, listeners, clients, subscriptions, destinations and warnings.

    Several sidecars are a table, the worst first. The exit status is 0 if all is good, 3 if there
    are warnings, and 1 if a sidecar does not answer or accepts no clients.

    \u0008
    Examples:
      kafka-telemetry status
      kafka-telemetry status --output json
      kafka-telemetry status --url http://10.0.0.1:8642 --url http://10.0.0.2:8642
      kafka-telemetry status --profile 'prod-.*'
    """
    answers = fleet.read(lambda session: document_of(session.get("/v1/status")))
    shown = [
        {"cluster": target.name, "status": _status(answer), **(answer or {})} for target, answer in answers
    ]
    shown.sort(key=lambda item: _STATUSES.index(item["status"]))
    if fleet.is_one:
        if answers[0][1] is not None:
            _print_screen(answers[0][1], output)
    elif is_document(output):
        print_document(shown, output)
    else:
        _print_summary(shown, output)
    worst = shown[0]["status"]
    if worst in {"no answer", "not ready"}:
        raise typer.Exit(max(1, fleet.status))
    if worst == "warnings":
        raise typer.Exit(EXIT_WARNINGS)


def _status(answer: dict[str, Any] | None) -> str:
    if answer is None:
        return "no answer"
    if answer["problem"] is not None:
        return "not ready"
    return "warnings" if answer["warnings"] else "good"


def _print_screen(found: dict[str, Any], output: OutputFormat) -> None:
    if is_document(output):
        print_document(found, output)
        return
    ready = "accepts clients" if found["problem"] is None else f"not ready: {found['problem']}"
    print_fields(
        [
            ("receiver", f"{found['version']}, {ready}"),
            ("processes", _processes(found)),
            *([("certificates", _certificate(found))] if found["certificates"] else []),
            ("clients", _clients(found)),
            ("subscriptions", _subscriptions(found)),
        ]
    )
    typer.echo("\nlisteners:")
    # What is wrong with them is among the warnings.
    print_listener_table(found["listeners"], output)
    typer.echo("\ndestinations:")
    if found["destinations"]:
        print_plugins(found["destinations"], output)
    else:
        typer.echo("none: no plugins are configured")
    if found["warnings"]:
        typer.echo("\nwarnings:")
        for warning in found["warnings"]:
            print_wrapped(warning, "- ")


def _print_summary(shown: list[dict[str, Any]], output: OutputFormat) -> None:
    print_list(shown, output, _summary_row, "", narrow=_SUMMARY, whole=_SUMMARY)
    for item in shown:
        if item["status"] in {"not ready", "warnings"}:
            problems = [item["problem"]] if item["problem"] else item["warnings"]
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            print_wrapped(f"{problems[0]}{more}", f"{item['cluster']}: ")


def _summary_row(item: dict[str, Any]) -> dict[str, str]:
    if item["status"] == "no answer":
        return {"status": item["status"], **dict.fromkeys(_SUMMARY_CELLS, "-")}
    clients, destinations = item["clients"], item["destinations"]
    waiting = sum(plugin["waiting"]["pushes"] for plugin in destinations)
    cells = (
        item["version"],
        f"{clients['by_state'].get('pushing', 0)} of {clients['known']}",
        waiting,
        sum(sum(plugin["dropped"].values()) for plugin in destinations),
        item["subscriptions"]["by_state"].get("active", 0),
        item["connections"],
        len(item["listeners"]),
        sum(plugin_problem(plugin) is not None for plugin in destinations),
    )
    return {"status": item["status"], **dict(zip(_SUMMARY_CELLS, map(str, cells), strict=True))}


def _processes(found: dict[str, Any]) -> str:
    relays = found["relays"]
    running = f"core and {relays['running']} of {count_text(relays['expected'], 'relay')}"
    memory = sum(process["resident_bytes"] for process in found["processes"])
    restarts = sum(found["restarts"].values())
    return f"{running}, {bytes_text(memory)} of memory, {count_text(restarts, 'restart')}"


def _certificate(found: dict[str, Any]) -> str:
    first, count = found["certificates"][0], len(found["certificates"])
    known = "1 certificate, ends" if count == 1 else f"{count} certificates, the first ends"
    side = " for the broker" if first["side"] == "upstream" else ""
    return f"{known} {first['expires_at']} ({first['listener']}{side})"


def _clients(found: dict[str, Any]) -> str:
    clients = found["clients"]
    states = ", ".join(f"{count} {state}" for state, count in clients["by_state"].items())
    known = count_text(clients["known"], "client instance")
    return f"{known}{f' ({states})' if states else ''}, {count_text(found['connections'], 'connection')}"


def _subscriptions(found: dict[str, Any]) -> str:
    subscriptions = found["subscriptions"]
    states = ", ".join(f"{count} {state}" for state, count in subscriptions["by_state"].items()) or "none"
    unmatched = subscriptions["unmatched"]
    silent = f"; no known client matches {', '.join(unmatched)}" if unmatched else ""
    problem = f"; {subscriptions['problem']}" if subscriptions["problem"] else ""
    return f"{states}, kept in {subscriptions['store']}{silent}{problem}"
