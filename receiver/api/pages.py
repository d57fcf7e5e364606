"""Pagination: the parameters ``limit`` and ``after`` and the shape of a page.

A cursor stands for a position in an order. Items that come and go between two pages make no other
item appear twice or not at all.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, Field

from receiver.api.queries import ForbiddingModel

MAX_LIMIT = 1000

# A few hundred microseconds of work.
_PORTION = 50

_Item = TypeVar("_Item")


class LimitQuery(ForbiddingModel):
    """The query parameter of a list without pages."""

    limit: int = Field(default=100, ge=1, le=MAX_LIMIT, description="The most items to return.")


class PageQuery(LimitQuery):
    """The query parameters of a list with pages."""

    after: str | None = Field(
        default=None,
        max_length=1024,
        description="The `next` of the previous page; omitted: the first page.",
    )


class Page(BaseModel, Generic[_Item]):
    """One page of a list."""

    items: list[_Item]
    next: str | None = Field(
        default=None, description="Send it as `after` for the next page; null: this is the last page."
    )


def first_page(
    items: Iterable[_Item],
    limit: int,
    cursor: Callable[[_Item], str],
    order: Callable[[_Item], Any] = lambda item: item,
) -> tuple[list[_Item], str | None]:
    """Return the first items in order and the cursor of the next page, or None.

    ``items`` are those after the previous page, in any order.
    """
    page = heapq.nsmallest(limit + 1, items, key=order)
    return page[:limit], cursor(page[limit - 1]) if len(page) > limit else None


async def in_portions(items: Iterable[_Item]) -> AsyncIterator[_Item]:
    """Iterate and let the event loop, which carries Kafka traffic, run in between."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _PORTION == 0:
            await asyncio.sleep(0)
