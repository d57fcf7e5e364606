"""``/v1/owners``: the teams that clients belong to, and who of them is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from receiver.api.cluster import ScopedPageQuery, answer_list, cluster_list_responses
from receiver.api.dependencies import Dependencies
from receiver.api.filters import client_owner, connection_owner
from receiver.api.pages import first_page
from receiver.api.problems import problem_answers
from receiver.cluster.merge import Item, Order
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.instance import ClientInstance
from receiver.telemetry.owners import Owner, Owners

router = APIRouter(prefix="/v1/owners", tags=["clients"], responses=problem_answers(422))


class OwnerView(BaseModel):
    """A team, and the clients that belong to it."""

    team: str
    contact: str
    link: str
    match: dict[str, str] = Field(description="Regular expressions (RE2) by selector, as of a subscription.")
    expected: list[str] = Field(description="Principals that should be connected.")
    absent: list[str] = Field(description="Those of them that have no connection and no client instance.")
    connections: int = Field(description="Open connections.")
    clients: int = Field(description="Client instances; in the cluster, as often as receivers know them.")
    receiver: str | None = Field(default=None, description="With `scope=cluster`: one of the receivers.")


def _combined(views: Sequence[Item]) -> Item:
    absent = set[str].intersection(*(set(view["absent"]) for view in views))
    return {
        **views[0],
        "absent": [principal for principal in views[0]["absent"] if principal in absent],
        "connections": sum(view["connections"] for view in views),
        "clients": sum(view["clients"] for view in views),
    }


def _position(owner: Item) -> str:
    return str(owner["team"])


_ORDER: Final = Order(position=_position, cursor=lambda owner: str(owner["team"]), combine=_combined)


@router.get("", summary="List the owners by name", responses=cluster_list_responses(OwnerView))
async def list_owners(dependencies: Dependencies, query: Annotated[ScopedPageQuery, Query()]) -> Response:
    """List the owners by name, with their clients and who is absent."""
    page = partial(
        _page,
        dependencies.telemetry.owners,
        dependencies.connections(),
        list(dependencies.telemetry.instances),
        dependencies.monotonic(),
    )
    return await answer_list(dependencies.cluster, "/v1/owners", query, page, _ORDER)


def _page(
    owners: Owners,
    identities: Sequence[ClientIdentity],
    instances: Iterable[ClientInstance],
    now: float,
    query: ScopedPageQuery,
) -> dict[str, Any]:
    known = [instance for instance in instances if not instance.is_expired(now)]
    by_connection = {instance.identity.id: instance for instance in known}
    present = {identity.principal for identity in identities}
    present |= {instance.identity.principal for instance in known}
    connections = Counter(
        connection_owner(identity, by_connection.get(identity.id), owners) for identity in identities
    )
    clients = Counter(client_owner(instance, owners) for instance in known)
    later = [owner for owner in owners.owners if query.after is None or owner.team > query.after]
    found, following = first_page(later, query.limit, _team, _team)
    items = [
        {
            "team": owner.team,
            "contact": owner.contact,
            "link": owner.link,
            "match": dict(owner.match),
            "expected": owner.principals,
            "absent": [principal for principal in owner.principals if principal not in present],
            "connections": connections[owner.team],
            "clients": clients[owner.team],
        }
        for owner in found
    ]
    return {"items": items, "next": following}


def _team(owner: Owner) -> str:
    return owner.team
