"""Problem documents (RFC 9457), the format of every error of the REST API."""

from __future__ import annotations

import http
import json
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Match

from receiver.numbers import whole_number
from receiver.settings.errors import wording
from receiver.store.owner_file import OwnerStoreError
from receiver.store.store import ReadOnlyError, StoreError
from receiver.telemetry.errors import SubscriptionError
from receiver.traffic.usage_store import UsageUnavailableError
from spark_streaming.plain_yaml import key_text

PROBLEM_CONTENT_TYPE = "application/problem+json"

_MAX_SHOWN = 200
_MAX_ERRORS = 20

_log = structlog.get_logger("receiver.api")


class FieldError(BaseModel):
    """A wrong field of a request."""

    field: str = Field(description="Path of the field, for example `match.client_id` or `metrics[0]`.")
    value: Any = Field(default=None, description="The value that was sent, shortened if it is long.")
    detail: str = Field(description="What is wrong and what was expected.")


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    type: str = Field(default="about:blank", description="Always about:blank: the status is the type.")
    title: str = Field(description="The status in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What is wrong with this request and how to correct it.")
    errors: list[FieldError] = Field(default=[], description="The wrong fields.")


def problem_answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe errors of a route, or of all routes of a router."""
    return {status: {"model": Problem} for status in statuses}


class ProblemError(Exception):
    """Makes the API answer with a problem document."""

    def __init__(
        self,
        status: int,
        detail: str,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.response = problem_response(status, detail, errors, headers)


class InvalidError(ProblemError):
    """Makes the API answer 422 with the wrong fields."""

    def __init__(self, *errors: FieldError) -> None:
        first = ": ".join(part for part in (errors[0].field, errors[0].detail) if part)
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(422, first + more, errors)


def field_error(loc: Sequence[str | int], value: Any, detail: str) -> FieldError:
    """Describe a wrong field. A long value is shortened."""
    return FieldError(field=key_text(tuple(loc)), value=_shown(value), detail=detail)


def subscription_errors(error: SubscriptionError, document: object) -> InvalidError:
    """Describe every mistake of a subscription, with the values in the document."""
    return InvalidError(
        *(
            FieldError(
                field=mistake.field,
                value=_shown(_value_at(mistake.field, document)),
                detail=f"{mistake.problem}; {mistake.fix}",
            )
            for mistake in error.all
        )
    )


def _value_at(field: str, document: object) -> Any:
    # The field is a path such as `metrics[3]`, `match.client_id` or `name`.
    if not isinstance(document, dict):
        return document
    if field in document:
        return document[field]
    key, _, rest = field.replace("[", ".", 1).partition(".")
    value, index = document.get(key), rest.removesuffix("]")
    if isinstance(value, list):
        at = whole_number(index, len(value) - 1) if value else None
        return None if at is None else value[at]
    return value.get(rest) if isinstance(value, dict) else value


def _shown(value: Any) -> Any:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    if len(text) <= _MAX_SHOWN:
        return value
    return f"{value[:_MAX_SHOWN]}..." if isinstance(value, str) else None


def problem_response(
    status: int,
    detail: str,
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Build the response of a problem document with at most 20 wrong fields."""
    problem = Problem(
        title=http.HTTPStatus(status).phrase, status=status, detail=detail, errors=list(errors[:_MAX_ERRORS])
    )
    content = problem.model_dump(exclude={"errors"} if not problem.errors else set())
    return JSONResponse(content, status, dict(headers or {}), PROBLEM_CONTENT_TYPE)


def register(app: FastAPI) -> None:
    """Make ``app`` answer every exception with a problem document."""
    app.add_exception_handler(ProblemError, _on_problem)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_parameters)
    app.add_exception_handler(StoreError, _on_store)
    app.add_exception_handler(OwnerStoreError, _on_owner_store)
    app.add_exception_handler(ReadOnlyError, _on_read_only)
    app.add_exception_handler(UsageUnavailableError, _on_usage)
    app.add_exception_handler(Exception, _on_unexpected)


# Starlette's type of a handler takes any exception; each handler is registered for the one in its
# name.
async def _on_problem(request: Request, error: Any) -> Response:
    response: Response = error.response
    return response


async def _on_http(request: Request, error: Any) -> Response:
    headers = dict(error.headers or {})
    detail = error.detail
    if error.status_code == 404:
        detail = f"not found: {request.url.path}"
    elif error.status_code == 405:
        # The router names only the methods of one of the path's endpoints.
        allowed = ", ".join(_allowed(request))
        headers = {"allow": allowed}
        detail = f"the method {request.method} is not allowed here; allowed are {allowed}"
    return problem_response(error.status_code, detail, headers=headers)


def _allowed(request: Request) -> list[str]:
    """Return the methods of all endpoints with the request's path."""
    methods: set[str] = set()
    for route in request.app.state.endpoints:
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            methods |= route.methods
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


async def _on_parameters(request: Request, error: Any) -> Response:
    # The first part of a location is the kind of parameter: query, path or header.
    return InvalidError(
        *(
            # An unknown parameter may be a misplaced secret.
            field_error(
                single["loc"][1:],
                None if single["type"] == "extra_forbidden" else single.get("input"),
                _parameter_detail(request, single),
            )
            for single in error.errors()
        )
    ).response


def _parameter_detail(request: Request, error: ErrorDetails) -> str:
    models = [
        parameter.field_info.annotation
        for dependant in (request.scope["route"].dependant, *request.scope["route"].dependant.dependencies)
        for parameter in dependant.query_params
        if isinstance(parameter.field_info.annotation, type)
        and issubclass(parameter.field_info.annotation, BaseModel)
    ]
    if error["loc"][0] != "query" or len(models) != 1:
        return str(error["msg"])
    within = error.copy()
    within["loc"] = error["loc"][1:]
    detail = wording(within, models[0])
    # A parameter is omitted, and never null.
    return detail.replace("unknown key", "unknown parameter", 1).replace(" or null", "", 1)


async def _on_store(request: Request, error: Exception) -> Response:
    return problem_response(503, f"cannot write the subscriptions, nothing has changed: {error}")


async def _on_owner_store(request: Request, error: Exception) -> Response:
    return problem_response(503, f"cannot write the owners, nothing has changed: {error}")


async def _on_usage(request: Request, error: Exception) -> Response:
    return problem_response(503, f"cannot read the usage: {error}")


async def _on_read_only(request: Request, error: Exception) -> Response:
    return problem_response(409, str(error))


async def _on_unexpected(request: Request, error: Exception) -> Response:
    _log.error("REST request failed", exc_info=error)
    return problem_response(500, "the receiver failed; see its log for the reason")
