"""The explain pages: what a subscription does, and why.

They are ``/v1/explain`` and ``/v1/clients/{id}/explain``.

Both only read, and run in the thread for long reads.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from receiver.api.background import in_background, json_response
from receiver.api.bodies import JSON_TYPES, body_of, read_json
from receiver.api.bridged import broker_differences
from receiver.api.cluster import ScopeQuery
from receiver.api.dependencies import ApiDependencies, Dependencies
from receiver.api.documents import ExplainBody
from receiver.api.problems import problem_answers, subscription_errors
from receiver.api.queries import NO_QUERY
from receiver.api.routes.clients import (
    ClientInstanceId,
    ReducedView,
    client_in_cluster,
    reduced_document,
    require_client,
    unknown_client,
)
from receiver.settings.cluster import AnswerScope
from receiver.telemetry.client_state import ClientState, state_of
from receiver.telemetry.control.offenders import Demand
from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.explain import Origin, dry_run, explain_client
from receiver.telemetry.identity import Via
from receiver.telemetry.instance import ClientInstance
from receiver.telemetry.subscription import State, Subscription, SubscriptionSet
from receiver.telemetry.subscription_checks import ALL_METRICS, Temporality
from receiver.telemetry.subscription_document import read_document

router = APIRouter(tags=["explain"], responses=problem_answers(422))

#: The name of a subscription in a dry run that gives none.
_NO_NAME: Final = "(dry run)"


class MatchedView(BaseModel):
    """A client instance that a subscription matches."""

    client_instance_id: str
    client_id: str


class DryRunView(BaseModel):
    """What a subscription would do alone, if it were stored."""

    matched: int = Field(description="Known client instances that it matches.")
    examples: list[MatchedView] = Field(description="Some of them, at most 10.")
    clients: int = Field(description="All known client instances.")
    series: int | None = Field(
        description="Data points in a push of each matched client, added up; estimated from what clients of "
        "their software have pushed. null: none of them has."
    )
    bytes_per_second: float | None = Field(
        description="Bytes of OTLP, not compressed, that these clients would push; null: unknown."
    )
    asked_within_ms: int = Field(description="The time within which each matched client asks.")
    warnings: list[str] = Field(description="What is probably wrong with it.")


class PrefixView(BaseModel):
    """A requested prefix and the subscriptions that it comes from."""

    prefix: str
    subscriptions: list[str]


class IntervalOriginView(BaseModel):
    """Where the push interval comes from."""

    origin: Origin
    subscriptions: list[str] = Field(description="The matching subscriptions with the shortest interval.")
    wanted_ms: int = Field(description="The interval without quirks and back-pressure.")
    factor: int = Field(description="The factor of back-pressure; 1: none.")


class TemporalityOriginView(BaseModel):
    """Where the temporality comes from."""

    origin: Origin
    subscriptions: list[str]


class VerdictView(BaseModel):
    """Whether a subscription applies to the client."""

    name: str
    state: State
    matches: bool
    reasons: list[str] = Field(description="Why it does not apply; empty if it does.")


class RevealedView(BaseModel):
    """What the client's pushes have revealed; null: unknown."""

    client_rack: str | None
    group_id: str | None
    group_member_id: str | None
    transactional_id: str | None
    application_id: str | None


class ClientExplanationView(BaseModel):
    """What a client instance is asked for with its next request, and why.

    Of a client that comes by a bridge, the broker decides this: what is shown is what this receiver
    would ask for by its own subscriptions, and `differs` says what the broker does otherwise.
    """

    client_instance_id: str
    client_id: str
    via: Via
    state: ClientState
    subscription_id: int
    requested_metrics: list[str]
    push_interval_ms: int
    temporality: Temporality
    in_effect: bool = Field(description="Whether its latest request was answered the same.")
    differs: list[str] = Field(description="What the broker of a bridge does otherwise; by gateway: empty.")
    asked_within_ms: int = Field(description="The longest time until its next request.")
    metrics_from: list[PrefixView]
    interval_from: IntervalOriginView
    temporality_from: TemporalityOriginView
    reduced: ReducedView | None
    quirks: list[str]
    revealed: RevealedView
    subscriptions: list[VerdictView] = Field(description="Every subscription, by name.")


@router.post(
    "/v1/explain",
    summary="Dry run of a subscription",
    dependencies=[NO_QUERY],
    responses={
        200: {"model": DryRunView, "description": "What it would do."},
        **problem_answers(400, 408, 413, 415),
    },
    openapi_extra=body_of(ExplainBody, JSON_TYPES),
)
async def explain_subscription(dependencies: Dependencies, request: Request) -> Response:
    """Tell what a subscription would do, without storing it.

    With the `name` of an existing subscription, it is taken for its replacement.
    """
    document = await read_json(request, JSON_TYPES)
    every = dependencies.subscriptions.in_force
    name = document.get("name") if isinstance(document, dict) else None
    existing = every.get(name) if isinstance(name, str) else None
    try:
        subscription = read_document(document, name=_NO_NAME if name is None else name, existing=existing)
        others = SubscriptionSet(
            candidate for candidate in every.subscriptions if candidate.name != subscription.name
        )
        instances = list(dependencies.telemetry.instances)
        return json_response(await in_background(_dry_run, subscription, others, instances, dependencies))
    except SubscriptionError as error:
        raise subscription_errors(error, document) from None


