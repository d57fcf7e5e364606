"""Makes one page of a list from the pages of several receivers.

Each receiver's page is in the list's order, and begins after the same position. A position is a
place in the order of all items, so one cursor serves all receivers: no receiver's state is kept
between two pages, and receivers may come and go.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeAlias

#: An item of a list, as JSON has it.
Item: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order of a list."""

    position: Callable[[Item], Any]
    """Returns the place of an item in the order. The item has its receiver's id as ``receiver``.
    Raises KeyError, TypeError or ValueError for what is no such item."""
    cursor: Callable[[Item], str]
    """Returns the ``after`` of the items behind an item."""
    combine: Callable[[Sequence[Item]], Item] = itemgetter(0)
    """Makes one item of those at the same position. Raises the same for what is no such item."""


@dataclass(frozen=True, slots=True)
class MemberPage:
    """A receiver's page."""

    entries: Sequence[tuple[Any, Item]]
    """Its first items after the position, each with its place in the order."""
    has_more: bool


def read_page(receiver: str, document: object, order: Order) -> MemberPage:
    """Read the document of a receiver's page; its items get the receiver's id.

    Raises:
        ValueError: It is no page of this list.
    """
    match document:
        case {"items": list(items), "next": None | str() as following}:
            pass
        case _:
            raise ValueError("it is no list")
    return MemberPage([entry_of(receiver, item, order) for item in items], following is not None)


def entry_of(receiver: str, item: object, order: Order) -> tuple[Any, Item]:
    """Return an item's place in the order, and the item with its receiver's id.

    Raises:
        ValueError: It lacks what the list reads of it. An older receiver's may.
    """
    try:
        own: Item = {**item, "receiver": receiver}  # type: ignore[dict-item]  # anything may come
        order.combine([own])
        return order.position(own), own
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError("an item lacks what the list is ordered or added up by") from None


def merged_page(
    pages: Sequence[MemberPage],
    limit: int,
    order: Order,
    passes: Callable[[Item], bool] = lambda _: True,
) -> tuple[list[Item], str | None]:
    """Merge pages into one, and return it with its cursor; None: it is the last.

    With ``passes``, a page may have fewer items than ``limit`` and not be the last.

    Args:
        pages: The pages of all receivers, each in order.
    """
    # Behind its last item, a receiver with more may have items that come before those of others.
    ends = [page.entries[-1] for page in pages if page.has_more and page.entries]
    last = min(ends, key=_POSITION, default=None)
    found: list[Item] = []
    entries = heapq.merge(*(page.entries for page in pages), key=_POSITION)
    for position, same in groupby(entries, key=_POSITION):
        if last is not None and position > last[0]:
            break
        if len(found) == limit:
            return found, order.cursor(found[-1])
        item = order.combine([item for _, item in same])
        if passes(item):
            found.append(item)
    return found, None if last is None else order.cursor(last[1])


_POSITION: Final = itemgetter(0)
