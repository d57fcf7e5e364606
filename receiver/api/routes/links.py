"""``/v1/links``: where else a client's data is, as the configuration says it."""

from __future__ import annotations

from typing import cast

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from receiver.api.problems import problem_answers
from receiver.api.queries import NO_QUERY
from receiver.settings.rest import RestSettings

router = APIRouter(prefix="/v1/links", tags=["clients"], responses=problem_answers(422))


class LinkView(BaseModel):
    """A link of every client."""

    name: str
    url: str = Field(
        description="A URL with placeholders such as `{client_id}`: fields of a client, %-encoded. "
        "A client without one of these values does not have the link."
    )


class LinksView(BaseModel):
    """The links (`rest.links`), in the order of the configuration."""

    items: list[LinkView]


@router.get(
    "",
    summary="List the links of clients to other pages",
    dependencies=[NO_QUERY],
    responses={200: {"description": "The links."}},
)
async def list_links(request: Request) -> LinksView:
    """List the links that the console shows for each client."""
    settings = cast("RestSettings", request.app.state.settings)
    return LinksView(items=[LinkView(name=link.name, url=link.url) for link in settings.links])
