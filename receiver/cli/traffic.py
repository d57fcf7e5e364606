"""``usage``, ``upgrade-check`` and the traffic of ``connections``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from receiver.amounts import bytes_text, count_text, duration_text
from receiver.cli import filters
from receiver.cli.output import Output, OutputFormat, print_list
from receiver.cli.pages import given, pages
from receiver.cli.session import Fleet, fleet_command, is_document
from receiver.settings.cluster import AnswerScope
from receiver.telemetry.subscription_document import time_from_text
from receiver.traffic.order import ConnectionGroup, ConnectionOrder, UsageGroup

By = Annotated[ConnectionGroup | None, typer.Option(help="Add the connections up by this.", metavar="FIELD")]
OrderBy = Annotated[
    ConnectionOrder | None,
    typer.Option(help=f"The greatest first: {', '.join(ConnectionOrder)}.", metavar="FIELD"),
]
Closed = Annotated[bool, typer.Option("--closed", help="The latest connections that have closed.")]
Watch = Annotated[bool, typer.Option("--watch", help="Show the list anew every two seconds, until Ctrl-C.")]
Looks = Annotated[
    int | None, typer.Option(min=1, help="Stop after so many looks with --watch.", metavar="COUNT")
]

_EVERY_S: Final = 2.0

#: The exit status for clients that would break.
EXIT_FOUND: Final = 3

#: Clears the terminal and goes to its first line.
_CLEAR: Final = "\x1b[2J\x1b[H"

_NARROW: Final = ("client id", "principal", "in", "out", "requests", "last minute", "idle")
_NARROW_CLOSED: Final = ("client id", "principal", "in", "out", "age", "closed", "reason")
_NARROW_GROUPS: Final = ("connections", "in", "out", "requests", "last minute")
#: What a cut would make wrong; names are cut in its place.
_WHOLE: Final = frozenset({"in", "out", "requests", "last minute", "idle", "age", "closed", "reason"})


def show_connections(
    fleet: Fleet,
    wanted: Mapping[str, str],
    output: OutputFormat,
    *,
    limit: int,
    by: ConnectionGroup | None,
    order_by: ConnectionOrder | None,
    closed: bool,
    looks: int | None,
) -> None:
    """List connections, or groups of them, with what they move.

    Args:
        looks: How often to look, two seconds apart; None: for ever.
    """
    query = {**wanted, **given(by=by, order_by=None if order_by is None else f"-{order_by}")}
    if closed:
        query["closed"] = "true"
    nothing = "no connection has closed" if closed else "there are no connections"
    if len(wanted) > 1:  # the scope is always there
        nothing = "no connections pass the filters"
    look = 0
    while looks is None or look < looks:
        if look:
            time.sleep(_EVERY_S)
        look += 1
        found = fleet.lists(lambda session: list(pages(session, "/v1/connections", limit, query)))
        if looks != 1 and not is_document(output):
            typer.echo(_CLEAR, nl=False)
        narrow: tuple[str, ...] = _NARROW_CLOSED if closed else _NARROW
        if by is not None:
            narrow = (by.replace("_", " "), *_NARROW_GROUPS)
        print_list(found, output, lambda item: _row(item, by), nothing, narrow=narrow, whole=_WHOLE)


def _row(item: Mapping[str, Any], by: ConnectionGroup | None) -> dict[str, str]:
    last, idle_ms = item["last_minute"], item["idle_ms"]
    moved = {
        "in": _bytes(item["bytes_in"]),
        "out": _bytes(item["bytes_out"]),
        "requests": _number(item["requests"]),
        "in flight": _number(item["in_flight"]),
        "last minute": "-" if last is None else _bytes(last["bytes_in"] + last["bytes_out"]),
        "idle": "-" if idle_ms is None else duration_text(idle_ms / 1000),
    }
    if by is not None:
        return {by.replace("_", " "): item[by], "connections": str(item["connections"]), **moved}
    return {
        "client id": item["client_id"],
        "principal": item["principal"],
        "software": f"{item['client_software_name']} {item['client_software_version']}",
        "address": item["source_address"],
        "listener": item["listener"],
        **moved,
        "last api": item["last_api"] or "-",
        "age": duration_text(item["age_ms"] / 1000),
        "relay": item["relay"] or "-",
        "tls": item["tls_version"] or "-",
        "closed": _ago(item["closed_at"]),
        "closed at": item["closed_at"] or "-",
        "reason": item["reason"] or "-",
        "receiver": item.get("receiver") or "-",
    }


def _ago(time_: str | None) -> str:
    if time_ is None:
        return "-"
    return f"{duration_text((datetime.now(UTC) - time_from_text(time_)).total_seconds())} ago"


def _bytes(amount: int | None) -> str:
    return "-" if amount is None else bytes_text(amount)


def _number(amount: int | None) -> str:
    return "-" if amount is None else str(amount)


@fleet_command
def show_usage(
    fleet: Fleet,
    by: Annotated[UsageGroup, typer.Option(help="What to add usage up by.")] = UsageGroup.PRINCIPAL,
    since: Annotated[
        str | None, typer.Option(help="The first day (UTC); by default 30 days ago.", metavar="DAY")
    ] = None,
    until: Annotated[str | None, typer.Option(help="The last day; by default today.", metavar="DAY")] = None,
    principal: filters.Principal = None,
    client_id: filters.ClientId = None,
    limit: filters.Limit = 10_000,
    scope: filters.Scope = AnswerScope.CLUSTER,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show what clients have used, day by day.

    \u0008
    Examples:
      kafka-telemetry usage
      kafka-telemetry usage --by client_id --since 2026-11-01 --output json
    """
    query = given(scope=scope, by=by, since=since, until=until, principal=principal, client_id=client_id)
    found = fleet.lists(lambda session: list(pages(session, "/v1/usage", limit, query)))
    print_list(found, output, lambda item: _usage_row(item, by), "nothing was used")


