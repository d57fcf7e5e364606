"""Bounds on what a caller may send: the host it speaks to, the size of headers and body, the time to send it.

Owns the refusal. It reads no more of a request than it lets through.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from receiver.api.problems import ProblemError, field_error, problem_response
from receiver.settings.errors import wording

__all__ = [
    "HEADERS_TOO_LONG",
    "LOOPBACK_HOSTS",
    "MAX_BODY_BYTES",
    "MAX_HEADER_BYTES",
    "HeaderCheck",
    "HostCheck",
    "read_body",
]

#: A subscription is a few hundred bytes; the largest that is any use, with a long list of prefixes, fits too.
MAX_BODY_BYTES = 65_536

#: The request's line and its headers together.
MAX_HEADER_BYTES = 16_384

HEADERS_TOO_LONG = f"the request line and the headers may have at most {MAX_HEADER_BYTES} bytes together"

#: How a caller on this machine names it.
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})

_BODY_TIMEOUT_S = 10.0

_Body = TypeVar("_Body", bound=BaseModel)


class HostCheck:
    """Refuses requests for another host: a web page that had its own name point here could act as its reader.

    Args:
        app: The application.
        hosts: Names that are this one, an IPv6 address in brackets.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer 421."""
        host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
        name, _, port = host.rpartition(":")
        if not port.isdigit():
            name = host
        if name.lower() not in self._hosts:
            detail = f"this server is {', '.join(sorted(self._hosts))}: the Host header says otherwise"
            await problem_response(421, detail)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class HeaderCheck:
    """Refuses requests whose line and headers are too long, or that end in two places.

    The server's own bound on the size holds only for what comes in pieces.

    Args:
        app: The application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer 431 or 400."""
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) for name, value in scope["headers"])
        if size > MAX_HEADER_BYTES:
            await problem_response(431, HEADERS_TOO_LONG, headers={"connection": "close"})(
                scope, receive, send
            )
        elif {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            # RFC 9112, section 6.3: a proxy in front may have taken what follows for another's request.
            detail = "Content-Length and Transfer-Encoding are both given: leave one out"
            await problem_response(400, detail, headers={"connection": "close"})(scope, receive, send)
        else:
            await self._app(scope, receive, send)


async def read_body(request: Request, model: type[_Body]) -> _Body:
    """Read and validate a JSON body.

    Args:
        request: The request; nothing of its body has been read.
        model: What the body must be.

    Returns:
        The body.

    Raises:
        ProblemError: 415 not JSON by its content type, 413 too large, 408 too slow, 400 not JSON, 422 not
            of the type, with every wrong field.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        shown = content_type or "none"
        raise ProblemError(415, f"the content type must be application/json, not {shown}")
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            content = await _bounded(request)
    except TimeoutError:
        detail = f"the body did not arrive within {_BODY_TIMEOUT_S:.0f} seconds"
        raise ProblemError(408, detail, headers={"connection": "close"}) from None
    except ClientDisconnect:
        raise ProblemError(400, "the body ended early") from None
    try:
        document = json.loads(content, object_pairs_hook=_distinct, parse_constant=_no_constant)
        # An escape may stand for half a character, which is no text.
        text = json.dumps(document, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise ProblemError(400, f"the body is not JSON: {error}") from None
    try:
        # As JSON and strictly: lists become tuples, but "1" is no integer and true is no 1.
        return model.model_validate_json(text, strict=True)
    except ValidationError as error:
        errors = [
            field_error(one["loc"], one["input"] if one["type"] != "missing" else None, wording(one, model))
            for one in error.errors(include_url=False)
        ]
        first = f"{errors[0].field}: {errors[0].detail}" if errors[0].field else errors[0].detail
        raise ProblemError(422, first, errors) from None


async def _bounded(request: Request) -> bytes:
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
    return ProblemError(
        413, f"the body may have at most {MAX_BODY_BYTES} bytes", headers={"connection": "close"}
    )


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is given twice")
        found[key] = value
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
