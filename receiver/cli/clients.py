"""``clients`` and ``connections``: who is there, and what each does."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import httpx
import typer

from receiver.amounts import duration_text
from receiver.cli import filters, traffic
from receiver.cli.output import Output, OutputFormat, fail, plain, print_document, print_fields, print_list
from receiver.cli.pages import given, pages, worst_first
from receiver.cli.session import Fleet, Session, document_of, fleet_command, is_document, rest_command
from receiver.settings.cluster import AnswerScope
from receiver.telemetry.client_state import ClientState

#: What ``watch`` shows of a client when it changes.
_WATCHED: Final = ("state", "push_interval_ms", "subscriptions", "last_error")

#: The states, what is wrong first.
_CLIENT_STATES: Final = (
    ClientState.FAILING,
    ClientState.SILENT,
    ClientState.WAITING,
    ClientState.UNSUBSCRIBED,
    ClientState.PUSHING,
    ClientState.TERMINATED,
)
_CONNECTION_STATES: Final = (*_CLIENT_STATES[:4], "no_telemetry", *_CLIENT_STATES[4:])

_INSTANCE_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{20}[AQgw]")

#: Client instances of one client id that are shown.
_MAX_SHOWN: Final = 5

_NARROW: Final = ("client id", "client instance id", "software", "state", "last push")

clients_app = typer.Typer(help="The known client instances.", no_args_is_help=True, rich_markup_mode=None)


@clients_app.command("list")
@fleet_command
def list_clients(
    fleet: Fleet,
    wanted: filters.ClientFilters,
    limit: filters.Limit = 1000,
    state: filters.State = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List the client instances, failing and silent ones first.

    Those are listed that have sent telemetry requests.

    \u0008
    Examples:
      kafka-telemetry clients list
      kafka-telemetry clients list --client-id 'team-x-.*' --state silent
      kafka-telemetry clients list --software librdkafka --output wide
      kafka-telemetry clients list --limit 10000 --output json
    """
    query = given(**asdict(wanted), state=state)
    found = fleet.lists(
        lambda session: worst_first(
            session, "/v1/clients", _CLIENT_STATES, limit, query, "client_instance_id"
        )
    )
    print_clients(
        _worst(found, _CLIENT_STATES),
        output,
        "no clients pass the filters" if len(query) > 1 else "no clients are known",
    )


@clients_app.command("show")
@rest_command
def show_client(
    session: Session,
    client: filters.Id,
    scope: filters.Scope = AnswerScope.CLUSTER,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show a client instance, or those of a client id.

    \u0008
    Examples:
      kafka-telemetry clients show 7wk08yJMQAOK9PUGl2Zmrg
      kafka-telemetry clients show orders-1
    """
    for number, found in enumerate(_named(session, client, scope)):
        if is_document(output):
            print_document(found, output, session.cluster)
            continue
        if number:
            typer.echo()
        print_fields((key, _text(key, value)) for key, value in found.items())


@clients_app.command("explain")
@rest_command
def explain_client(
    session: Session,
    client: filters.Id,
    scope: filters.Scope = AnswerScope.CLUSTER,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Explain what a client instance, or those of a client id, are asked for, and why.

    \u0008
    Examples:
      kafka-telemetry clients explain orders-1
      kafka-telemetry clients explain 7wk08yJMQAOK9PUGl2Zmrg
    """
    for number, shown in enumerate(_named(session, client, scope)):
        found = document_of(
            session.get(f"/v1/clients/{shown['client_instance_id']}/explain", params={"scope": scope})
        )
        if is_document(output):
            print_document(found, output, session.cluster)
            continue
        if number:
            typer.echo()
        print_fields(_explanation(found))


@clients_app.command("watch")
@fleet_command
def watch_clients(
    fleet: Fleet,
    wanted: filters.ClientFilters,
    every_s: Annotated[
        float, typer.Option("--every", min=0.1, help="Seconds between two looks.", metavar="SECONDS")
    ] = 2.0,
    looks: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many looks.", metavar="COUNT")
    ] = None,
) -> None:
    """Write a line when a client comes, goes, or changes its state, until Ctrl-C.

    \u0008
    Examples:
      kafka-telemetry clients watch
      kafka-telemetry clients watch --client-id orders-1 --every 1
    """
    query = given(**asdict(wanted))
    known: dict[tuple[str, str], dict[str, Any]] = {}
    look = 0
    while looks is None or look < looks:
        if look:
            time.sleep(every_s)
        look += 1
        items = fleet.lists(lambda session: list(pages(session, "/v1/clients", filters=query)))
        if fleet.status:  # a client must not seem to have gone
            return
        found = {(item.get("cluster", ""), item["client_instance_id"]): item for item in items}
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for line in _changes(known, found):
            typer.echo(f"{at} {plain(line)}")
        known = found


