"""``/v1/owners``: the teams that clients belong to, and what of them is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, cast

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field

from receiver.api.authorization import AuditedChange, Change
from receiver.api.bodies import JSON_TYPES, MERGE_PATCH_TYPES, body_of, read_json
from receiver.api.cluster import ScopedPageQuery, answer_list, cluster_list_responses
from receiver.api.conditions import Check, IfMatch, IfNoneMatch, conditions, entity_tag
from receiver.api.dependencies import ApiDependencies, Dependencies
from receiver.api.documents import TEAM_SCHEMA, OwnerBody, OwnerPatchBody
from receiver.api.filters import client_owner, connection_owner
from receiver.api.pages import first_page
from receiver.api.problems import ProblemError, problem_answers, subscription_errors
from receiver.api.queries import NO_QUERY
from receiver.cluster.merge import Item, Order
from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.instance import ClientInstance
from receiver.telemetry.latest_pushes import KeptPush
from receiver.telemetry.owners import Owner, Owners, patched, put_owner, to_document
from receiver.telemetry.pushed_topics import is_named, topics
from receiver.telemetry.subscription_document import time_to_text
from receiver.wire.uuid import Uuid

router = APIRouter(prefix="/v1/owners", tags=["clients"], responses=problem_answers(422))

_KIND: Final = "owner"
_Team = Annotated[str, Path(description="The owner's name.", json_schema_extra=TEAM_SCHEMA)]


class ExpectedView(BaseModel):
    """What should be there."""

    principals: list[str]
    topics: list[str]


class OwnerDocumentView(BaseModel):
    """An owner, as it was declared."""

    team: str
    match: dict[str, str] = Field(description="Regular expressions (RE2) by selector, as of a subscription.")
    contact: str
    link: str
    expected: ExpectedView
    source: str = Field(description="`file`: of the folder `owners.path`; `rest`: it was put.")
    changed_by: str | None = Field(description="Who changed it last; null: it is of a file.")
    changed_at: str | None = Field(description="When it was changed last (RFC 3339, UTC).")


class OwnerView(BaseModel):
    """A team, and the clients that belong to it."""

    team: str
    contact: str
    link: str
    match: dict[str, str] = Field(description="Regular expressions (RE2) by selector, as of a subscription.")
    expected: list[str] = Field(description="Principals that should be connected.")
    absent: list[str] = Field(description="Those of them that have no connection and no client instance.")
    expected_topics: list[str] = Field(description="Topics that its clients should use.")
    absent_topics: list[str] | None = Field(
        description="Those of them that no latest push of its clients names; null: unknown, because none "
        "of these pushes names a topic."
    )
    connections: int = Field(description="Open connections.")
    clients: int = Field(description="Client instances; in the cluster, as often as receivers know them.")
    receiver: str | None = Field(default=None, description="With `scope=cluster`: one of the receivers.")


def _combined(views: Sequence[Item]) -> Item:
    absent = set[str].intersection(*(set(view["absent"]) for view in views))
    return {
        **views[0],
        "absent": [principal for principal in views[0]["absent"] if principal in absent],
        "absent_topics": _absent_of_all(views),
        "connections": sum(view["connections"] for view in views),
        "clients": sum(view["clients"] for view in views),
    }


def _absent_of_all(views: Sequence[Item]) -> list[str] | None:
    """Return the topics that are absent everywhere.

    Receivers without its clients know nothing of its topics.
    """
    known = [view for view in views if view["connections"] or view["clients"]] or views
    found = [set(view["absent_topics"]) for view in known if view["absent_topics"] is not None]
    if not found:
        return None
    absent = set[str].intersection(*found)
    return [topic for topic in views[0]["expected_topics"] if topic in absent]


def _position(owner: Item) -> str:
    return str(owner["team"])


_ORDER: Final = Order(position=_position, cursor=lambda owner: str(owner["team"]), combine=_combined)


class TopicReader:
    """Reads the topics of each push once, in the thread for long reads."""

    def __init__(self) -> None:
        self._known: dict[Uuid, tuple[int, frozenset[str]]] = {}

    def read(self, pushed: Iterable[tuple[Uuid, KeptPush]]) -> None:
        """Read what is new of these pushes, and forget all others."""
        before, self._known = self._known, {}
        for client, push in pushed:
            known = before.get(client)
            if known is None or known[0] != push.received_at_ns:
                known = push.received_at_ns, topics(push.data)
            self._known[client] = known

    def topics_of(self, client: Uuid) -> frozenset[str]:
        """Return the topics of a client's push; none if it was not read."""
        return self._known.get(client, (0, frozenset()))[1]


