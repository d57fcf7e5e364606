"""``/v1/findings``: what the roll-up knows to be wrong with clients."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from receiver.api.background import in_background, json_response
from receiver.api.dependencies import Dependencies
from receiver.api.filters import Pattern, pattern_field
from receiver.api.pages import LimitQuery
from receiver.api.problems import problem_answers
from receiver.cluster.rollup import RollupError

router = APIRouter(prefix="/v1/findings", tags=["clients"], responses=problem_answers(422))

_NOT_SET = "no roll-up is named: set `rollup: {url: http://127.0.0.1:8643}` and reload"


class NamesView(BaseModel):
    """Names of the clients that a finding is about."""

    count: int
    first: list[str] = Field(description="The first of them, by name.")


class AdviceView(BaseModel):
    """What to change."""

    rule: str
    now: str = Field(description="What is measured.")
    change: dict[str, str] = Field(description="What to set, by client library; `all`: for each of them.")
    why: str
    source: str
    cannot_see: str = Field(description="What the rule can't know.")


class FindingView(BaseModel):
    """A finding. Of names, those that it is about are not null."""

    kind: str
    severity: str = Field(description="`info`, `warning` or `critical`.")
    client_id: str | None = None
    client_instance_id: str | None = None
    client_software_name: str | None = None
    client_software_version: str | None = None
    principal: str | None = None
    group_id: str | None = None
    began_at: str = Field(description="Since when it holds, by the clients' minutes (RFC 3339).")
    held_at: str | None = Field(default=None, description="When it held last.")
    ended_at: str | None = Field(default=None, description="When it ended; null: it has not.")
    resolved_at: str | None = Field(default=None, description="When it was resolved; null: it is open.")
    summary: str
    client_ids: NamesView
    principals: NamesView
    owners: NamesView
    advice: list[AdviceView]


class FindingsView(BaseModel):
    """The findings, the most severe first."""

    items: list[FindingView]
    total: int = Field(description="How many there are; `items` has at most `limit` of them.")
    configured: bool = Field(description="Whether the configuration names a roll-up (`rollup.url`).")
    problem: str | None = Field(description="Why the roll-up's findings are missing; null: they are not.")


class FindingsQuery(LimitQuery):
    """The query parameters of ``/v1/findings``."""

    client_id: Pattern | None = pattern_field("client id of a client that the finding is about")
    principal: Pattern | None = pattern_field("principal")
    group: Pattern | None = pattern_field("consumer group")
    owner: Pattern | None = pattern_field("name of its owner")
    severity: Literal["info", "warning", "critical"] = Field(
        default="info", description="The least severity."
    )
    state: Literal["open", "all"] = Field(default="open", description="`all`: also resolved ones.")


_FINDINGS: TypeAdapter[list[FindingView]] = TypeAdapter(list[FindingView])


@router.get(
    "",
    summary="List the findings of the roll-up",
    responses={200: {"model": FindingsView, "description": "The findings, or why there are none."}},
)
async def list_findings(dependencies: Dependencies, query: Annotated[FindingsQuery, Query()]) -> Response:
    """List the roll-up's findings about clients of this cluster.

    An answer of the roll-up is kept for ten seconds. Without one, the answer is 200 with a
    `problem`, because everything else is known without the roll-up.
    """
    rollup = dependencies.rollup
    if rollup is None:
        return _answer([], 0, configured=False, problem=_NOT_SET)
    wanted = query.model_dump(mode="json", exclude_none=True, exclude={"limit"})
    try:
        found = await rollup.findings(tuple(wanted.items()))
        items = await in_background(_checked, found.items[: query.limit])
    except RollupError as error:
        return _answer([], 0, configured=True, problem=f"the roll-up does not answer: {error}")
    except ValidationError:
        problem = "the roll-up's answer can't be used: does it have the version of this receiver?"
        return _answer([], 0, configured=True, problem=problem)
    return _answer(items, found.total, configured=True, problem=None)


def _answer(items: list[dict[str, Any]], total: int, *, configured: bool, problem: str | None) -> Response:
    return json_response({"items": items, "total": total, "configured": configured, "problem": problem})


def _checked(findings: list[Any]) -> list[dict[str, Any]]:
    return [finding.model_dump() for finding in _FINDINGS.validate_python(findings)]
