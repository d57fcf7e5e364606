"""Pages: no answer lists more than so many things, and each says how to get the next ones.

Owns the parameters ``limit`` and ``after`` and the shape of a page. A cursor stands for a place in an order,
so things that come and go between two pages are neither repeated nor skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, Field

__all__ = ["MAX_LIMIT", "After", "Limit", "Page", "in_portions", "page_of"]

MAX_LIMIT = 1000

# A few hundred microseconds of work.
_PORTION = 50

_Item = TypeVar("_Item")

#: How many things a page may hold.
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="The most items to answer.")]

#: Where a page begins.
After = Annotated[
    str | None, Query(max_length=1024, description="The `next` of the page before; left out: the first page.")
]


class Page(BaseModel, Generic[_Item]):
    """A part of a list."""

    items: list[_Item]
    next: str | None = Field(
        default=None, description="Give it as `after` for the next page; null: this is the last."
    )


async def in_portions(items: Iterable[_Item]) -> AsyncIterator[_Item]:
    """Go through items and let the event loop's other work in between: clients' traffic waits on this loop.

    Args:
        items: What is asked for one by one, so that it need not be what it was at the beginning.
    """
    for number, item in enumerate(items, 1):
        yield item
        if number % _PORTION == 0:
            await asyncio.sleep(0)


def page_of(
    items: Iterable[_Item], limit: int, cursor: Callable[[_Item], str]
) -> tuple[list[_Item], str | None]:
    """Take a page off the beginning of what is left of a list.

    Args:
        items: What comes after the page before, in order.
        limit: The most to take.
        cursor: What stands for an item's place.

    Returns:
        The items, and the cursor for the next page, or None where there is none.
    """
    taken = list(islice(items, limit + 1))
    if len(taken) <= limit:
        return taken, None
    return taken[:limit], cursor(taken[limit - 1])
