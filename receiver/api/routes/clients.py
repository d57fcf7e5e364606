"""``/v1/clients``: client instances, their subscriptions and pushes (KIP-714)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from operator import attrgetter, or_
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from receiver.api.background import json_response
from receiver.api.cluster import (
    MemberView,
    ScopeQuery,
    answer_list,
    cluster_list_responses,
    use_answers,
)
from receiver.api.dependencies import ApiDependencies, Dependencies
from receiver.api.filters import UUID_PATTERN, ClientQuery, client_owner, matching_clients
from receiver.api.pages import first_page
from receiver.api.problems import InvalidError, ProblemError, field_error, problem_answers
from receiver.api.routes.connections import ConnectionFields, connection_fields
from receiver.cluster.merge import Item, Order, entry_of
from receiver.settings.cluster import AnswerScope
from receiver.telemetry.client_state import ClientState, state_of
from receiver.telemetry.control.offenders import Demand
from receiver.telemetry.identity import Via
from receiver.telemetry.instance import PUSH_MINUTES, ClientInstance
from receiver.telemetry.subscription_checks import ALL_METRICS, Temporality
from receiver.wire.error_codes import error_name
from receiver.wire.uuid import Uuid, uuid_from_text

router = APIRouter(prefix="/v1/clients", tags=["clients"], responses=problem_answers(422))

#: A path's client instance id.
ClientInstanceId = Annotated[
    str,
    Path(
        description="The client instance id in Kafka's text form, 22 characters.",
        json_schema_extra={"pattern": UUID_PATTERN},
    ),
]


class ReducedView(BaseModel):
    """Why a client instance is asked for less than its subscriptions want."""

    to: Literal["standard_metrics", "nothing"] = Field(description="The metrics it is still asked for.")
    offence: Literal["too_large", "bytes_per_minute"] = Field(
        description="The latest reason: several pushes in a row were too large, or it pushed too many bytes "
        "in a minute."
    )
    relaxes_in_s: float = Field(
        description="Seconds until it is asked for more, if it commits no offence until then."
    )


class SeenBy(BaseModel):
    """A connection of a client instance, and the receiver that knows it."""

    receiver: str = Field(description="The receiver's id.")
    connection_id: str
    via: Via
    listener: str
    source_address: str
    source_port: int | None
    state: ClientState
    pushes: int
    last_request_age_s: float


class ClientView(ConnectionFields):
    """A client instance and the connection of its latest telemetry request.

    Of a client that comes by a bridge, the receiver sees only the pushes that the broker accepted.
    What the broker asks of it and answers is null.
    """

    client_instance_id: str = Field(description="In Kafka's text form, 22 characters.")
    via: Via = Field(description="The way that its telemetry comes: a listener, or a plugin in the broker.")
    connection_id: str = Field(description="The connection of its latest telemetry request.")
    security_protocol: str
    client_rack: str | None = Field(description="As its pushes say; null: no push has revealed it.")
    group_id: str | None = Field(description="The same.")
    group_member_id: str | None = Field(description="The same.")
    transactional_id: str | None = Field(description="The same.")
    application_id: str | None = Field(description="The same, of Kafka Streams.")
    state: ClientState = Field(description="What it does now.")
    subscription_id: int | None = Field(
        description="The subscription id that its pushes must have; null: the broker decides."
    )
    push_interval_ms: int | None = Field(description="null: a broker before Kafka 4.2 does not say it.")
    requested_metrics: list[str] | None = Field(
        description='The metric name prefixes it is asked for; `["*"]`: all metrics; null: not known.'
    )
    temporality: Temporality | None = Field(description="How it pushes counters; null: the broker decides.")
    subscriptions: list[str] | None = Field(
        description="The names of the subscriptions that match it; null: the broker decides."
    )
    quirks: list[str] = Field(description="The reasons of the quirk rules that apply to its software.")
    interval_factor: int = Field(
        description="The factor by which back-pressure lengthens its push interval; 1: not at all."
    )
    plugin_behind: str | None = Field(description="The plugin that causes the factor; null: none (any more).")
    reduced: ReducedView | None = Field(
        description="Why it is asked for less than its subscriptions want; null: it is not."
    )
    pushes: int = Field(description="Accepted pushes.")
    pushed_minutes: str = Field(
        description="A bit for each of the last 60 minutes, the oldest first, as 15 hexadecimal digits: "
        "whether a push was accepted.",
        json_schema_extra={"pattern": "^[0-9a-f]{15}$"},
    )
    last_request_age_s: float = Field(description="Seconds since its latest telemetry request.")
    last_push_age_s: float | None = Field(
        description="Seconds since its latest accepted push; null before the first."
    )
    last_error: str | None = Field(
        description="Name of the latest error it was sent; `NONE` after a success; null: not known."
    )
    terminating: bool = Field(description="Whether its latest accepted push was marked as its last.")
    receiver: str | None = Field(
        default=None, description="With `scope=cluster`: the receiver that had its latest telemetry request."
    )
    connections: list[SeenBy] | None = Field(
        default=None,
        description="With `scope=cluster`: where receivers saw its latest requests, the latest first. "
        "`pushes` is the sum of theirs.",
    )
    members: list[MemberView] | None = Field(
        default=None, description="With `scope=cluster`, of one client instance: as in a list."
    )


def _combined(views: Sequence[Item]) -> Item:
    """Make one client instance of the views of several receivers: the latest counts."""
    views = sorted(views, key=lambda view: float(view["last_request_age_s"]))
    pushed = [view["last_push_age_s"] for view in views if view["last_push_age_s"] is not None]
    connections = [{field: view.get(field) for field in SeenBy.model_fields} for view in views]
    return {
        **views[0],
        "pushes": sum(int(view["pushes"]) for view in views),
        "pushed_minutes": _hexadecimal(
            reduce(or_, (int(view.get("pushed_minutes") or "0", 16) for view in views))
        ),
        "last_push_age_s": min(pushed, default=None),
        "connections": connections,
    }


def _hexadecimal(minutes: int) -> str:
    return f"{minutes:0{PUSH_MINUTES // 4}x}"


def _position(client: Item) -> Uuid:
    return uuid_from_text(client["client_instance_id"])


_ORDER: Final = Order(
    position=_position,
    cursor=lambda client: str(client["client_instance_id"]),
    combine=_combined,
)


@router.get("", summary="List the client instances by id", responses=cluster_list_responses(ClientView))
async def list_clients(dependencies: Dependencies, query: Annotated[ClientQuery, Query()]) -> Response:
    """List the client instances in the order of their ids' bytes (not of their text).

    With filters, only those that pass all of them. With `scope=cluster`, one that several receivers
    know is one item, and has the state that the latest of them sees.
    """
    start = None if query.after is None else _parse_id("after", query.after)
    instances = list(dependencies.telemetry.instances)
    page = partial(_page, instances, start=start, dependencies=dependencies)
    state = query.state
    return await answer_list(
        dependencies.cluster,
        "/v1/clients",
        query,
        page,
        _ORDER,
        # A client may be silent for one receiver, because it pushes to another one.
        None if state is None else lambda client: client["state"] == state,
        ("state",),
    )


def _page(
    instances: Sequence[ClientInstance],
    query: ClientQuery,
    *,
    start: Uuid | None,
    dependencies: ApiDependencies,
) -> dict[str, Any]:
    now = dependencies.monotonic()
    later = instances if start is None else [instance for instance in instances if instance.id > start]
    found, following = first_page(
        matching_clients(later, query, dependencies.telemetry.owners, now),
        query.limit,
        attrgetter("text_id"),
        attrgetter("id"),
    )
    return {"items": [_document(client, dependencies, now) for client in found], "next": following}


@router.get(
    "/{client_instance_id}",
    summary="Show a client instance",
    responses={
        200: {"model": ClientView, "description": "The client instance."},
        **problem_answers(404),
    },
)
async def show_client(
    dependencies: Dependencies, client_instance_id: ClientInstanceId, query: Annotated[ScopeQuery, Query()]
) -> Response:
    """Show a client instance."""
    if query.scope is AnswerScope.CLUSTER:
        return json_response(await client_in_cluster(dependencies, client_instance_id))
    client = require_client(dependencies, client_instance_id)
    return json_response(_document(client, dependencies, dependencies.monotonic()))


async def client_in_cluster(dependencies: ApiDependencies, client_instance_id: str) -> Item:
    """Return what the receivers of the cluster know of a client instance.

    Raises:
        ProblemError: 422 it is no id, 404 no receiver that answered knows it.
    """
    cluster = dependencies.cluster
    client = dependencies.find_client(_parse_id("client_instance_id", client_instance_id))
    answers = await cluster.ask(f"/v1/clients/{client_instance_id}", {})
    views: list[Item] = []
    if client is not None:
        own = _document(client, dependencies, dependencies.monotonic())
        views.append({**own, "receiver": cluster.receiver_id})

    def read(receiver: str, document: object) -> None:
        match document:
            case dict() if document.get("client_instance_id") == client_instance_id:
                _, view = entry_of(receiver, document, _ORDER)
                views.append(view)
            case {"status": 404}:
                pass
            case _:
                raise ValueError("it is no client instance")

    members = use_answers(cluster, answers, read)
    if not views:
        missing = [f"{member['url']}: {member['problem']}" for member in members if not member["answered"]]
        raise unknown_client(
            client_instance_id, f"; not all receivers answered: {'; '.join(missing)}" * bool(missing)
        )
    return {**_combined(views), "members": members}


def require_client(dependencies: ApiDependencies, client_instance_id: str) -> ClientInstance:
    """Return the client instance with this id.

    Raises:
        ProblemError: 422 it is no id, 404 there is no such instance.
    """
    client = dependencies.find_client(_parse_id("client_instance_id", client_instance_id))
    if client is None:
        raise unknown_client(client_instance_id)
    return client


def unknown_client(client_instance_id: str, note: str = "") -> ProblemError:
    """Return the error 404 of a client instance."""
    return ProblemError(
        404,
        f"unknown client instance {client_instance_id}: it has sent no telemetry request yet, "
        f"or none for a long time{note}",
    )


def _parse_id(field: str, text: str) -> Uuid:
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise InvalidError(field_error((field,), text, str(error))) from None


def _document(client: ClientInstance, dependencies: ApiDependencies, now: float) -> dict[str, Any]:
    """Return what :class:`ClientView` describes."""
    identity, request, assignment = client.identity, client.request, client.assignment
    asked = {
        "subscription_id": request.subscription_id,
        "push_interval_ms": client.push_interval_ms,
        "requested_metrics": [prefix or ALL_METRICS for prefix in request.metrics],
        "temporality": Temporality.DELTA if request.delta else Temporality.CUMULATIVE,
        "subscriptions": assignment.matched,
        "interval_factor": client.interval_factor,
        "plugin_behind": dependencies.telemetry.backpressure.plugin if client.interval_factor > 1 else None,
        "reduced": reduced_document(client, dependencies, now),
        "last_error": error_name(client.last_error),
    }
    if identity.via is Via.BRIDGE:
        asked = {
            **dict.fromkeys(asked),
            "push_interval_ms": client.reported_interval_ms,
            "interval_factor": 1,
        }
    return {
        **connection_fields(identity, client_owner(client, dependencies.telemetry.owners)),
        "client_instance_id": client.text_id,
        "via": identity.via,
        "connection_id": identity.id,
        "security_protocol": identity.security_protocol,
        "client_rack": client.revealed.client_rack,
        "group_id": client.revealed.group_id,
        "group_member_id": client.revealed.group_member_id,
        "transactional_id": client.revealed.transactional_id,
        "application_id": client.revealed.application_id,
        "state": state_of(client, now),
        "quirks": client.treatment.reasons,
        "pushes": client.pushes_accepted,
        "pushed_minutes": _hexadecimal(client.pushed_minutes(now)),
        "last_request_age_s": round(now - client.last_request_at, 3),
        "last_push_age_s": None if client.last_push_at is None else round(now - client.last_push_at, 3),
        "terminating": client.terminating,
        **asked,
    }


def reduced_document(
    client: ClientInstance, dependencies: ApiDependencies, now: float
) -> dict[str, Any] | None:
    """Return what :class:`ReducedView` describes; None if the client is not reduced."""
    reduced = dependencies.telemetry.offenders.explain(client.id, now)
    if reduced is None:
        return None
    return {
        "to": "nothing" if reduced.demand is Demand.NOTHING else "standard_metrics",
        "offence": reduced.offence.value,
        "relaxes_in_s": round(reduced.relaxes_in_s, 3),
    }
