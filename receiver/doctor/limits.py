"""Time limits of probes, and how many run at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

#: Seconds that one probe may take.
PROBE_S: Final = 5.0

#: Probes that run at once. Each has a connection or a thread of its own.
_AT_ONCE: Final = 32

_Result = TypeVar("_Result")


async def all_of(probes: Sequence[Awaitable[_Result]]) -> list[_Result]:
    """Run probes side by side, a bounded number at once.

    Return their results in order.
    """
    slots = asyncio.Semaphore(_AT_ONCE)

    async def run(probe: Awaitable[_Result]) -> _Result:
        async with slots:
            return await probe

    return list(await asyncio.gather(*map(run, probes)))
