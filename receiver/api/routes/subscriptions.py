"""``/v1/subscriptions``: which metrics which clients push, and how often.

KIP-714, "Client metrics configuration". The telemetry core decides what a valid subscription is.
The store makes it durable.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from operator import attrgetter
from typing import Annotated, Any, Final

import structlog
from fastapi import APIRouter, Header, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from receiver.api.authorization import AuditedChange, Change
from receiver.api.dependencies import Dependencies
from receiver.api.limits import read_body
from receiver.api.pages import After, Limit, Page, first_page
from receiver.api.problems import FieldError, InvalidError, Problem, ProblemError, field_error
from receiver.store.subscriptions import ChangedMeanwhileError, Condition
from receiver.telemetry.prefixes import unmatched
from receiver.telemetry.subscription import (
    DEFAULT_INTERVAL_MS,
    MAX_INTERVAL_MS,
    MIN_INTERVAL_MS,
    SELECTORS,
    Subscription,
    SubscriptionError,
)

__all__ = ["SubscriptionBody", "SubscriptionView", "router"]

router = APIRouter(prefix="/v1/subscriptions", tags=["subscriptions"])

_Name = Annotated[str, Path(description="The subscription's name.")]
_IfMatch = Annotated[
    str | None, Header(description="Change only a subscription that has one of these entity tags; `*`: any.")
]
_IfNoneMatch = Annotated[str | None, Header(description="`*`: only create, never replace.")]


class SubscriptionBody(BaseModel):
    """A subscription in a request."""

    model_config = ConfigDict(extra="forbid")

    metrics: list[str] = Field(
        description="Prefixes of metric names; `*` alone: every metric; an empty list: none.",
        examples=[["org.apache.kafka.producer."]],
    )
    interval_ms: int = Field(
        default=DEFAULT_INTERVAL_MS,
        description=f"How often matching clients push, {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS} milliseconds.",
        examples=[60_000],
    )
    match: dict[str, str] = Field(
        default={},
        description="Regular expressions (RE2) by selector, each for the whole value; all must match; "
        f"empty: every client. Selectors: {', '.join(SELECTORS)}.",
        examples=[{"client_software_name": "apache-kafka-java"}],
    )
    name: str | None = Field(default=None, description="If given, it must be the name in the path.")


#: A response header: the milliseconds within which every connected client is asked.
ASKED_WITHIN: Final = "kafka-telemetry-asked-within-ms"

#: Clients spread their first push over half an interval to one and a half (KIP-714, "Client
#: behavior").
_SPREAD: Final = 1.5

_log = structlog.get_logger("receiver.api")


class SubscriptionView(BaseModel):
    """A subscription in a response."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    metrics: list[str]
    interval_ms: int
    match: dict[str, str]


class ChangedSubscriptionView(SubscriptionView):
    """A subscription that was created or replaced."""

    warnings: list[str] | None = Field(
        default=None, description="What is probably wrong with it; omitted: nothing."
    )


@router.get("", summary="List the subscriptions by name", responses={422: {"model": Problem}})
async def list_subscriptions(
    dependencies: Dependencies, limit: Limit = 100, after: After = None
) -> Page[SubscriptionView]:
    """List the subscriptions by name."""
    found = (s for s in dependencies.subscriptions.in_force.subscriptions if after is None or s.name > after)
    items, following = first_page(found, limit, attrgetter("name"), attrgetter("name"))
    return Page(
        items=[SubscriptionView.model_validate(subscription) for subscription in items], next=following
    )


@router.get("/{name:path}", summary="Show a subscription", responses={404: {"model": Problem}})
async def show_subscription(dependencies: Dependencies, response: Response, name: _Name) -> SubscriptionView:
    """Show a subscription. The response's ETag can be sent as If-Match."""
    subscription = dependencies.subscriptions.in_force.get(name)
    if subscription is None:
        raise _not_found(name)
    response.headers["etag"] = _entity_tag(subscription)
    return SubscriptionView.model_validate(subscription)


