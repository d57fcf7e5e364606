"""``clients`` and ``connections``: who is there, and what each does."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import httpx
import typer

from receiver.cli.completion import (
    client_field,
    client_instance_ids,
    client_states,
    subscription_names,
)
from receiver.cli.output import OutputFormat, plain, print_document, print_list, print_table
from receiver.cli.pages import given, pages
from receiver.cli.session import document_of, rest_command
from receiver.telemetry.client_state import ClientState
from receiver.telemetry.subscription_checks import ALL_METRICS

#: What ``watch`` shows of a client when it changes.
_WATCHED: Final = ("state", "push_interval_ms", "subscriptions", "last_error")

_Output = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="A table, or JSON or YAML for programs.")
]
_Limit = Annotated[int, typer.Option("--limit", min=1, help="Most items to list.")]
_Id = Annotated[
    str,
    typer.Argument(
        help="The client instance id, 22 characters.", metavar="ID", autocompletion=client_instance_ids
    ),
]
_ClientId = Annotated[
    str | None,
    typer.Option("--client-id", help="Only with this client id.", autocompletion=client_field("client_id")),
]
_Software = Annotated[
    str | None,
    typer.Option(
        "--software",
        help="Only with this software name.",
        autocompletion=client_field("client_software_name"),
    ),
]
_Version = Annotated[
    str | None,
    typer.Option(
        "--version",
        help="Only with this software version.",
        autocompletion=client_field("client_software_version"),
    ),
]
_Principal = Annotated[str | None, typer.Option("--principal", help="Only with this principal.")]
_Listener = Annotated[str | None, typer.Option("--listener", help="Only at this listener.")]
_Subscription = Annotated[
    str | None,
    typer.Option(
        "--subscription",
        help="Only those that this subscription matches.",
        autocompletion=subscription_names,
    ),
]
_State = Annotated[
    str | None,
    typer.Option(
        "--state", help=f"Only in this state: {', '.join(ClientState)}.", autocompletion=client_states
    ),
]

clients_app = typer.Typer(help="The known client instances.", no_args_is_help=True, rich_markup_mode=None)


@clients_app.command("list")
@rest_command
def list_clients(
    session: httpx.Client,
    limit: _Limit = 1000,
    client_id: _ClientId = None,
    software: _Software = None,
    version: _Version = None,
    principal: _Principal = None,
    listener: _Listener = None,
    subscription: _Subscription = None,
    state: _State = None,
    output: _Output = OutputFormat.TABLE,
) -> None:
    """List the client instances that have sent telemetry requests.

    \u0008
    Examples:
      kafka-telemetry clients list
      kafka-telemetry clients list --software librdkafka --state silent
      kafka-telemetry clients list --limit 10000 --output json
    """
    filters = given(
        client_id=client_id,
        software=software,
        version=version,
        principal=principal,
        listener=listener,
        subscription=subscription,
        state=state,
    )
    found = list(pages(session, "/v1/clients", limit, filters))
    print_list(
        found, output, client_row, "no clients pass the filters" if filters else "no clients are known"
    )


@clients_app.command("show")
@rest_command
def show_client(session: httpx.Client, client_instance_id: _Id, output: _Output = OutputFormat.TABLE) -> None:
    """Show a client instance.

    \u0008
    Example:
      kafka-telemetry clients show 7wk08yJMQAOK9PUGl2Zmrg
    """
    found = document_of(session.get(f"/v1/clients/{_safe(client_instance_id)}"))
    if output is OutputFormat.TABLE:
        print_table([{"field": key, "value": _text(value)} for key, value in found.items()])
    else:
        print_document(found, output)


@clients_app.command("explain")
@rest_command
def explain_client(
    session: httpx.Client, client_instance_id: _Id, output: _Output = OutputFormat.TABLE
) -> None:
    """Explain what a client instance is asked for, and why.

    \u0008
    Example:
      kafka-telemetry clients explain 7wk08yJMQAOK9PUGl2Zmrg
    """
    found = document_of(session.get(f"/v1/clients/{_safe(client_instance_id)}/explain"))
    if output is not OutputFormat.TABLE:
        print_document(found, output)
        return
    interval, temporality = found["interval_from"], found["temporality_from"]
    within_s = found["asked_within_ms"] / 1000
    news = "" if found["in_effect"] else "it will learn of a change"
    by_bridge = found["via"] == "bridge"
    rows = [
        *(
            [("via", "bridge", "the broker decides; this receiver would ask for what follows")]
            if by_bridge
            else []
        ),
        ("state", found["state"], ""),
        *([] if by_bridge else [("next request", f"within {within_s:.0f} s", news)]),
        ("interval", f"{found['push_interval_ms'] / 1000:g} s", _origin(interval)),
        ("temporality", found["temporality"], _origin(temporality)),
        *(
            ("prefix", instance["prefix"] or ALL_METRICS, " ".join(instance["subscriptions"]))
            for instance in found["metrics_from"]
        ),
        *(
            (
                f"subscription {instance['name']}",
                "applies" if instance["matches"] else "no",
                "; ".join(instance["reasons"]),
            )
            for instance in found["subscriptions"]
        ),
    ]
    print_table([{"what": what, "value": value, "why": why} for what, value, why in rows])


@clients_app.command("watch")
@rest_command
def watch_clients(
    session: httpx.Client,
    client_id: _ClientId = None,
    software: _Software = None,
    version: _Version = None,
    principal: _Principal = None,
    listener: _Listener = None,
    subscription: _Subscription = None,
    every_s: Annotated[
        float, typer.Option("--every", min=0.1, help="Seconds between two looks.", metavar="SECONDS")
    ] = 2.0,
    looks: Annotated[
        int | None, typer.Option("--looks", min=1, help="Stop after so many looks.", metavar="COUNT")
    ] = None,
) -> None:
    """Write a line when a client comes, goes, or changes its state, until Ctrl-C.

    \u0008
    Examples:
      kafka-telemetry clients watch
      kafka-telemetry clients watch --client-id orders-1 --every 1
    """
    filters = given(
        client_id=client_id,
        software=software,
        version=version,
        principal=principal,
        listener=listener,
        subscription=subscription,
    )
    known: dict[str, dict[str, Any]] = {}
    look = 0
    while looks is None or look < looks:
        if look:
            time.sleep(every_s)
        look += 1
        found = {page["client_instance_id"]: page for page in pages(session, "/v1/clients", filters=filters)}
        for line in _changes(known, found):
            typer.echo(plain(line))
        known = found


@rest_command
def list_connections(
    session: httpx.Client,
    limit: _Limit = 1000,
    client_id: _ClientId = None,
    software: _Software = None,
    version: _Version = None,
    principal: _Principal = None,
    listener: _Listener = None,
    subscription: _Subscription = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            help=f"Only in this state: no_telemetry, {', '.join(ClientState)}.",
            autocompletion=client_states,
        ),
    ] = None,
    output: _Output = OutputFormat.TABLE,
) -> None:
    """List the open connections, oldest first.

    \u0008
    Examples:
      kafka-telemetry connections
      kafka-telemetry connections --state no_telemetry --output json
    """
    filters = given(
        client_id=client_id,
        software=software,
        version=version,
        principal=principal,
        listener=listener,
        subscription=subscription,
        state=state,
    )
    found = list(pages(session, "/v1/connections", limit, filters))
    nothing = "no connections pass the filters" if filters else "there are no connections"
    print_list(found, output, _connection_row, nothing)


def client_row(client: dict[str, Any]) -> dict[str, str]:
    """Return the row of a client in a table."""
    age, interval_ms = client["last_push_age_s"], client["push_interval_ms"]
    return {
        "client instance id": client["client_instance_id"],
        "client id": client["client_id"],
        "software": client["client_software_name"],
        "version": client["client_software_version"],
        "address": _address(client),
        "state": client["state"],
        "interval": "-" if interval_ms is None else f"{interval_ms / 1000:g} s",
        "pushes": str(client["pushes"]),
        "last push": "-" if age is None else f"{age:.0f} s ago",
    }


def _connection_row(connection: dict[str, Any]) -> dict[str, str]:
    return {
        "listener": connection["listener"],
        "address": _address(connection),
        "client id": connection["client_id"],
        "software": connection["client_software_name"],
        "version": connection["client_software_version"],
        "principal": connection["principal"],
        "state": connection["state"],
        "since": connection["since"],
    }


def _changes(known: dict[str, dict[str, Any]], found: dict[str, dict[str, Any]]) -> list[str]:
    lines = []
    for instance, client in found.items():
        before = known.get(instance)
        if before is None:
            lines.append(f"+ {instance} {client['client_id']} {client['state']}")
            continue
        changed = [f"{key} {before[key]} -> {client[key]}" for key in _WATCHED if before[key] != client[key]]
        if changed:
            lines.append(f"~ {instance} {client['client_id']} {', '.join(changed)}")
    lines += [
        f"- {instance} {client['client_id']}" for instance, client in known.items() if instance not in found
    ]
    return lines


def _address(shown: dict[str, Any]) -> str:
    host = shown["source_address"]
    port = shown["source_port"]
    return f"{f'[{host}]' if ':' in host else host}{'' if port is None else f':{port}'}"


def _origin(origin: dict[str, Any]) -> str:
    return " ".join((origin["origin"], *origin["subscriptions"]))


def _text(value: Any) -> str:
    if isinstance(value, list):
        # As in subscriptions: `*` is every metric. Clients are told an empty prefix.
        return " ".join(str(item) or ALL_METRICS for item in value) or "(none)"
    return "-" if value is None else str(value)


def _safe(client_instance_id: str) -> str:
    if not client_instance_id.replace("-", "").replace("_", "").isalnum():
        raise typer.BadParameter(f"{client_instance_id!r} is no client instance id", param_hint="ID")
    return client_instance_id
