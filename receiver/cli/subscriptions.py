"""``subscriptions``: which metrics which clients push, and how often."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import httpx
import typer

from receiver.amounts import bytes_text, count_text, duration_text
from receiver.cli.clients import metrics_text, print_clients
from receiver.cli.completion import selectors, subscription_names
from receiver.cli.output import Output, OutputFormat, fail, print_document, print_fields, print_list
from receiver.cli.pages import given, pages, subscription_path
from receiver.cli.session import (
    Fleet,
    Session,
    change_command,
    document_of,
    fleet_command,
    is_document,
    rest_command,
)
from receiver.cli.subscription_copy import copy_subscriptions
from receiver.cli.subscription_files import read_file, read_subscriptions
from receiver.cli.subscription_presets import Preset, read_preset
from receiver.telemetry.selectors import SELECTORS
from receiver.telemetry.subscription_checks import Temporality
from receiver.telemetry.subscription_document import FIELDS, read_document, time_to_text, to_document
from receiver.wire.uuid import uuid_from_text, uuid_to_text

#: The exit code of ``diff`` if there are differences, and of ``match`` if no client matches.
EXIT_DIFFERENT: Final = 3

_NARROW: Final = ("name", "state", "interval", "metrics", "match")

_DURATION: Final = re.compile(r"(\d{1,6})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

_Name = Annotated[
    str,
    typer.Argument(help="Name of the subscription.", metavar="NAME", autocompletion=subscription_names),
]
_Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric", "-m", help="Prefix of metric names; '*': all. Repeat it for several.", metavar="PREFIX"
    ),
]
_Interval = Annotated[
    int | None,
    typer.Option(
        "--interval-ms",
        "--interval",
        help="Push interval in milliseconds, 100 to 3600000. Without it, an existing subscription keeps "
        "its interval, and a new one gets 300000.",
    ),
]
_Match = Annotated[
    list[str] | None,
    typer.Option(
        help="Selector and a regular expression (RE2) for its whole value. Repeated: all must match. "
        "SELECTOR!=REGEX: must not match. "
        f"Without it the subscription matches every client. Selectors: {', '.join(SELECTORS)}.",
        metavar="SELECTOR=REGEX",
        autocompletion=selectors,
    ),
]
_For = Annotated[
    str | None,
    typer.Option("--for", help="End by itself after this time: 90s, 15m, 2h, 7d.", metavar="DURATION"),
]
_ExpiresAt = Annotated[
    str | None, typer.Option(help="End by itself at this time (RFC 3339).", metavar="TIME")
]
_Temporality = Annotated[Temporality | None, typer.Option(help="How clients push counters.")]
_Labels = Annotated[
    list[str] | None, typer.Option(help="A label; repeat it for several.", metavar="KEY=TEXT")
]
_Description = Annotated[str | None, typer.Option(help="Text for people.")]
_File = Annotated[
    Path,
    typer.Option(
        "--file",
        "-f",
        help="YAML or JSON: one subscription, a list, or a folder of such files; -: stdin.",
        metavar="PATH",
    ),
]
_Prune = Annotated[bool, typer.Option("--prune", help="Delete the subscriptions that are not in the files.")]

subscriptions_app = typer.Typer(
    help="Which metrics which clients push, and how often.", no_args_is_help=True, rich_markup_mode=None
)


@subscriptions_app.command("list")
@fleet_command
def list_subscriptions(fleet: Fleet, output: Output = OutputFormat.TABLE) -> None:
    """List the subscriptions, expired ones first.

    \u0008
    Examples:
      kafka-telemetry subscriptions list
      kafka-telemetry subscriptions list --output json
    """
    _print_subscriptions(fleet.lists(lambda session: list(pages(session, "/v1/subscriptions"))), output)


@subscriptions_app.command("show")
@rest_command
def show_subscription(session: Session, name: _Name, output: Output = OutputFormat.TABLE) -> None:
    """Show one subscription.

    \u0008
    Example:
      kafka-telemetry subscriptions show producers -o yaml
    """
    found = document_of(session.get(subscription_path(name)))
    if is_document(output):
        print_document(found, output, session.cluster)
    else:
        print_fields(_row(found).items())


@subscriptions_app.command("put")
@change_command
def put_subscription(
    session: Session,
    name: _Name,
    metric: _Metrics = None,
    interval_ms: _Interval = None,
    match: _Match = None,
    duration: _For = None,
    expires_at: _ExpiresAt = None,
    temporality: _Temporality = None,
    label: _Labels = None,
    description: _Description = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="It applies to no client yet.")] = False,  # noqa: FBT002 -- an option
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            help="Read the subscription from this file, YAML or JSON; -: from stdin.",
            metavar="FILE",
        ),
    ] = None,
    preset: Annotated[
        Preset | None,
        typer.Option(help="The metrics that dashboards, findings and alerts read, each minute."),
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Create or replace a subscription for the next request of every client.

    \u0008
    Examples:
      kafka-telemetry subscriptions put dashboards --preset dashboards
      kafka-telemetry subscriptions put all --metric '*'
      kafka-telemetry subscriptions put producers -m org.apache.kafka.producer. --interval-ms 60000
      kafka-telemetry subscriptions put java -m '*' --match client_software_name=apache-kafka-java
      kafka-telemetry subscriptions put debug -m '*' --match client_id=orders-1 --for 15m
      kafka-telemetry subscriptions put producers --file producers.yaml
    """
    parts = {
        "metrics": metric,
        "interval_ms": interval_ms,
        "match": dict(pair(text, "--match") for text in match) if match else None,
        "expires_at": _end(duration, expires_at),
        "temporality": temporality,
        "labels": dict(pair(text, "--label") for text in label) if label else None,
        "description": description,
        "enabled": False if disabled else None,
    }
    if file is not None:
        if preset is not None or any(value is not None for value in parts.values()):
            raise typer.BadParameter(
                "give either a file or the parts of the subscription", param_hint="--file"
            )
        body = read_file(file)
    else:
        if preset is not None:
            wanted = read_preset(preset)
            parts["metrics"] = [*wanted["metrics"], *(metric or ())]
            parts["interval_ms"] = interval_ms or wanted["interval_ms"]
        elif not metric:
            raise typer.BadParameter(
                "give at least one, for example --metric '*', or --preset dashboards", param_hint="--metric"
            )
        body = {key: value for key, value in parts.items() if value is not None}
    _report(session, session.put(subscription_path(name), json=body), name, output)


