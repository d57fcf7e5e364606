"""Problem documents (RFC 9457): the one form of every error that the REST API answers.

Owns their shape, and the turning of exceptions into them. An unexpected error is logged by the server and
told to the caller without a detail.
"""

from __future__ import annotations

import http
import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from receiver.settings.errors import key_text
from receiver.store.store import StoreError
from receiver.store.subscriptions import ChangedMeanwhileError
from receiver.telemetry.subscription import SubscriptionError

__all__ = [
    "PROBLEM_CONTENT_TYPE",
    "FieldError",
    "Problem",
    "ProblemError",
    "field_error",
    "problem_response",
    "register",
]

PROBLEM_CONTENT_TYPE = "application/problem+json"

_MAX_SHOWN = 200
_MAX_ERRORS = 20


class FieldError(BaseModel):
    """What is wrong with one field of a request."""

    field: str = Field(description="Path of the field, for example `match.client_id` or `metrics[0]`.")
    value: Any = Field(default=None, description="The value that was sent, shortened where it is long.")
    detail: str = Field(description="What is wrong and what was expected.")


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    type: str = Field(default="about:blank", description="Always about:blank: the status tells the kind.")
    title: str = Field(description="The status in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What is wrong with this request, and what helps.")
    errors: list[FieldError] = Field(default=[], description="The fields that are wrong.")


class ProblemError(Exception):
    """The request is answered with a problem document.

    Args:
        status: The HTTP status.
        detail: What is wrong with this request, and what helps.
        errors: The fields that are wrong.
        headers: Further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = list(errors)
        self.headers = dict(headers or {})


def field_error(loc: Sequence[str | int], value: Any, detail: str) -> FieldError:
    """Describe a wrong field.

    Args:
        loc: Keys and indexes that lead to it.
        value: What was sent; shortened where it is long.
        detail: What is wrong and what was expected.
    """
    return FieldError(field=key_text(tuple(loc)), value=_shown(value), detail=detail)


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
    """A problem document as an answer; at most so many wrong fields are listed."""
    problem = Problem(
        title=http.HTTPStatus(status).phrase, status=status, detail=detail, errors=list(errors[:_MAX_ERRORS])
    )
    content = problem.model_dump(exclude={"errors"} if not problem.errors else set())
    return JSONResponse(content, status, dict(headers or {}), PROBLEM_CONTENT_TYPE)


def register(app: FastAPI) -> None:
    """Have every error of ``app`` answered with a problem document."""
    app.add_exception_handler(ProblemError, _on_problem)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_parameters)
    app.add_exception_handler(SubscriptionError, _on_subscription)
    app.add_exception_handler(StoreError, _on_store)
    app.add_exception_handler(ChangedMeanwhileError, _on_changed)
    app.add_exception_handler(Exception, _on_unexpected)


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)  # noqa: S101 -- what the handler is registered for
    return problem_response(error.status, error.detail, error.errors, error.headers)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    details = {
        404: f"there is nothing at {request.url.path}",
        405: f"{request.method} is not offered here",
    }
    detail = details.get(error.status_code, error.detail)
    return problem_response(error.status_code, detail, headers=error.headers)


async def _on_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    # The first part of a location is where the parameter was: query, path or header.
    errors = [field_error(one["loc"][1:], one.get("input"), one["msg"]) for one in error.errors()]
    return problem_response(422, _summary(errors), errors)


async def _on_subscription(request: Request, error: Exception) -> Response:
    assert isinstance(error, SubscriptionError)  # noqa: S101
    errors = [FieldError(field=error.field, detail=f"{error.problem}; {error.fix}")]
    return problem_response(422, _summary(errors), errors)


async def _on_store(request: Request, error: Exception) -> Response:
    return problem_response(503, f"the subscriptions could not be written, and nothing has changed: {error}")


async def _on_changed(request: Request, error: Exception) -> Response:
    return problem_response(412, str(error))


async def _on_unexpected(request: Request, error: Exception) -> Response:
    return problem_response(500, "the receiver failed to answer; its log tells why")


def _summary(errors: Sequence[FieldError]) -> str:
    first = f"{errors[0].field}: {errors[0].detail}"
    return first if len(errors) == 1 else f"{first} (and {len(errors) - 1} more)"