@router.get("", summary="List the owners by name", responses=cluster_list_responses(OwnerView))
async def list_owners(
    dependencies: Dependencies, query: Annotated[ScopedPageQuery, Query()], request: Request
) -> Response:
    """List the owners by name, with their clients and what is absent."""
    now = dependencies.monotonic()
    owners, latest = dependencies.telemetry.owners, dependencies.telemetry.latest_pushes
    known = [client for client in dependencies.telemetry.instances if not client.is_expired(now)]
    pushed = [
        (client.id, push)
        for client in (known if any(owner.topics for owner in owners.owners) else ())
        if (push := latest.latest(client.id)) is not None
    ]
    reader = cast("TopicReader", request.app.state.topic_reader)
    shown = {
        topic: dependencies.telemetry.topic_value(topic) for owner in owners.owners for topic in owner.topics
    }

    connections = dependencies.connections()

    def page(asked: ScopedPageQuery) -> dict[str, Any]:
        reader.read(pushed)
        return _page(owners, connections, known, partial(_absent_topics, shown), reader, asked)

    return await answer_list(dependencies.cluster, "/v1/owners", query, page, _ORDER)


def _absent_topics(
    shown: Mapping[str, str | None], owner: Owner, named: frozenset[str], *, has_clients: bool
) -> list[str] | None:
    """Return which topics of an owner are not named.

    Args:
        shown: Each topic, as privacy rules let it be shown.
        named: The topics that its clients name.
    """
    if not has_clients:
        return list(owner.topics)
    if not named or any(shown[topic] is None for topic in owner.topics):
        return None if owner.topics else []
    return [topic for topic in owner.topics if not is_named(shown[topic] or topic, named)]


def _page(
    owners: Owners,
    identities: Sequence[ClientIdentity],
    known: Sequence[ClientInstance],
    absent_topics: Callable[..., list[str] | None],
    reader: TopicReader,
    query: ScopedPageQuery,
) -> dict[str, Any]:
    by_connection = {instance.identity.id: instance for instance in known}
    present = {identity.principal for identity in identities}
    present |= {instance.identity.principal for instance in known}
    connections = Counter(
        connection_owner(identity, by_connection.get(identity.id), owners) for identity in identities
    )
    of_clients = [client_owner(instance, owners) for instance in known]
    clients = Counter(of_clients)
    named: dict[str | None, frozenset[str]] = {}
    for instance, team in zip(known, of_clients, strict=True):
        named[team] = named.get(team, frozenset()) | reader.topics_of(instance.id)
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
            "expected_topics": owner.topics,
            "absent_topics": absent_topics(
                owner,
                named.get(owner.team, frozenset()),
                has_clients=bool(connections[owner.team] or clients[owner.team]),
            ),
            "connections": connections[owner.team],
            "clients": clients[owner.team],
        }
        for owner in found
    ]
    return {"items": items, "next": following}


def _team(owner: Owner) -> str:
    return owner.team


# -- changes ---------------------------------------------------------------------------------------


@router.get("/{team:path}", summary="Show an owner", dependencies=[NO_QUERY], responses=problem_answers(404))
async def show_owner(dependencies: Dependencies, response: Response, team: _Team) -> OwnerDocumentView:
    """Show an owner, as it was declared. The response's ETag can be sent as If-Match."""
    owner = dependencies.owners.find(team)
    if owner is None:
        raise _not_found(team)
    response.headers["etag"] = entity_tag(to_document(owner))
    return _view(owner, dependencies)


