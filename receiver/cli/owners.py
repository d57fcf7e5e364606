"""``owners``: the teams that clients belong to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from receiver.cli import filters
from receiver.cli.completion import selectors
from receiver.cli.output import Output, OutputFormat, print_document, print_fields, print_list
from receiver.cli.pages import owner_path, pages
from receiver.cli.session import (
    Fleet,
    Session,
    change_command,
    document_of,
    fleet_command,
    is_document,
    rest_command,
)
from receiver.cli.subscription_files import read_file
from receiver.cli.subscriptions import pair
from receiver.settings.cluster import AnswerScope

owners_app = typer.Typer(
    help="The teams that clients belong to.", no_args_is_help=True, rich_markup_mode=None
)

_Team = Annotated[str, typer.Argument(help="Name of the owner.", metavar="TEAM")]


@owners_app.command("list")
@fleet_command
def list_owners(
    fleet: Fleet, scope: filters.Scope = AnswerScope.CLUSTER, output: Output = OutputFormat.TABLE
) -> None:
    """List the owners of clients, first those that lack something they expect.

    `clients list --owner ''` lists the clients that nobody declares.

    \u0008
    Examples:
      kafka-telemetry owners list
      kafka-telemetry owners list --output json
      kafka-telemetry connections --owner payments
    """
    found = fleet.lists(lambda session: list(pages(session, "/v1/owners", filters={"scope": scope})))
    print_list(
        sorted(found, key=lambda owner: not _absent(owner)),
        output,
        _row,
        "there are no owners: put one, or set owners.path to a folder with them",
        narrow=("team", "contact", "connections", "clients", "absent"),
        whole=("connections", "clients"),
    )


def _absent(owner: dict[str, Any]) -> list[str]:
    return [*owner["absent"], *(owner["absent_topics"] or ())]


def _row(owner: dict[str, Any]) -> dict[str, str]:
    return {
        "team": owner["team"],
        "contact": owner["contact"] or "-",
        "connections": str(owner["connections"]),
        "clients": str(owner["clients"]),
        "absent": " ".join(_absent(owner)) or "-",
        "expected": " ".join([*owner["expected"], *owner["expected_topics"]]) or "-",
        "link": owner["link"] or "-",
    }


@owners_app.command("show")
@rest_command
def show_owner(session: Session, team: _Team, output: Output = OutputFormat.TABLE) -> None:
    """Show an owner, as it was declared.

    \u0008
    Example:
      kafka-telemetry owners show payments -o yaml
    """
    _show(session, document_of(session.get(owner_path(team))), output)


@owners_app.command("put")
@change_command
def put_owner(
    session: Session,
    team: _Team,
    match: Annotated[
        list[str] | None,
        typer.Option(
            help="Selector and a regular expression (RE2) for its whole value. Repeated: all must match. "
            "SELECTOR!=REGEX: must not match.",
            metavar="SELECTOR=REGEX",
            autocompletion=selectors,
        ),
    ] = None,
    contact: Annotated[str | None, typer.Option(help="Where to ask.")] = None,
    link: Annotated[str | None, typer.Option(help="Where more is.")] = None,
    principal: Annotated[
        list[str] | None, typer.Option(help="A principal that should be connected; repeat it for several.")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="A topic that its clients should use; repeat it for several.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", help="Read the owner from this file, YAML or JSON; -: stdin.", metavar="FILE"
        ),
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Create or replace an owner.

    \u0008
    Examples:
      kafka-telemetry owners put payments --match 'principal=User:pay-.*' --contact '#payments'
      kafka-telemetry owners put payments --file payments.yaml
    """
    expected = {"principals": principal, "topics": topic}
    parts = {
        "match": dict(pair(text, "--match") for text in match) if match else None,
        "contact": contact,
        "link": link,
        "expected": expected if principal or topic else None,
    }
    if file is not None:
        if any(value is not None for value in parts.values()):
            raise typer.BadParameter("give either a file or the parts of the owner", param_hint="--file")
        body = read_file(file)
    elif match:
        body = {key: value for key, value in parts.items() if value is not None}
    else:
        raise typer.BadParameter("give at least one, for example principal=User:pay-.*", param_hint="--match")
    response = session.put(owner_path(team), json=body)
    found = document_of(response)
    if is_document(output):
        print_document(found, output, session.cluster)
    else:
        typer.echo(f"{team}: {'created' if response.status_code == httpx.codes.CREATED else 'replaced'}")


@owners_app.command("delete")
@change_command
def delete_owner(session: Session, team: _Team) -> None:
    """Delete an owner that was put.

    \u0008
    Example:
      kafka-telemetry owners delete payments
    """
    document_of(session.delete(owner_path(team)))
    typer.echo(f"{team}: deleted")


def _show(session: Session, owner: dict[str, Any], output: OutputFormat) -> None:
    if is_document(output):
        print_document(owner, output, session.cluster)
        return
    match = ", ".join(f"{selector}={pattern}" for selector, pattern in owner["match"].items())
    expected = owner["expected"]
    rows = {
        "team": owner["team"],
        "match": match or "all clients",
        "contact": owner["contact"] or "-",
        "link": owner["link"] or "-",
        "expected": " ".join([*expected["principals"], *expected["topics"]]) or "-",
        "source": owner["source"],
        "changed by": owner["changed_by"] or "-",
        "changed at": owner["changed_at"] or "-",
    }
    print_fields(rows.items())