@subscriptions_app.command("patch")
@change_command
def patch_subscription(
    session: Session,
    name: _Name,
    add_metric: Annotated[list[str] | None, typer.Option(help="Prefix to add.", metavar="PREFIX")] = None,
    remove_metric: Annotated[
        list[str] | None, typer.Option(help="Prefix to remove.", metavar="PREFIX")
    ] = None,
    interval_ms: Annotated[
        int | None, typer.Option("--interval-ms", "--interval", help="Push interval in milliseconds.")
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option(help="Pattern to add or replace.", metavar="SELECTOR=REGEX", autocompletion=selectors),
    ] = None,
    remove_match: Annotated[
        list[str] | None, typer.Option(help="Selector to remove.", metavar="SELECTOR")
    ] = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable", help="Whether it applies.")] = None,
    duration: _For = None,
    expires_at: Annotated[
        str | None,
        typer.Option(help="End by itself at this time (RFC 3339); never: not at all.", metavar="TIME"),
    ] = None,
    temporality: _Temporality = None,
    label: _Labels = None,
    remove_label: Annotated[list[str] | None, typer.Option(help="Label to remove.", metavar="KEY")] = None,
    description: _Description = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Change parts of a subscription for the next request of every client.

    \u0008
    Examples:
      kafka-telemetry subscriptions patch producers --add-metric org.apache.kafka.consumer.
      kafka-telemetry subscriptions patch producers --match 'client_id!=.*-test' --interval-ms 30000
      kafka-telemetry subscriptions patch debug --disable
    """
    body: dict[str, Any] = {
        "add_metrics": add_metric,
        "remove_metrics": remove_metric,
        "interval_ms": interval_ms,
        "match": _entries(match, remove_match, "--match"),
        "enabled": enabled,
        "expires_at": _end(duration, None if expires_at == "never" else expires_at),
        "temporality": temporality,
        "labels": _entries(label, remove_label, "--label"),
        "description": description,
    }
    body = {key: value for key, value in body.items() if value is not None}
    if expires_at == "never":
        body["expires_at"] = None
    if not body:
        raise typer.BadParameter("name something to change, for example --add-metric", param_hint="NAME")
    _report(session, session.patch(subscription_path(name), json=body), name, output)


@subscriptions_app.command("delete")
@change_command
def delete_subscription(session: Session, name: _Name) -> None:
    """Delete a subscription. It stops to apply with the next request of every client.

    \u0008
    Example:
      kafka-telemetry subscriptions delete producers
    """
    document_of(session.delete(subscription_path(name)))
    typer.echo(f"{name}: deleted")


@subscriptions_app.command("apply")
@change_command
def apply_subscriptions(session: Session, file: _File, prune: _Prune = False) -> None:  # noqa: FBT002 -- an option
    """Make the subscriptions equal to files. What is equal stays as it is.

    All files are checked before anything changes.

    \u0008
    Examples:
      kafka-telemetry subscriptions apply -f subscriptions.yaml
      kafka-telemetry subscriptions apply -f ./subscriptions.d --prune
    """
    wanted, existing = read_subscriptions(file), _existing(session)
    for name, document in wanted.items():
        if not _differences(document, existing.get(name)):
            typer.echo(f"{name}: unchanged")
            continue
        _report(session, session.put(subscription_path(name), json=document), name)
    for name in sorted(existing.keys() - wanted.keys()) if prune else ():
        document_of(session.delete(subscription_path(name)))
        typer.echo(f"{name}: deleted")


@subscriptions_app.command("diff")
@rest_command
def diff_subscriptions(session: Session, file: _File, prune: _Prune = False) -> None:  # noqa: FBT002 -- an option
    """Show what apply would change.

    The exit status is 3 if there is something, 0 if not.

    \u0008
    Example:
      kafka-telemetry subscriptions diff -f ./subscriptions.d --prune
    """
    wanted, existing = read_subscriptions(file), _existing(session)
    lines = []
    for name, document in wanted.items():
        sign = "~" if name in existing else "+"
        changes = _differences(document, existing.get(name))
        lines += [f"{sign} {name}", *(f"    {change}" for change in changes)] if changes else []
    lines += [f"- {name}" for name in sorted(existing.keys() - wanted.keys())] if prune else []
    for line in lines:
        typer.echo(line)
    if lines:
        raise typer.Exit(EXIT_DIFFERENT)


subscriptions_app.command("copy")(rest_command(copy_subscriptions))


@subscriptions_app.command("explain")
@rest_command
def explain_subscription(
    session: Session,
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of an existing subscription.", metavar="[NAME]", autocompletion=subscription_names
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="One subscription in YAML or JSON; -: stdin.", metavar="FILE"),
    ] = None,
    metric: _Metrics = None,
    interval_ms: _Interval = None,
    match: _Match = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Tell what a subscription does or would do, without storing it.

    \u0008
    Examples:
      kafka-telemetry subscriptions explain producers
      kafka-telemetry subscriptions explain -f producers.yaml
      kafka-telemetry subscriptions explain -m '*' --match client_id=orders-.* --interval-ms 10000
    """
    if sum((name is not None, file is not None, bool(metric))) != 1:
        raise typer.BadParameter("give one of NAME, --file and --metric", param_hint="NAME")
    if name is not None:
        body = document_of(session.get(subscription_path(name)))
    elif file is not None:
        body = read_file(file)
    else:
        body = {"metrics": metric}
    if interval_ms is not None:
        body["interval_ms"] = interval_ms
    if match:
        body["match"] = dict(pair(text, "--match") for text in match)
    found = document_of(session.post("/v1/explain", json=body))
    if is_document(output):
        print_document(found, output, session.cluster)
        return
    cost = "an unknown number of series"
    if found["series"] is not None:
        cost = f"about {found['series']} series and {bytes_text(round(found['bytes_per_second']))}/s"
    within = duration_text(found["asked_within_ms"] / 1000)
    clients = count_text(found["clients"], "client")
    typer.echo(f"matches {found['matched']} of {clients}, {cost}, all asked within {within}")
    for warning in found["warnings"]:
        typer.echo(f"warning: {warning}", err=True)


@subscriptions_app.command("match")
@fleet_command
def match_clients(
    fleet: Fleet,
    name: _Name,
    limit: Annotated[int, typer.Option(min=1, help="Most clients to list.")] = 1000,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List the clients that a subscription matches.

    The exit status is 3 if there are none.

    \u0008
    Example:
      kafka-telemetry subscriptions match producers
    """

    def matched(session: Session) -> list[dict[str, Any]]:
        document_of(session.get(subscription_path(name)))  # an unknown name is an error
        return list(pages(session, "/v1/clients", limit, given(subscription=name)))

    found = fleet.lists(matched)
    print_clients(found, output, "it matches no known client")
    if not found and not fleet.status:
        raise typer.Exit(EXIT_DIFFERENT)


def _draft(
    session: Session,
    add: Annotated[bool, typer.Option("--add", hidden=True)] = False,  # noqa: FBT002 -- an option
    delete: Annotated[bool, typer.Option("--delete", hidden=True)] = False,  # noqa: FBT002 -- an option
    list_all: Annotated[bool, typer.Option("--list", hidden=True)] = False,  # noqa: FBT002 -- an option
    name: Annotated[str | None, typer.Option("--id", hidden=True)] = None,
    metric: Annotated[list[str] | None, typer.Option(hidden=True)] = None,
    interval_ms: Annotated[int | None, typer.Option("--interval", "--interval-ms", hidden=True)] = None,
    match: Annotated[list[str] | None, typer.Option(hidden=True)] = None,
) -> None:
    """Which metrics which clients push, and how often.

    The spelling of KIP-714's draft is accepted too: --add --id ID --metric PREFIX --interval MS,
    --delete --id ID [--metric PREFIX], and --list [--id ID]. The id names the subscription. It is a
    client instance id, or the beginning of the client ids to match.
    """
    if add + delete + list_all != 1 or (name is None and not list_all):
        raise typer.BadParameter(
            "give a command, or --add or --delete with --id ID, or --list", param_hint="COMMAND"
        )
    named = name or ""
    if list_all:
        found = [page for page in pages(session, "/v1/subscriptions") if page["name"].startswith(named)]
        _print_subscriptions(found, OutputFormat.TABLE)
    elif delete and metric and set(document_of(session.get(_named(name)))["metrics"]) - set(metric):
        _report(session, session.patch(_named(name), json={"remove_metrics": metric}), named)
    elif delete:
        document_of(session.delete(_named(name)))
        typer.echo(f"{named}: deleted")
    else:
        if not metric:
            raise typer.BadParameter("give at least one, for example --metric '*'", param_hint="--metric")
        body: dict[str, Any] = {} if interval_ms is None else {"interval_ms": interval_ms}
        if match:
            body["match"] = dict(pair(text, "--match") for text in match)
        if name in _existing(session):
            response = session.patch(_named(name), json=body | {"add_metrics": metric})
        else:
            matched = {"match": _match_of_id(named)} | body
            response = session.put(_named(name), json=matched | {"metrics": metric})
        _report(session, response, named)


def _match_of_id(text: str) -> dict[str, str]:
    """Return what the id of a draft's subscription matches (KIP-714's draft, "Tools").

    There, a client instance id began with the client id.
    """
    with contextlib.suppress(ValueError):
        return {"client_instance_id": re.escape(uuid_to_text(uuid_from_text(text)))}
    return {"client_id": re.escape(text) + ".*"}


def _without_command(command: Callable[..., None]) -> Callable[..., None]:
    """Run a command of a group of the REST API that is called without a command."""
    run = change_command(command)

    @functools.wraps(command)
    def call(ctx: typer.Context, **arguments: Any) -> None:
        if ctx.invoked_subcommand is None:
            run(**arguments)
        else:
            _refuse_options(ctx)

    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = [context, *inspect.signature(run).parameters.values()]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _refuse_options(ctx: typer.Context) -> None:
    """Refuse options in front of a command, because the command would not see them."""
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(
                "give it after the command: "
                f"subscriptions {ctx.invoked_subcommand or 'COMMAND'} {parameter.opts[0]}",
                param_hint=parameter.opts[0],
            )


subscriptions_app.callback(invoke_without_command=True, no_args_is_help=True)(_without_command(_draft))


def _named(name: str | None) -> str:
    return subscription_path(name or "")


def _report(
    session: Session, response: httpx.Response, name: str, output: OutputFormat = OutputFormat.TABLE
) -> None:
    """Print what a PUT or PATCH did, with its warnings."""
    found = document_of(response)
    if is_document(output):
        print_document(found, output, session.cluster)
    else:
        done = "created" if response.status_code == httpx.codes.CREATED else "replaced"
        typer.echo(f"{name}: {'changed' if response.request.method == 'PATCH' else done}")
        within_s = int(response.headers.get("kafka-telemetry-asked-within-ms", 0)) / 1000
        if within_s:
            typer.echo(f"connected clients are asked within {duration_text(within_s)}", err=True)
    for warning in found.get("warnings", ()):
        typer.echo(f"warning: {warning}", err=True)


def _print_subscriptions(found: list[dict[str, Any]], output: OutputFormat) -> None:
    found = sorted(found, key=lambda subscription: subscription["state"] != "expired")
    print_list(found, output, _row, "there are no subscriptions", narrow=_NARROW, whole=_NARROW[:3])


def _row(subscription: dict[str, Any]) -> dict[str, str]:
    match = " ".join(f"{selector}={pattern}" for selector, pattern in subscription["match"].items())
    return {
        "name": subscription["name"],
        "state": subscription["state"],
        "interval": f"{subscription['interval_ms'] / 1000:g} s",
        "metrics": metrics_text(subscription["metrics"]),
        "match": match or "all clients",
        "ends": subscription["expires_at"] or "-",
        "temporality": subscription["temporality"] or "-",
        "labels": " ".join(f"{key}={text}" for key, text in subscription["labels"].items()) or "-",
        "changed by": subscription["changed_by"] or "-",
        "changed at": subscription["changed_at"] or "-",
        "description": subscription["description"] or "-",
    }


def _existing(session: Session) -> dict[str, dict[str, Any]]:
    return {page["name"]: page for page in pages(session, "/v1/subscriptions")}


def _differences(document: dict[str, Any], existing: dict[str, Any] | None) -> list[str]:
    """Return what a PUT of a document would change."""
    before = None if existing is None else read_document(existing)
    after = to_document(read_document(document, existing=before))
    old = {} if before is None else to_document(before)
    changed = [field for field in FIELDS if field not in old or old[field] != after[field]]
    if before is None:
        return [f"{field}: {_field_text(after[field])}" for field in changed]
    return [f"{field}: {_field_text(old[field])} -> {_field_text(after[field])}" for field in changed]


def _field_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def pair(text: str, option: str) -> tuple[str, str]:
    """Return key and value of an option such as ``--match``."""
    key, sign, value = text.partition("=")
    if not sign or not key:
        expected = "SELECTOR=REGEX, for example client_id=orders-.*" if option == "--match" else "KEY=TEXT"
        raise typer.BadParameter(f"{text!r}: expected {expected}", param_hint=option)
    return key, value


def _entries(
    added: Iterable[str] | None, removed: Iterable[str] | None, option: str
) -> dict[str, str | None] | None:
    """Return the entries of a merge patch (RFC 7396)."""
    entries: dict[str, str | None] = dict.fromkeys(removed or ())
    entries |= dict(pair(text, option) for text in added or ())
    return entries or None


def _end(duration: str | None, expires_at: str | None) -> str | None:
    if duration is None:
        return expires_at
    found = _DURATION.fullmatch(duration)
    if found is None or expires_at is not None:
        problem = "give either it or --expires-at" if found else "expected a time such as 90s, 15m, 2h or 7d"
        raise typer.BadParameter(f"{duration!r}: {problem}", param_hint="--for")
    seconds = int(found[1]) * _SECONDS[found[2]]
    try:
        return time_to_text(datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds))
    except OverflowError:
        raise fail(f"--for {duration}: is too long; omit it", 2) from None
