"""``/v1/upgrade-check``: clients that a newer Kafka would break (KIP-896)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field, field_validator

from receiver.api.cluster import ScopedPageQuery, answer_list, cluster_list_responses
from receiver.api.dependencies import Dependencies
from receiver.api.filters import Pattern, matches, pattern_field
from receiver.api.pages import first_page
from receiver.api.problems import problem_answers
from receiver.api.routes.connections import rfc3339
from receiver.catalogue.dropped_versions import DROPPED_VERSIONS, Dropped
from receiver.cluster.merge import Item, Order
from receiver.telemetry.identity import recorded_identity
from receiver.telemetry.owners import Owners
from receiver.traffic.usage_store import ApiGroup, ApiUse
from receiver.wire.api_keys import api_name

router = APIRouter(prefix="/v1/upgrade-check", tags=["usage"], responses=problem_answers(422, 503))

_DAY_MS = 86_400_000


class UpgradeQuery(ScopedPageQuery):
    """The query parameters of ``/v1/upgrade-check``."""

    to: str = Field(
        description="The version of Kafka to upgrade to, for example `4.0`.",
        json_schema_extra={"pattern": DROPPED_VERSIONS.pattern},
    )
    days: int = Field(
        default=30, ge=1, le=4_000, description="Only clients that were seen in the last so many days."
    )
    principal: Pattern | None = pattern_field("principal")
    client_id: Pattern | None = pattern_field("client id")
    owner: Pattern | None = pattern_field("name of its owner", "; empty: of those without an owner")

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
    owner: str | None = Field(description="The name of their owner (`owners`); null: nobody declares them.")
    breaks: list[BreakView]


@router.get(
    "",
    summary="List the clients that a newer Kafka would break",
    responses=cluster_list_responses(UpgradeView),
)
async def check_upgrade(dependencies: Dependencies, query: Annotated[UpgradeQuery, Query()]) -> Response:
    """List the clients that use API versions which a newer Kafka lacks.

    The versions are those of all requests that were seen, whatever the broker can tell. An old
    broker may be the reason that a client uses an old version.
    """
    since_ms = dependencies.wall_ns() // 1_000_000 - query.days * _DAY_MS
    uses = await dependencies.traffic.read(lambda store: store.apis(since_ms))
    owners = dependencies.telemetry.owners
    return await answer_list(
        dependencies.cluster, "/v1/upgrade-check", query, lambda asked: _page(uses, asked, owners), _ORDER
    )


def _combine(items: Sequence[Item]) -> Item:
    breaks: dict[str, dict[str, Any]] = {}
    for entry in chain.from_iterable(item["breaks"] for item in items):
        known = breaks.setdefault(entry["api"], entry)
        breaks[entry["api"]] = {
            **known,
            "lowest": min(known["lowest"], entry["lowest"]),
            "highest": max(known["highest"], entry["highest"]),
            "first_seen": min(known["first_seen"], entry["first_seen"]),
            "last_seen": max(known["last_seen"], entry["last_seen"]),
        }
    return {**items[0], "breaks": list(breaks.values())}


_GROUP: Final = ("principal", "client_id", "client_software_name", "client_software_version")


def _position(item: Item) -> str:
    return _cursor([str(item[name]) for name in _GROUP])


_ORDER: Final = Order(position=_position, cursor=_position, combine=_combine)


def _page(uses: Iterable[ApiUse], query: UpgradeQuery, owners: Owners) -> dict[str, Any]:
    dropped = DROPPED_VERSIONS.up_to(query.to)
    wants_principal, wants_client_id = matches(query.principal), matches(query.client_id)
    found: dict[ApiGroup, list[dict[str, Any]]] = {}
    for use in uses:
        lack = dropped.get(use.api_key)
        if lack is None or not lack.breaks(use.lowest):
            continue
        if wants_principal(use.principal) and wants_client_id(use.client_id):
            found.setdefault(use.group, []).append(_break(use, lack))
    wants_owner = matches(query.owner)
    rows = [row for row in found.items() if wants_owner(_owner(row[0], owners) or "")]
    if query.after is not None:
        rows = [row for row in rows if _cursor(row[0]) > query.after]
    page, following = first_page(rows, query.limit, lambda row: _cursor(row[0]), lambda row: _cursor(row[0]))
    return {"items": [_document(*row, _owner(row[0], owners)) for row in page], "next": following}


def _cursor(group: Sequence[str]) -> str:
    return json.dumps(list(group))


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


def _owner(group: ApiGroup, owners: Owners) -> str | None:
    return owners.team_of(recorded_identity(*group))


def _document(group: ApiGroup, breaks: Sequence[dict[str, Any]], owner: str | None) -> dict[str, Any]:
    principal, client_id, software, version = group
    return {
        "principal": principal,
        "client_id": client_id,
        "client_software_name": software,
        "client_software_version": version,
        "owner": owner,
        "breaks": list(breaks),
    }