def _usage_row(item: Mapping[str, Any], by: UsageGroup) -> dict[str, str]:
    return {
        "day": item["day"],
        by.replace("_", " "): item[by] or "-",
        "in": bytes_text(item["bytes_in"]),
        "out": bytes_text(item["bytes_out"]),
        "requests": str(item["requests"]),
        "connections": str(item["connections"]),
    }


@fleet_command
def check_upgrade(
    fleet: Fleet,
    to: Annotated[str, typer.Option(help="The version of Kafka, for example 4.0.", metavar="VERSION")],
    days: Annotated[int, typer.Option(min=1, help="Only clients seen in the last so many days.")] = 30,
    principal: filters.Principal = None,
    client_id: filters.ClientId = None,
    owner: filters.Owner = None,
    limit: filters.Limit = 10_000,
    scope: filters.Scope = AnswerScope.CLUSTER,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List the clients that brokers of a newer version would no longer answer.

    The exit status is 3 if there are any.

    \u0008
    Examples:
      kafka-telemetry upgrade-check --to 4.0
      kafka-telemetry upgrade-check --to 4.0 --days 7 --output json
    """
    query = given(scope=scope, to=to, days=str(days), principal=principal, client_id=client_id, owner=owner)
    found = fleet.lists(lambda session: list(pages(session, "/v1/upgrade-check", limit, query)))
    print_list(found, output, _upgrade_row, f"Kafka {to} answers every client that was seen")
    if found and not fleet.status:
        if not is_document(output):
            typer.echo(f"{count_text(len(found), 'kind')} of clients would break", err=True)
        raise typer.Exit(EXIT_FOUND)


def _upgrade_row(item: Mapping[str, Any]) -> dict[str, str]:
    return {
        "principal": item["principal"],
        "client id": item["client_id"],
        "software": f"{item['client_software_name']} {item['client_software_version']}",
        "owner": item["owner"] or "-",
        "uses": ", ".join(_use(entry) for entry in item["breaks"]),
        "last seen": max(entry["last_seen"] for entry in item["breaks"]),
    }


def _use(entry: Mapping[str, Any]) -> str:
    needs = "gone" if entry["needs"] is None else f"needs v{entry['needs']}"
    return f"{entry['api']} v{entry['lowest']} ({needs})"
