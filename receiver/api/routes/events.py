"""``/v1/events``: what happens, as a list or as a stream of server-sent events."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from receiver.api.background import json_response
from receiver.api.dependencies import Dependencies
from receiver.api.events import Event, EventLog, EventType
from receiver.api.pages import LimitQuery
from receiver.api.problems import ProblemError, problem_answers

router = APIRouter(prefix="/v1/events", tags=["events"], responses=problem_answers(422))

_STREAM: Final = "text/event-stream"

#: A stream ends by itself after so many seconds, because an answer has a deadline. Its reader
#: connects again and goes on after the last event that it has seen.
_STREAM_S: Final = 25.0

_MAX_STREAMS: Final = 16

#: Events that a stream sends before it lets the event loop run.
_PORTION: Final = 100

_open: weakref.WeakSet[_EventStream] = weakref.WeakSet()


class _EventStream(StreamingResponse):
    """A stream of events, which counts as open from its creation to its end."""

    def __init__(self, content: AsyncIterator[bytes]) -> None:
        super().__init__(content, media_type=_STREAM)
        _open.add(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            _open.discard(self)


class EventView(BaseModel):
    """An event."""

    id: str
    time: str = Field(description="When it happened (RFC 3339, UTC).")
    type: EventType
    subscription: str | None
    client_instance_id: str | None
    client_id: str | None
    owner: str | None


class EventsView(BaseModel):
    """The events after an id."""

    items: list[EventView]
    next: str = Field(description="Send it as `after` for the events that follow.")
    lost: bool = Field(description="Whether events between `after` and the first item were lost.")


class _EventsQuery(LimitQuery):
    after: str | None = Field(
        default=None,
        max_length=64,
        description="The id of the last event that was seen, or `next`; omitted: the oldest that is kept; in "
        "a stream, the latest.",
    )


@router.get(
    "",
    summary="List the latest events, or stream them",
    responses={
        200: {
            "model": EventsView,
            "description": f"A list; with `Accept: {_STREAM}`, a stream of server-sent events.",
            "content": {_STREAM: {"schema": {"type": "string"}}},
        },
        **problem_answers(429),
    },
)
async def read_events(
    dependencies: Dependencies,
    request: Request,
    query: Annotated[_EventsQuery, Query()],
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
    last_event_id: Annotated[str | None, Header(description="As `after`; it takes precedence.")] = None,
) -> Response:
    """List the events that are kept, at most 1,000, or stream new ones as they happen.

    A stream ends after 25 seconds. Browsers' EventSource and other readers connect again by
    themselves and lose nothing.
    """
    log = dependencies.events
    after = last_event_id if last_event_id is not None else query.after
    if _STREAM in (accept or "") and not request.scope.get("is_head"):
        if len(_open) >= _MAX_STREAMS:
            raise ProblemError(429, f"{_MAX_STREAMS} streams are open: close one, or read the list")
        return _EventStream(_stream(log, after))
    events, lost = log.after(log.event_id(0) if after is None else after, query.limit)
    following = log.event_id(events[-1].number) if events else log.last_id
    shown = [_document(log, event) for event in events]
    return json_response({"items": shown, "next": following, "lost": lost and after is not None})


async def _stream(log: EventLog, after: str | None) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    ends = loop.time() + _STREAM_S
    position = log.last_id if after is None else after
    try:
        # Readers connect again after a tenth of a second.
        yield f"retry: 100\nid: {position}\n\n".encode()
        while True:
            events, lost = log.after(position, _PORTION)
            if lost:
                yield b"event: lost\ndata: {}\n\n"
                position = log.event_id(events[0].number - 1) if events else log.last_id
            for event in events:
                position = log.event_id(event.number)
                data = msgspec.json.encode(_document(log, event))
                yield f"id: {position}\nevent: {event.type}\ndata: ".encode() + data + b"\n\n"
            if not events and not lost:
                async with asyncio.timeout_at(ends):
                    await log.changed()
            elif loop.time() >= ends:
                return
    except TimeoutError:
        return


def _document(log: EventLog, event: Event) -> dict[str, Any]:
    return {
        "id": log.event_id(event.number),
        "time": event.time,
        "type": event.type,
        "subscription": event.subscription,
        "client_instance_id": event.client_instance_id,
        "client_id": event.client_id,
        "owner": event.owner,
    }