@fleet_command
def list_connections(
    fleet: Fleet,
    wanted: filters.ClientFilters,
    limit: filters.Limit = 1000,
    state: filters.ConnectionState = None,
    by: traffic.By = None,
    order_by: traffic.OrderBy = None,
    *,
    closed: traffic.Closed = False,
    watch: traffic.Watch = False,
    looks: traffic.Looks = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List the open connections, those of failing and silent clients first.

    With --by, --order-by, --closed or --watch, the list shows what they move.

    \u0008
    Examples:
      kafka-telemetry connections
      kafka-telemetry connections --by principal --order-by bytes_in
      kafka-telemetry connections --order-by last_minute --watch
      kafka-telemetry connections --state no_telemetry --output json
    """
    query = given(**asdict(wanted), state=state)
    if closed or watch or by is not None or order_by is not None:
        traffic.show_connections(
            fleet,
            query,
            output,
            limit=limit,
            by=by,
            order_by=order_by,
            closed=closed,
            looks=looks if watch else 1,
        )
        return
    found = fleet.lists(
        lambda session: worst_first(session, "/v1/connections", _CONNECTION_STATES, limit, query, "id")
    )
    print_list(
        _worst(found, _CONNECTION_STATES),
        output,
        _connection_row,
        "no connections pass the filters" if len(query) > 1 else "there are no connections",
        narrow=("listener", "client id", "software", "address", "state"),
        whole=("state",),
    )


def print_clients(clients: list[dict[str, Any]], output: OutputFormat, nothing: str) -> None:
    """Write a list of clients."""
    print_list(clients, output, _client_row, nothing, narrow=_NARROW, whole=_NARROW[1:2] + _NARROW[3:])


def _client_row(client: dict[str, Any]) -> dict[str, str]:
    age, interval_ms = client["last_push_age_s"], client["push_interval_ms"]
    return {
        "client id": client["client_id"],
        "client instance id": client["client_instance_id"],
        "software": client["client_software_name"],
        "version": client["client_software_version"],
        "principal": client["principal"],
        "address": _address(client),
        "state": client["state"],
        "interval": "-" if interval_ms is None else f"{interval_ms / 1000:g} s",
        "pushes": str(client["pushes"]),
        "last push": "-" if age is None else f"{duration_text(age)} ago",
        "last error": client["last_error"] or "-",
        "owner": client["owner"] or "-",
        "receiver": client.get("receiver") or "-",
    }


def _connection_row(connection: dict[str, Any]) -> dict[str, str]:
    return {
        "listener": connection["listener"],
        "client id": connection["client_id"],
        "software": connection["client_software_name"],
        "version": connection["client_software_version"],
        "principal": connection["principal"],
        "address": _address(connection),
        "state": connection["state"],
        "since": connection["since"],
        "owner": connection["owner"] or "-",
        "receiver": connection.get("receiver") or "-",
    }


def _worst(items: list[dict[str, Any]], states: Iterable[str]) -> list[dict[str, Any]]:
    """Order the items of several sidecars as those of each are."""
    rank = {str(state): number for number, state in enumerate(states)}
    return sorted(items, key=lambda item: rank[item["state"]])


def _named(session: Session, client: str, scope: AnswerScope) -> list[dict[str, Any]]:
    """Return the client instance of an id, or those of a client id, the worst first.

    None of them exits.
    """
    if _INSTANCE_ID.fullmatch(client):
        response = session.get(f"/v1/clients/{client}", params={"scope": scope})
        if response.status_code != httpx.codes.NOT_FOUND:
            document = document_of(response)
            session.answered(document)
            return [document]
    wanted = given(client_id=client, scope=scope)
    found = worst_first(session, "/v1/clients", _CLIENT_STATES, _MAX_SHOWN + 1, wanted, "client_instance_id")
    if not found:
        raise fail(_why_none(session, wanted))
    if len(found) > _MAX_SHOWN:
        typer.echo(
            f"{client} stands for more than {_MAX_SHOWN} client instances; "
            f"`kafka-telemetry clients list --client-id '{client}'` has all of them",
            err=True,
        )
    return found[:_MAX_SHOWN]


def _why_none(session: Session, wanted: Mapping[str, str]) -> str:
    """Return why a client is not known, as far as its connections show it."""
    client = wanted["client_id"]
    connections = list(pages(session, "/v1/connections", 1, wanted))
    if not connections:
        return (
            f"no client has the client id or client instance id {client}, and none is connected: check its "
            "bootstrap.servers, and `kafka-telemetry connections`"
        )
    software = f"{connections[0]['client_software_name']} {connections[0]['client_software_version']}"
    return (
        f"{client} ({software.strip() or 'unknown software'}) is connected and has sent no telemetry "
        "request: Java does so from 3.7 and librdkafka from 2.5, unless enable.metrics.push is false"
    )


def _explanation(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the fields of an explanation, each with its reason."""
    by_bridge = found["via"] == "bridge"
    fields = [("client", f"{found['client_id']} {found['client_instance_id']}")]
    if by_bridge:
        fields.append(
            ("via", "bridge: the broker decides; this receiver would ask for what follows"),
        )
        fields += [("differs", text) for text in found.get("differs", ())]
    fields.append(("state", found["state"]))
    if not by_bridge:
        news = "" if found["in_effect"] else "; it will learn of a change"
        fields.append(("next request", f"within {duration_text(found['asked_within_ms'] / 1000)}{news}"))
    fields += [
        ("interval", f"{found['push_interval_ms'] / 1000:g} s ({_origin(found['interval_from'])})"),
        ("temporality", f"{found['temporality']} ({_origin(found['temporality_from'])})"),
    ]
    fields += [
        ("metrics", f"{metrics_text([origin['prefix']])} ({' '.join(origin['subscriptions'])})")
        for origin in found["metrics_from"]
    ] or [("metrics", metrics_text([]))]
    if found["reduced"] is not None:
        reduced = found["reduced"]
        to = "the standard metrics" if reduced["to"] == "standard_metrics" else "nothing"
        why = "too large pushes" if reduced["offence"] == "too_large" else "too many bytes in a minute"
        fields.append(("asked for less", f"{to}, because of {why}"))
    fields += [("quirk", reason) for reason in found["quirks"]]
    return fields + [_verdict(verdict) for verdict in found["subscriptions"]]


def _verdict(verdict: Mapping[str, Any]) -> tuple[str, str]:
    applies = "applies" if verdict["matches"] else f"does not apply: {'; '.join(verdict['reasons'])}"
    return f"subscription {verdict['name']}", applies


def _changes(
    known: Mapping[tuple[str, str], dict[str, Any]], found: Mapping[tuple[str, str], dict[str, Any]]
) -> list[str]:
    lines = []
    for key, client in found.items():
        before = known.get(key)
        if before is None:
            lines.append(f"+ {_who(client)} {client['state']}")
            continue
        changed = [
            f"{field} {_text(field, before[field])} -> {_text(field, client[field])}"
            for field in _WATCHED
            if before[field] != client[field]
        ]
        if changed:
            lines.append(f"~ {_who(client)} {', '.join(changed)}")
    return lines + [f"- {_who(client)}" for key, client in known.items() if key not in found]


def _who(client: Mapping[str, Any]) -> str:
    cluster = f"{client['cluster']} " if "cluster" in client else ""
    return f"{cluster}{client['client_instance_id']} {client['client_id']}"


def _address(shown: dict[str, Any]) -> str:
    host = shown["source_address"]
    port = shown["source_port"]
    return f"{f'[{host}]' if ':' in host else host}{'' if port is None else f':{port}'}"


def _origin(origin: Mapping[str, Any]) -> str:
    names = origin["subscriptions"]
    return f"{origin['origin'].replace('_', '-')} {' '.join(names)}".strip()


def metrics_text(prefixes: Iterable[str]) -> str:
    """Return the metrics that prefixes stand for; `*` and an empty one are all."""
    prefixes = list(prefixes)
    if "*" in prefixes or "" in prefixes:
        return "all metrics"
    return " ".join(prefixes) or "no metrics"


def _text(field: str, value: Any) -> str:
    """Return the value of a field of a client."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if field == "requested_metrics":
        return metrics_text(value)
    if isinstance(value, list):
        parts = [_text(field, part) for part in value]
        return ("; " if any(isinstance(part, dict) for part in value) else " ").join(parts) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(key, part)}" for key, part in value.items())
    return str(value)