@router.put(
    "/{name:path}",
    summary="Create or replace a subscription",
    response_model_exclude_none=True,
    responses={
        201: {"model": ChangedSubscriptionView, "description": "The subscription is new."},
        **{status: {"model": Problem} for status in (400, 408, 409, 412, 413, 415, 422, 503)},
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/SubscriptionBody"}}},
        }
    },
)
async def put_subscription(
    dependencies: Dependencies,
    change: AuditedChange,
    request: Request,
    response: Response,
    name: _Name,
    if_match: _IfMatch = None,
    if_none_match: _IfNoneMatch = None,
) -> ChangedSubscriptionView:
    """Create or replace a subscription, durably and for all following requests.

    A connected client is asked with its next request. The header `kafka-telemetry-asked-within-ms`
    has the longest time until then.
    """
    body = await read_body(request, SubscriptionBody)
    if body.name is not None and body.name != name:
        detail = f"must be omitted, or be {name!r} as in the path"
        raise InvalidError(field_error(("name",), body.name, detail))
    try:
        subscription = Subscription(
            name=name, metrics=tuple(body.metrics), interval_ms=body.interval_ms, match=body.match
        )
        created = await dependencies.subscriptions.put(
            subscription, only_if=_audited(change, _condition(if_match, if_none_match))
        )
    except SubscriptionError as error:
        value = _value_at(error.field, {**body.model_dump(), "name": name})
        detail = f"{error.problem}; {error.fix}"
        raise InvalidError(FieldError(field=error.field, value=value, detail=detail)) from None
    except ChangedMeanwhileError as error:
        if if_none_match is None or not error.exists:
            raise
        raise ProblemError(
            412,
            f"the subscription {name!r} exists: choose another name, or omit If-None-Match to replace it",
        ) from None
    response.status_code = 201 if created else 200
    response.headers["etag"] = _entity_tag(subscription)
    telemetry = dependencies.telemetry
    longest_ms = max((instance.push_interval_ms for instance in telemetry.instances), default=0)
    response.headers[ASKED_WITHIN] = str(int(longest_ms * _SPREAD))
    change.after = SubscriptionView.model_validate(subscription).model_dump()
    warnings = unmatched(subscription.metrics, telemetry.seen_metrics)
    for warning in warnings:
        _log.warning("subscription may match nothing", subscription=name, problem=warning)
    return ChangedSubscriptionView(**change.after, warnings=warnings or None)


@router.delete(
    "/{name:path}",
    summary="Delete a subscription",
    status_code=204,
    responses={status: {"model": Problem} for status in (404, 409, 412, 503)},
)
async def delete_subscription(
    dependencies: Dependencies, change: AuditedChange, name: _Name, if_match: _IfMatch = None
) -> None:
    """Delete a subscription. It stops to apply with the next request of every client."""
    condition = _audited(change, _condition(if_match, None))
    if not await dependencies.subscriptions.delete(name, only_if=condition):
        raise _not_found(name)


def _not_found(name: str) -> ProblemError:
    return ProblemError(404, f"there is no subscription named {name!r}")


def _entity_tag(subscription: Subscription) -> str:
    content = [subscription.metrics, subscription.interval_ms, sorted(subscription.match.items())]
    return f'"{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]}"'


def _condition(if_match: str | None, if_none_match: str | None) -> Condition | None:
    # RFC 9110, section 13.1. If-Match compares strongly. If-None-Match supports `*` only.
    if if_match is None and if_none_match is None:
        return None
    if if_none_match is not None and if_none_match.strip() != "*":
        raise InvalidError(field_error(("if-none-match",), if_none_match, "only * is supported"))

    def may_change(existing: Subscription | None) -> bool:
        if existing is None:
            return if_match is None
        if if_none_match is not None:
            return False
        tags = [tag.strip() for tag in ("*" if if_match is None else if_match).split(",")]
        return "*" in tags or _entity_tag(existing) in tags

    return may_change


def _audited(change: Change, condition: Condition | None) -> Condition:
    """Note the existing subscription for the audit log under the lock of changes."""

    def may_change(existing: Subscription | None) -> bool:
        change.before = None if existing is None else SubscriptionView.model_validate(existing).model_dump()
        return condition is None or condition(existing)

    return may_change


def _value_at(field: str, body: Mapping[str, Any]) -> Any:
    # The field is a path such as `metrics[3]`, `match.client_id` or `name`.
    key, _, rest = field.replace("[", ".").replace("]", "").partition(".")
    value = body.get(key)
    if isinstance(value, list) and rest.isdigit() and int(rest) < len(value):
        return value[int(rest)]
    if isinstance(value, dict):
        return value.get(rest)
    return None if isinstance(value, list) else value
