"""Answers for all receivers of the cluster (``scope=cluster``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from urllib.parse import parse_qs

from fastapi import Response
from pydantic import BaseModel, Field
from starlette.types import ASGIApp, Receive, Scope, Send

from receiver.api.background import in_background, json_response
from receiver.api.pages import MAX_LIMIT, Page, PageQuery
from receiver.api.problems import problem_response
from receiver.api.queries import ForbiddingModel
from receiver.api.security_headers import with_headers
from receiver.cluster.members import ASKED_BY, RECEIVER, MemberAnswer, Members
from receiver.cluster.merge import Item, MemberPage, Order, merged_page, read_page
from receiver.settings.cluster import AnswerScope

_Item = TypeVar("_Item")
_Query = TypeVar("_Query", bound="ScopedPageQuery")


class ScopeQuery(ForbiddingModel):
    """The query parameter of a path that can answer for the cluster."""

    scope: AnswerScope = Field(
        default=AnswerScope.RECEIVER,
        description="`cluster`: of all receivers that `cluster.members` names, not of this one alone.",
    )


class ScopedPageQuery(PageQuery, ScopeQuery):
    """The query parameters of a list with pages that can be that of the cluster."""


class MemberView(BaseModel):
    """A receiver that was asked."""

    url: str | None = Field(description="Where it was asked; null: this receiver, without a URL of its own.")
    receiver: str | None = Field(description="Its id, until it restarts; null: not known.")
    answered: bool = Field(description="Whether the answer includes what it knows.")
    itself: bool = Field(description="Whether it is the receiver that answers.")
    problem: str | None = Field(description="Why its answer is missing; null: it is not.")


class ClusterPage(Page[_Item], Generic[_Item]):
    """One page of a list, of this receiver or of the cluster."""

    members: list[MemberView] = Field(
        default=[], description="With `scope=cluster`: all receivers, also those that did not answer."
    )


def cluster_list_responses(item: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Describe the answers of a list that can be that of the cluster."""
    return {200: {"model": ClusterPage[item], "description": "A page."}}  # type: ignore[valid-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """This receiver among those of its cluster."""

    receiver_id: str
    members: Members | None = None
    """All receivers; None: the configuration names none."""

    async def ask(self, path: str, parameters: dict[str, str | int]) -> list[MemberAnswer]:
        """Ask the other receivers; without any, nobody is asked."""
        if self.members is None:
            return []
        return await self.members.ask(path, parameters)


async def answer_list(
    cluster: Cluster,
    path: str,
    query: _Query,
    page: Callable[[_Query], dict[str, Any]],
    order: Order,
    after_merge: Callable[[Item], bool] | None = None,
    without: Sequence[str] = (),
) -> Response:
    """Answer a page of a list, of this receiver or of the cluster.

    Args:
        page: Returns this receiver's page of a query. It runs in a thread.
        after_merge: The filter of items that several receivers know; None: the receivers filter.
        without: The parameters of that filter, which the receivers don't get.
    """
    if query.scope is AnswerScope.RECEIVER:
        return json_response(await in_background(page, query))
    return json_response(await cluster_page(cluster, path, query, page, order, after_merge, without))


async def cluster_page(
    cluster: Cluster,
    path: str,
    query: _Query,
    page: Callable[[_Query], dict[str, Any]],
    order: Order,
    after_merge: Callable[[Item], bool] | None = None,
    without: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a page of the cluster's list, with all members; see :func:`answer_list`."""
    limit = query.limit if after_merge is None else MAX_LIMIT
    asked = query.model_copy(update={"scope": AnswerScope.RECEIVER, "limit": limit, **dict.fromkeys(without)})
    parameters = asked.model_dump(mode="json", exclude_none=True)
    own, answers = await asyncio.gather(in_background(page, asked), cluster.ask(path, parameters))

    def merge() -> dict[str, Any]:
        pages: list[MemberPage] = []

        def read(receiver: str, document: object) -> None:
            pages.append(read_page(receiver, document, order))

        read(cluster.receiver_id, own)
        members = use_answers(cluster, answers, read)
        passes = (lambda _: True) if after_merge is None else after_merge
        items, following = merged_page(pages, query.limit, order, passes)
        return {"items": items, "next": following, "members": members}

    return await in_background(merge)


def use_answers(
    cluster: Cluster, answers: Sequence[MemberAnswer], read: Callable[[str, object], None]
) -> list[dict[str, Any]]:
    """Read each receiver's answer once, and return a :class:`MemberView` of each.

    Args:
        read: Takes a receiver's id and document. It raises ValueError for a document that can't be
            used.
    """
    seen = {cluster.receiver_id}
    views = []
    for answer in answers:
        problem = answer.problem
        if problem is None and answer.receiver is not None and answer.receiver not in seen:
            try:
                read(answer.receiver, answer.document)
                seen.add(answer.receiver)
            except ValueError as error:
                problem = f"its answer can't be used: {error}"
        views.append(_view(answer.url, answer.receiver, problem, itself=answer.is_self))
    if not any(answer.is_self for answer in answers):
        views.insert(0, _view(None, cluster.receiver_id, None, itself=True))
    return views


def _view(url: str | None, receiver: str | None, problem: str | None, *, itself: bool) -> dict[str, Any]:
    return {
        "url": url,
        "receiver": receiver,
        "answered": problem is None,
        "itself": itself,
        "problem": problem,
    }


_LOOP: Final = "a receiver that asks another one asks it for scope=receiver"


class MemberRequests:
    """Adds this receiver's id to answers to other receivers, and ends loops."""

    def __init__(self, app: ASGIApp, receiver_id: str) -> None:
        self._app = app
        self._id = receiver_id.encode("latin-1")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, unless it is this receiver's own or would go on to others."""
        asked_by = next((value for name, value in scope["headers"] if name == ASKED_BY.encode()), None)
        if asked_by is None:
            await self._app(scope, receive, send)
            return
        send = with_headers(send, (RECEIVER.encode(), self._id))
        if asked_by == self._id:
            await Response(status_code=204)(scope, receive, send)
        elif AnswerScope.CLUSTER in parse_qs(scope["query_string"].decode("latin-1")).get("scope", ()):
            await problem_response(422, _LOOP)(scope, receive, send)
        else:
            await self._app(scope, receive, send)
