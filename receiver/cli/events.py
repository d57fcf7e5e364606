"""``events``: follows the event streams of sidecars."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from typing import Annotated, Any, Final

import httpx
import typer

from receiver.cli.output import Output, OutputFormat, plain
from receiver.cli.pages import PAGE
from receiver.cli.profiles import Target
from receiver.cli.session import Fleet, Session, document_of, fleet_command, is_document

#: A stream ends after 25 seconds, so one that is silent for longer is broken.
_SILENCE_S: Final = 60.0
_CONNECT_S: Final = 10.0

_Event = dict[str, Any]


@fleet_command
def follow_events(
    fleet: Fleet,
    kept: Annotated[bool, typer.Option("--kept", help="Begin with the events that are kept.")] = False,  # noqa: FBT002 -- an option
    count: Annotated[
        int | None, typer.Option(min=1, help="End after so many events.", metavar="COUNT")
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Write a line when a subscription or owner changes, or a client comes or goes.

    It ends with Ctrl-C. With --output json, each line is a JSON document.

    \u0008
    Examples:
      kafka-telemetry events
      kafka-telemetry events --kept --output json
    """
    found: queue.SimpleQueue[_Event | None] = queue.SimpleQueue()
    for target in fleet.targets:
        threading.Thread(target=_follow, args=(fleet, target, found, kept), daemon=True).start()
    following, written = len(fleet.targets), 0
    while following and written != count:
        event = found.get()
        if event is None:
            following -= 1
            continue
        written += 1
        typer.echo(json.dumps(event) if is_document(output) else plain(_line(event)))


def _follow(fleet: Fleet, target: Target, found: queue.SimpleQueue[_Event | None], kept: bool) -> None:  # noqa: FBT001 -- an option
    """Put a sidecar's events in the queue, and None at its end."""
    try:
        with fleet.session(target) as session:
            for event in _events(session, kept=kept):
                found.put(event if session.cluster is None else {"cluster": session.cluster, **event})
    except typer.Exit as exit_:
        fleet.status = max(fleet.status, exit_.exit_code)
    finally:
        found.put(None)


def _events(session: Session, *, kept: bool) -> Iterator[_Event]:
    """Yield events for ever; a stream that ends goes on with the next one."""
    last: str | None = None
    if kept:
        page = document_of(session.get("/v1/events", params={"limit": PAGE}))
        yield from page["items"]
        last = page["next"]
    while True:
        headers = {"accept": "text/event-stream", **({} if last is None else {"last-event-id": last})}
        timeout = httpx.Timeout(_CONNECT_S, read=_SILENCE_S)
        with session.stream("GET", "/v1/events", headers=headers, timeout=timeout) as response:
            if not response.is_success:
                response.read()
                document_of(response)
            for kind, id_, data in _messages(response.iter_lines()):
                last = id_ or last
                if kind == "lost":
                    yield {"time": None, "type": "events_lost"}
                elif data:
                    yield json.loads(data)


def _messages(lines: Iterator[str]) -> Iterator[tuple[str, str, str]]:
    """Yield event, id and data of each message of a stream.

    Source: WHATWG, server-sent events.
    """
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        yield fields.get("event", ""), fields.get("id", ""), fields.get("data", "")
        fields = {}


def _line(event: _Event) -> str:
    names = ("cluster", "time", "type", "subscription", "owner", "client_instance_id", "client_id")
    shown = {name: event[name] for name in names if event.get(name) is not None}
    shown["type"] = shown["type"].replace("_", " ")
    return " ".join(shown.values())
