"""``/v1/subscriptions``: which metrics which clients push, and how often.

KIP-714, "Client metrics configuration". The telemetry core decides what a valid subscription is.
The store makes it durable.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Final, TypeAlias

import structlog
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field

from receiver.api.authorization import AuditedChange, Change
from receiver.api.bodies import JSON_TYPES, MERGE_PATCH_TYPES, body_of, read_json
from receiver.api.conditions import Check, IfMatch, IfNoneMatch, conditions, entity_tag
from receiver.api.dependencies import ApiDependencies, Dependencies
from receiver.api.documents import NAME_SCHEMA, PatchBody, SubscriptionBody
from receiver.api.pages import Page, PageQuery, first_page
from receiver.api.problems import (
    ProblemError,
    problem_answers,
    subscription_errors,
)
from receiver.api.queries import NO_QUERY
from receiver.telemetry.client_state import SPREAD
from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.prefixes import unmatched
from receiver.telemetry.subscription import State, Subscription
from receiver.telemetry.subscription_document import FIELDS, patched, read_document, to_document

router = APIRouter(prefix="/v1/subscriptions", tags=["subscriptions"], responses=problem_answers(422))

_Name = Annotated[str, Path(description="The subscription's name.", json_schema_extra=NAME_SCHEMA)]
_KIND: Final = "subscription"

#: A response header: the milliseconds within which every connected client is asked.
ASKED_WITHIN: Final = "kafka-telemetry-asked-within-ms"

#: Makes the new subscription of the existing one, with warnings.
_Make: TypeAlias = Callable[[Subscription | None], tuple[Subscription, list[str]]]

_log = structlog.get_logger("receiver.api")


class SubscriptionView(BaseModel):
    """A subscription in a response."""

    name: str
    metrics: list[str]
    interval_ms: int
    match: dict[str, str]
    enabled: bool
    expires_at: str | None = Field(description="When it ends by itself (RFC 3339, UTC); null: never.")
    temporality: str | None = Field(description="`delta`, `cumulative`, or null for the receiver's default.")
    labels: dict[str, str]
    description: str
    changed_by: str | None = Field(description="Who changed it last; null: unknown.")
    changed_at: str | None = Field(description="When it was changed last (RFC 3339, UTC); null: unknown.")
    state: State = Field(description="Whether it applies now.")


class ChangedSubscriptionView(SubscriptionView):
    """A subscription that was created or changed."""

    warnings: list[str] | None = Field(
        default=None, description="What is probably wrong with it; omitted: nothing."
    )


@router.get("", summary="List the subscriptions by name")
async def list_subscriptions(
    dependencies: Dependencies, query: Annotated[PageQuery, Query()]
) -> Page[SubscriptionView]:
    """List the subscriptions by name."""
    all_of_them = dependencies.subscriptions.in_force.subscriptions
    found = (candidate for candidate in all_of_them if query.after is None or candidate.name > query.after)
    items, following = first_page(found, query.limit, attrgetter("name"), attrgetter("name"))
    return Page(items=[_view(subscription, dependencies) for subscription in items], next=following)


@router.get(
    "/{name:path}", summary="Show a subscription", dependencies=[NO_QUERY], responses=problem_answers(404)
)
async def show_subscription(dependencies: Dependencies, response: Response, name: _Name) -> SubscriptionView:
    """Show a subscription. The response's ETag can be sent as If-Match."""
    subscription = dependencies.subscriptions.in_force.get(name)
    if subscription is None:
        raise _not_found(name)
    response.headers["etag"] = _entity_tag(subscription)
    return _view(subscription, dependencies)