def _dry_run(
    subscription: Subscription,
    others: SubscriptionSet,
    instances: list[ClientInstance],
    dependencies: ApiDependencies,
) -> dict[str, Any]:
    result = dry_run(
        subscription,
        others,
        instances,
        dependencies.telemetry.profiles,
        now=dependencies.monotonic(),
        wall=dependencies.now(),
    )
    return {
        "matched": result.matched,
        "examples": [
            {"client_instance_id": client.text_id, "client_id": client.identity.client_id}
            for client in result.examples
        ],
        "clients": result.clients,
        "series": result.series,
        "bytes_per_second": result.bytes_per_second,
        "asked_within_ms": result.asked_within_ms,
        "warnings": result.warnings,
    }


@router.get(
    "/v1/clients/{client_instance_id}/explain",
    summary="Explain what a client instance is asked for",
    responses={
        200: {"model": ClientExplanationView, "description": "What it is asked for, and why."},
        **problem_answers(404),
    },
)
async def explain_one_client(
    dependencies: Dependencies, client_instance_id: ClientInstanceId, query: Annotated[ScopeQuery, Query()]
) -> Response:
    """Explain what a client instance is asked for with its next request, and why.

    With `scope=cluster`, the receiver of its latest telemetry request explains.
    """
    if query.scope is AnswerScope.CLUSTER:
        receiver = (await client_in_cluster(dependencies, client_instance_id))["receiver"]
        if receiver != dependencies.cluster.receiver_id:
            return json_response(await _explanation_of(receiver, client_instance_id, dependencies))
    client = require_client(dependencies, client_instance_id)
    now = dependencies.monotonic()
    # Read here, because it takes back what is due.
    demand = dependencies.telemetry.offenders.demand(client.id, now)
    factor = dependencies.telemetry.backpressure.factor
    return json_response(await in_background(_explanation, client, demand, factor, dependencies, now))


async def _explanation_of(receiver: str, client_instance_id: str, dependencies: ApiDependencies) -> Any:
    for answer in await dependencies.cluster.ask(f"/v1/clients/{client_instance_id}/explain", {}):
        if answer.receiver == receiver and answer.status == 200:
            return answer.document
    raise unknown_client(client_instance_id, f"; the receiver {receiver} did not explain it")


def _explanation(
    client: ClientInstance, demand: Demand, factor: int, dependencies: ApiDependencies, now: float
) -> dict[str, Any]:
    telemetry, identity = dependencies.telemetry, client.identity
    treatment, every = telemetry.treatment(identity), dependencies.subscriptions.in_force
    found = explain_client(
        client,
        every,
        telemetry.subscriptions.asked,
        has_plugins=telemetry.subscriptions.has_plugins,
        treatment=treatment,
        defaults=telemetry.defaults,
        demand=demand,
        interval_factor=factor,
        now=now,
        wall=dependencies.now(),
    )
    differs = broker_differences(
        client,
        found,
        every,
        store=dependencies.store(),
        has_plugins=telemetry.subscriptions.has_plugins,
        treatment=treatment,
        demand=demand,
        interval_factor=factor,
    )
    return {
        "client_instance_id": client.text_id,
        "client_id": identity.client_id,
        "via": identity.via,
        "state": state_of(client, now),
        "subscription_id": found.request.subscription_id,
        "requested_metrics": [prefix or ALL_METRICS for prefix in found.request.metrics],
        "push_interval_ms": found.request.interval_ms,
        "temporality": Temporality.DELTA if found.request.delta else Temporality.CUMULATIVE,
        "in_effect": found.in_effect and identity.via is Via.GATEWAY,
        "differs": differs,
        "asked_within_ms": found.asked_within_ms,
        "metrics_from": [
            {"prefix": prefix or ALL_METRICS, "subscriptions": names} for prefix, names in found.prefixes
        ],
        "interval_from": {
            "origin": found.interval_origin,
            "subscriptions": found.interval_subscriptions,
            "wanted_ms": found.wanted_interval_ms,
            "factor": factor,
        },
        "temporality_from": {
            "origin": found.temporality_origin,
            "subscriptions": found.temporality_subscriptions,
        },
        "reduced": reduced_document(client, dependencies, now),
        "quirks": treatment.reasons,
        "revealed": client.revealed,
        "subscriptions": found.verdicts,
    }
