"""One page of several receivers' pages: every item once, in order, with any size of page."""

from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.cluster.merge import Item, Order, merged_page, read_page

#: A list whose items are added up.
SUMS = Order(
    position=lambda item: item["id"],
    cursor=lambda item: str(item["id"]),
    combine=lambda views: {**views[0], "count": sum(view["count"] for view in views)},
)
ORDER = Order(
    position=lambda item: item["id"],
    cursor=lambda item: str(item["id"]),
    combine=lambda views: {**views[0], "seen_by": [view["receiver"] for view in views]},
)


def page_of(items: list[int], limit: int, after: int) -> dict[str, Any]:
    """What a receiver with these ids answers."""
    later = sorted(number for number in items if number > after)
    following = str(later[limit - 1]) if len(later) > limit else None
    return {"items": [{"id": number} for number in later[:limit]], "next": following}


def walk(receivers: list[list[int]], limit: int, asked: int, **options: Any) -> list[list[Item]]:
    """All pages of the cluster."""
    pages: list[list[Item]] = []
    after: str | None = "-1"
    while after is not None:
        documents = [page_of(items, asked, int(after)) for items in receivers]
        read = [read_page(str(number), document, ORDER) for number, document in enumerate(documents)]
        items, after = merged_page(read, limit, ORDER, **options)
        pages.append(items)
    return pages


IDS = st.lists(st.integers(0, 40), max_size=12, unique=True)


@given(st.lists(IDS, max_size=4), st.integers(1, 5))
def test_every_item_is_on_one_page_in_order(receivers: list[list[int]], limit: int) -> None:
    pages = walk(receivers, limit, limit)
    assert [item["id"] for item in chain(*pages)] == sorted(set(chain(*receivers)))
    assert all(len(page) == limit for page in pages[:-1])
    for item in chain(*pages):
        holders = [str(number) for number, items in enumerate(receivers) if item["id"] in items]
        assert item["seen_by"] == holders


@given(st.lists(IDS, max_size=4), st.integers(1, 5), st.integers(5, 8))
def test_a_filter_after_the_merge_loses_nothing(receivers: list[list[int]], limit: int, asked: int) -> None:
    pages = walk(receivers, limit, asked, passes=lambda item: item["id"] % 7 == 0)
    assert [item["id"] for item in chain(*pages)] == sorted(
        number for number in set(chain(*receivers)) if number % 7 == 0
    )
    assert all(len(page) <= limit for page in pages)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"items": []},
        {"items": {}, "next": None},
        {"items": [{}], "next": None},
        {"items": [1], "next": None},
    ],
)
def test_what_is_no_page_is_refused(document: object) -> None:
    with pytest.raises(ValueError, match=r"it is no list|an item lacks"):
        read_page("1", document, ORDER)


@pytest.mark.parametrize("item", [{"id": 1}, {"id": 1, "count": "1"}, {"id": 1, "count": None}, {"count": 1}])
def test_an_older_receivers_item_that_lacks_what_is_added_up_is_refused(item: Item) -> None:
    with pytest.raises(ValueError, match="added up by"):
        read_page("1", {"items": [item], "next": None}, SUMS)
    assert read_page("1", {"items": [{"id": 1, "count": 1}], "next": None}, SUMS).entries
