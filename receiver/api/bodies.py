"""Reads the JSON body of a request, bounded in size and time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

from fastapi import Request
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from receiver.api.problems import ProblemError
from receiver.numbers import whole_number

#: A subscription is a few hundred bytes. The largest useful one, with a long list of prefixes, fits
#: too.
MAX_BODY_BYTES: Final = 65_536

#: h11 accepts content lengths of at most 20 digits.
_MAX_ANNOUNCED: Final = 10**20 - 1

_BODY_TIMEOUT_S = 10.0

JSON_TYPES: Final = ("application/json",)
#: RFC 7396, section 4.
MERGE_PATCH_TYPES: Final = ("application/json", "application/merge-patch+json")


def body_of(model: type[BaseModel], types: Sequence[str]) -> dict[str, Any]:
    """Return the part of the OpenAPI document that describes a body."""
    schema = {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}
    return {"requestBody": {"required": True, "content": dict.fromkeys(types, schema)}}


async def read_json(request: Request, types: Sequence[str]) -> Any:
    """Read a JSON body.

    FastAPI's own body parsing is not used. It accepts a key that is given twice, and its limit on
    the size (``max_body_size``) answers in plain text.

    Raises:
        ProblemError: 415 another content type, 413 too large, 408 too slow, 400 not JSON.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in types:
        raise ProblemError(
            415, f"the content type must be {' or '.join(types)}, not {content_type or 'none'}"
        )
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
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise ProblemError(400, f"the body is not JSON: {error}") from None
    return document


async def _read_bounded(request: Request) -> bytes:
    # A length that can't be read counts as unknown, because what comes is bounded too.
    announced = whole_number(request.headers.get("content-length", ""), _MAX_ANNOUNCED)
    if announced is not None and announced > MAX_BODY_BYTES:
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
