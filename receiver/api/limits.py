"""Limits on a request: host, size of the headers, size and duration of the body."""

from __future__ import annotations

import asyncio
import json
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from receiver.api.problems import ProblemError, field_error, problem_response
from receiver.settings.errors import wording

__all__ = [
    "HEADERS_TOO_LONG",
    "MAX_BODY_BYTES",
    "MAX_HEADER_BYTES",
    "HeaderCheck",
    "LoopbackHostCheck",
    "read_body",
]

#: A subscription is a few hundred bytes. The largest useful one, with a long list of prefixes, fits
#: too.
MAX_BODY_BYTES = 65_536

#: The request line and the headers together.
MAX_HEADER_BYTES = 16_384

HEADERS_TOO_LONG = f"the request line and the headers may have at most {MAX_HEADER_BYTES} bytes together"

_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})

_BODY_TIMEOUT_S = 10.0

_Body = TypeVar("_Body", bound=BaseModel)


class LoopbackHostCheck:
    """Refuses requests whose Host header does not name this machine (421).

    A web page could otherwise use the API by DNS rebinding. Starlette's TrustedHostMiddleware
    answers in plain text and with another status.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 421."""
        host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
        name, _, port = host.rpartition(":")
        if not port.isdigit():
            name = host
        if name.lower() in _LOOPBACK_HOSTS:
            await self._app(scope, receive, send)
        else:
            detail = f"the Host header must be one of {', '.join(sorted(_LOOPBACK_HOSTS))}"
            await problem_response(421, detail)(scope, receive, send)


class HeaderCheck:
    """Refuses too long headers (431) and two lengths of the body (400).

    h11 limits the headers only while they are incomplete.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 431 or 400."""
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) for name, value in scope["headers"])
        closing = {"connection": "close"}
        if size > MAX_HEADER_BYTES:
            await problem_response(431, HEADERS_TOO_LONG, headers=closing)(scope, receive, send)
        elif {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            # RFC 9112, section 6.3: a proxy may have seen the request end elsewhere (request
            # smuggling).
            detail = "Content-Length and Transfer-Encoding are both given: omit one of them"
            await problem_response(400, detail, headers=closing)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


async def read_body(request: Request, model: type[_Body]) -> _Body:
    """Read and validate a JSON body.

    FastAPI's own body parsing is not used. It accepts a key that is given twice, and its limit on
    the size (``max_body_size``) answers in plain text.

    Raises:
        ProblemError: 415 another content type, 413 too large, 408 too slow, 400 not JSON, 422 not
            valid, with every wrong field.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise ProblemError(415, f"the content type must be application/json, not {content_type or 'none'}")
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            content = await _read_bounded(request)
    except TimeoutError:
        detail = f"the body did not arrive within {_BODY_TIMEOUT_S:.0f} seconds"
        raise ProblemError(408, detail, headers={"connection": "close"}) from None
    except ClientDisconnect:
        raise ProblemError(400, "the body ended early") from None
    try:
        document = json.loads(content, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
        # This fails for an escape of half a surrogate pair, which is not Unicode text.
        text = json.dumps(document, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise ProblemError(400, f"the body is not JSON: {error}") from None
    try:
        # Strict JSON mode accepts a list for a tuple, but not "1" or true for an integer.
        return model.model_validate_json(text, strict=True)
    except ValidationError as error:
        errors = [
            field_error(one["loc"], one["input"] if one["type"] != "missing" else None, wording(one, model))
            for one in error.errors(include_url=False)
        ]
        first = f"{errors[0].field}: {errors[0].detail}" if errors[0].field else errors[0].detail
        raise ProblemError(422, first, errors) from None


async def _read_bounded(request: Request) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > MAX_BODY_BYTES:
        raise _too_large()
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > MAX_BODY_BYTES:
            raise _too_large()
    return bytes(content)


def _too_large() -> ProblemError:
    # The rest of the body is not read, so the connection cannot be used again.
    detail = f"the body may have at most {MAX_BODY_BYTES} bytes"
    return ProblemError(413, detail, headers={"connection": "close"})


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key!r} is given twice")
        result[key] = value
    return result


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