@router.put(
    "/{team:path}",
    summary="Create or replace an owner",
    dependencies=[NO_QUERY],
    responses={
        201: {"model": OwnerDocumentView, "description": "The owner is new."},
        **problem_answers(400, 408, 409, 412, 413, 415, 503),
    },
    openapi_extra=body_of(OwnerBody, JSON_TYPES),
)
async def put_owner_document(
    dependencies: Dependencies,
    change: AuditedChange,
    request: Request,
    response: Response,
    team: _Team,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> OwnerDocumentView:
    """Create or replace an owner of this receiver, durably.

    Owners of the folder `owners.path` come first and can't be changed here.
    """
    document = await read_json(request, JSON_TYPES)
    check = conditions(_KIND, team, if_match, if_none_match)
    try:
        return await _change(dependencies, change, response, team, lambda _: put_owner(document, team), check)
    except SubscriptionError as error:
        raise subscription_errors(error, document) from None


@router.patch(
    "/{team:path}",
    summary="Change parts of an owner",
    dependencies=[NO_QUERY],
    responses=problem_answers(400, 404, 408, 409, 412, 413, 415, 503),
    openapi_extra=body_of(OwnerPatchBody, MERGE_PATCH_TYPES),
)
async def patch_owner(
    dependencies: Dependencies,
    change: AuditedChange,
    request: Request,
    response: Response,
    team: _Team,
    if_match: IfMatch = None,
) -> OwnerDocumentView:
    """Change parts of an owner that was put, durably. It is a merge patch (RFC 7396)."""
    document = await read_json(request, MERGE_PATCH_TYPES)
    check = conditions(_KIND, team, if_match, None)

    def make(existing: Owner | None) -> Owner:
        if existing is None:
            raise _not_found(team)
        return patched(existing, document)

    try:
        return await _change(dependencies, change, response, team, make, check)
    except SubscriptionError as error:
        raise subscription_errors(error, document) from None


@router.delete(
    "/{team:path}",
    summary="Delete an owner",
    dependencies=[NO_QUERY],
    status_code=204,
    responses=problem_answers(404, 409, 412, 503),
)
async def delete_owner(
    dependencies: Dependencies, change: AuditedChange, team: _Team, if_match: IfMatch = None
) -> None:
    """Delete an owner that was put, durably."""
    check = conditions(_KIND, team, if_match, None)

    def remove(existing: Owner | None) -> None:
        if existing is None:
            raise _not_found(team)
        check(entity_tag(to_document(existing)))
        change.before = to_document(existing)

    await dependencies.owners.edit(team, remove)


async def _change(
    dependencies: ApiDependencies,
    change: Change,
    response: Response,
    team: str,
    make: Callable[[Owner | None], Owner],
    check: Check,
) -> OwnerDocumentView:
    """Make the new owner of the existing one, store it, and answer with it."""
    made: list[Owner] = []
    now = time_to_text(dependencies.now())

    def edit(existing: Owner | None) -> Owner:
        owner = make(existing)
        # Conditions count only for a request that is right (RFC 9110, section 13.2.1).
        check(None if existing is None else entity_tag(to_document(existing)))
        change.before = None if existing is None else to_document(existing)
        if existing is None:
            response.status_code = 201
        made.append(existing if existing == owner else owner.changed(by=change.who, at=now))
        return made[0]

    await dependencies.owners.edit(team, edit)
    change.after = to_document(made[0])
    response.headers["etag"] = entity_tag(change.after)
    return _view(made[0], dependencies)


def _view(owner: Owner, dependencies: ApiDependencies) -> OwnerDocumentView:
    return OwnerDocumentView(
        **to_document(owner),
        source="file" if dependencies.owners.is_of_folder(owner) else "rest",
        changed_by=owner.changed_by,
        changed_at=owner.changed_at,
    )


def _not_found(team: str) -> ProblemError:
    return ProblemError(404, f"there is no owner named {team!r}")
