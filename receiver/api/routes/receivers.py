"""``/v1/receivers``: the state of each receiver of the cluster, for one screen."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field, ValidationError

from receiver.api.background import in_background, json_response
from receiver.api.cluster import MemberView, ScopeQuery, use_answers
from receiver.api.dependencies import Dependencies
from receiver.api.problems import problem_answers
from receiver.api.routes.status import StatusView, status_of
from receiver.settings.cluster import AnswerScope

router = APIRouter(prefix="/v1/receivers", tags=["health"], responses=problem_answers(422))


class ReceiverView(BaseModel):
    """A receiver."""

    receiver: str = Field(description="Its id, until it restarts.")
    status: StatusView = Field(description="As from `/v1/status`.")


class ReceiversView(BaseModel):
    """The receivers, this one first."""

    items: list[ReceiverView]
    members: list[MemberView] = Field(
        default=[], description="With `scope=cluster`: all receivers, also those that did not answer."
    )


@router.get(
    "",
    summary="Show this receiver, or all of the cluster",
    responses={200: {"model": ReceiversView, "description": "The state of each."}},
)
async def list_receivers(dependencies: Dependencies, query: Annotated[ScopeQuery, Query()]) -> Response:
    """Show this receiver; with `scope=cluster`, each one that answers."""
    cluster = dependencies.cluster
    if query.scope is AnswerScope.RECEIVER:
        own = await status_of(dependencies)
        return json_response({"items": [_item(cluster.receiver_id, own)], "members": []})
    own, answers = await asyncio.gather(status_of(dependencies), cluster.ask("/v1/status", {}))

    def together() -> dict[str, Any]:
        items = [_item(cluster.receiver_id, own)]

        def read(receiver: str, document: object) -> None:
            try:
                status = StatusView.model_validate(document)
            except ValidationError:
                raise ValueError("it has another version, whose status can't be read") from None
            items.append(_item(receiver, status.model_dump(mode="json")))

        members = use_answers(cluster, answers, read)
        return {"items": items, "members": members}

    return json_response(await in_background(together))


def _item(receiver: str, status: dict[str, Any]) -> dict[str, Any]:
    return {"receiver": receiver, "status": status}
