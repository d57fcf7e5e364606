"""Runs long reads in a thread.

So the event loop goes on answering telemetry calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

import msgspec
from fastapi import Response

_Result = TypeVar("_Result")
_Parameters = ParamSpec("_Parameters")

# One thread, because threads share the interpreter: several would only make each other slower.
_executor: Final = ThreadPoolExecutor(1, "rest-reads")


async def in_background(
    read: Callable[_Parameters, _Result], *arguments: _Parameters.args, **named: _Parameters.kwargs
) -> _Result:
    """Run a function that only reads, in the thread for long reads."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_executor, partial(read, *arguments, **named))


def json_response(document: Any) -> Response:
    """Encode a document of plain values and dataclasses."""
    return Response(msgspec.json.encode(document), media_type="application/json")
