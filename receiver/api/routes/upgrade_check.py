"""``/v1/upgrade-check``: clients that a newer Kafka would break (KIP-896)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field, field_validator

from receiver.api.background import in_background, json_response
from receiver.api.dependencies import Dependencies
from receiver.api.filters import Pattern, matches, pattern_field
from receiver.api.pages import Page, PageQuery, first_page
from receiver.api.problems import Problem
from receiver.api.routes.connections import rfc3339
from receiver.catalogue.dropped_versions import DROPPED_VERSIONS, Dropped
from receiver.traffic.usage_store import ApiUse
from receiver.wire.api_keys import api_name

router = APIRouter(prefix="/v1/upgrade-check", tags=["usage"])

_DAY_MS = 86_400_000


class UpgradeQuery(PageQuery):
    """The query parameters of ``/v1/upgrade-check``."""

    to: str = Field(description="The version of Kafka to upgrade to, for example `4.0`.")
    days: int = Field(
        default=30, ge=1, le=4_000, description="Only clients that were seen in the last so many days."
    )
    principal: Pattern | None = pattern_field("principal")
    client_id: Pattern | None = pattern_field("client id")

    @field_validator("to")
    @classmethod
    def _known(cls, value: str) -> str:
        DROPPED_VERSIONS.up_to(value)
        return value


class BreakView(BaseModel):
    """An API that a client uses in a version that the newer Kafka lacks."""

    api: str
    lowest: int = Field(description="The lowest version that the client was seen to use.")
    highest: int = Field(description="The highest one.")
    needs: int | None = Field(description="The lowest version that is answered; null: the API is gone.")
    dropped_in: str = Field(description="The version of Kafka that dropped it.")
    why: str = Field(description="The KIP.")
    first_seen: str = Field(description="When the use was first seen (RFC 3339, UTC).")
    last_seen: str = Field(
        description="When a connection that had used it last moved bytes, to the minute (RFC 3339, UTC)."
    )


class UpgradeView(BaseModel):
    """Clients that the newer Kafka would no longer answer."""

    principal: str
    client_id: str
    client_software_name: str
    client_software_version: str
    breaks: list[BreakView]


_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": Page[UpgradeView], "description": "A page."},
    422: {"model": Problem},
}


@router.get("", summary="List the clients that a newer Kafka would break", responses=_RESPONSES)
async def check_upgrade(dependencies: Dependencies, query: Annotated[UpgradeQuery, Query()]) -> Response:
    """List the clients that use API versions which a newer Kafka lacks.

    The versions are those of all requests that were seen, whatever the broker can tell. An old
    broker may be the reason that a client uses an old version.
    """
    traffic = dependencies.traffic
    await traffic.settle()
    since_ms = dependencies.wall_ns() // 1_000_000 - query.days * _DAY_MS
    return json_response(await in_background(lambda: _page(traffic.store.apis(since_ms), query)))


def _page(uses: Iterable[ApiUse], query: UpgradeQuery) -> dict[str, Any]:
    dropped = DROPPED_VERSIONS.up_to(query.to)
    wants_principal, wants_client_id = matches(query.principal), matches(query.client_id)
    found: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
    for use in uses:
        lack = dropped.get(use.api_key)
        if lack is None or not lack.breaks(use.lowest):
            continue
        if wants_principal(use.principal) and wants_client_id(use.client_id):
            found.setdefault(use.group, []).append(_break(use, lack))
    rows = sorted(found.items())
    if query.after is not None:
        rows = [row for row in rows if _cursor(row) > query.after]
    page, following = first_page(rows, query.limit, _cursor, _cursor)
    return {"items": [_document(*row) for row in page], "next": following}


def _cursor(row: tuple[tuple[str, str, str, str], Sequence[Mapping[str, Any]]]) -> str:
    return json.dumps(row[0])


def _break(use: ApiUse, lack: Dropped) -> dict[str, Any]:
    return {
        "api": api_name(use.api_key),
        "lowest": use.lowest,
        "highest": use.highest,
        "needs": lack.lowest,
        "dropped_in": lack.kafka,
        "why": lack.why,
        "first_seen": rfc3339(use.first_ms),
        "last_seen": rfc3339(use.last_ms),
    }


def _document(group: tuple[str, str, str, str], breaks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    principal, client_id, software, version = group
    return {
        "principal": principal,
        "client_id": client_id,
        "client_software_name": software,
        "client_software_version": version,
        "breaks": list(breaks),
    }