@router.put(
    "/{name:path}",
    summary="Create or replace a subscription",
    dependencies=[NO_QUERY],
    response_model_exclude_unset=True,
    responses={
        201: {"model": ChangedSubscriptionView, "description": "The subscription is new."},
        **problem_answers(400, 408, 409, 412, 413, 415, 503),
    },
    openapi_extra=body_of(SubscriptionBody, JSON_TYPES),
)
async def put_subscription(
    dependencies: Dependencies,
    change: AuditedChange,
    request: Request,
    response: Response,
    name: _Name,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> ChangedSubscriptionView:
    """Create or replace a subscription, durably and for all following requests.

    Without `interval_ms`, an existing subscription keeps its interval. Everything else that is left
    out gets its default. A connected client is asked with its next request. The header
    `kafka-telemetry-asked-within-ms` has the longest time until then.
    """
    document = await read_json(request, JSON_TYPES)
    now = dependencies.now()
    check = conditions(_KIND, name, if_match, if_none_match)

    def make(existing: Subscription | None) -> tuple[Subscription, list[str]]:
        return read_document(
            document, name=name, existing=existing, changed_by=change.who, changed_at=now
        ), []

    try:
        return await _change(dependencies, change, response, name, make, check)
    except SubscriptionError as error:
        raise subscription_errors(error, _with_name(document, name)) from None


@router.patch(
    "/{name:path}",
    summary="Change parts of a subscription",
    dependencies=[NO_QUERY],
    response_model_exclude_unset=True,
    responses=problem_answers(400, 404, 408, 409, 412, 413, 415, 503),
    openapi_extra=body_of(PatchBody, MERGE_PATCH_TYPES),
)
async def patch_subscription(
    dependencies: Dependencies,
    change: AuditedChange,
    request: Request,
    response: Response,
    name: _Name,
    if_match: IfMatch = None,
) -> ChangedSubscriptionView:
    """Change parts of a subscription, durably and for all following requests.

    A field that is left out stays; null resets it. `match` and `labels` are merged by key, and null
    removes a key (RFC 7396). `add_metrics` and `remove_metrics` add and remove single prefixes.
    """
    document = await read_json(request, MERGE_PATCH_TYPES)
    now = dependencies.now()
    check = conditions(_KIND, name, if_match, None)

    def make(existing: Subscription | None) -> tuple[Subscription, list[str]]:
        if existing is None:
            raise _not_found(name)
        return patched(existing, document, changed_by=change.who, changed_at=now)

    try:
        return await _change(dependencies, change, response, name, make, check)
    except SubscriptionError as error:
        raise subscription_errors(error, document) from None


@router.delete(
    "/{name:path}",
    summary="Delete a subscription",
    dependencies=[NO_QUERY],
    status_code=204,
    responses=problem_answers(404, 409, 412, 503),
)
async def delete_subscription(
    dependencies: Dependencies, change: AuditedChange, name: _Name, if_match: IfMatch = None
) -> None:
    """Delete a subscription. It stops to apply with the next request of every client."""
    check = conditions(_KIND, name, if_match, None)

    def remove(existing: Subscription | None) -> None:
        if existing is None:
            raise _not_found(name)
        check(_entity_tag(existing))
        change.before = to_document(existing)

    await dependencies.subscriptions.edit(name, remove)


async def _change(
    dependencies: ApiDependencies,
    change: Change,
    response: Response,
    name: str,
    make: _Make,
    check: Check,
) -> ChangedSubscriptionView:
    """Make the new subscription of the existing one, store it, and answer with it.

    A change that changes nothing is not stored, so that `changed_at` tells the last real change.
    """
    made: list[tuple[Subscription, list[str]]] = []

    def edit(existing: Subscription | None) -> Subscription:
        subscription, warnings = make(existing)
        # Conditions count only for a request that is right (RFC 9110, section 13.2.1).
        check(None if existing is None else _entity_tag(existing))
        change.before = None if existing is None else to_document(existing)
        if existing is None:
            response.status_code = 201
        made.append((existing if subscription == existing else subscription, warnings))
        return subscription

    await dependencies.subscriptions.edit(name, edit)
    ((subscription, warnings),) = made
    return _changed(dependencies, change, response, subscription, warnings)


def _changed(
    dependencies: ApiDependencies,
    change: Change,
    response: Response,
    subscription: Subscription,
    warnings: list[str],
) -> ChangedSubscriptionView:
    telemetry = dependencies.telemetry
    response.headers["etag"] = _entity_tag(subscription)
    longest_ms = max((instance.push_interval_ms for instance in telemetry.instances), default=0)
    response.headers[ASKED_WITHIN] = str(int(longest_ms * SPREAD))
    change.after = to_document(subscription)
    nothing_known = unmatched(subscription.metrics, telemetry.profiles)
    for warning in nothing_known:
        _log.warning("subscription may match nothing", subscription=subscription.name, problem=warning)
    warnings = [*warnings, *nothing_known]
    if subscription.state(dependencies.now()) is State.EXPIRED:
        warnings.append("expires_at is over, so it applies to no client")
    view = ChangedSubscriptionView(**_view(subscription, dependencies).model_dump())
    if warnings:
        view.warnings = warnings
    return view


def _view(subscription: Subscription, dependencies: ApiDependencies) -> SubscriptionView:
    return SubscriptionView(**to_document(subscription), state=subscription.state(dependencies.now()))


def _not_found(name: str) -> ProblemError:
    return ProblemError(404, f"there is no subscription named {name!r}")


def _entity_tag(subscription: Subscription) -> str:
    document = to_document(subscription)
    return entity_tag([document[field] for field in FIELDS])


def _with_name(document: object, name: str) -> object:
    """Return the document with the name, so that an error can show it."""
    return {"name": name, **document} if isinstance(document, dict) else document
