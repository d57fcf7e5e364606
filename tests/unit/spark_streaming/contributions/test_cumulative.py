"""Cumulative sums are converted to their growth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_streaming.contributions import CodecError
from spark_streaming.contributions.codec import CUMULATIVE_ROW
from spark_streaming.contributions.cumulative import MAX_IDENTITIES
from tests.unit.spark_streaming.contributions.support import (
    MINUTE_NS,
    CumulativeHistogram,
    CumulativePoint,
    Entry,
    Store,
)

START = 100 * MINUTE_NS
LONG_AGO = MINUTE_NS


def entry(minute: int, value: float, *, start_ns: int = START, identity: int = 1, push: str = "a") -> Entry:
    return Entry(
        time_ns=START + minute * MINUTE_NS,
        push=push,
        cumulative=(CumulativePoint(identity, value, start_ns),),
        client=7,
    )


def cumulative(store: Store) -> dict[int, float]:
    return {minute - 100: value for (minute, _), value in store.total().items()}


@pytest.mark.parametrize("together", [True, False])
def test_growth_is_the_difference(together: bool) -> None:
    store, entries = Store(), [entry(1, 5), entry(2, 5), entry(3, 12), entry(3, 8, identity=2)]
    for batch in [entries[::-1]] if together else [[entry] for entry in entries]:
        store.batch(batch)
    assert cumulative(store) == {1: 5, 3: 7}
    assert store.points == {(101, 900): 1, (102, 900): 1, (103, 900): 2}


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("again", [entry(2, 3), entry(2, 9, start_ns=START + MINUTE_NS)])
def test_a_reset_counts_from_nothing(again: Entry, together: bool) -> None:
    store, entries = Store(), [entry(1, 5), again, entry(3, 10, start_ns=again.cumulative[0].start_ns)]
    for batch in [entries] if together else [[entry] for entry in entries]:
        store.batch(batch)
    assert cumulative(store) == {1: 5, 2: again.cumulative[0].value, 3: 10 - again.cumulative[0].value}


@pytest.mark.parametrize("start_ns", [0, LONG_AGO, START - 31_000_000_000])
def test_the_first_value_of_an_older_sum_counts_nothing(start_ns: int) -> None:
    store = Store()
    store.batch([entry(1, 500, start_ns=start_ns)])
    store.batch([entry(2, 501, start_ns=start_ns)])
    assert cumulative(store) == {2: 1}


def test_the_first_value_counts_if_the_sum_started_within_one_and_a_half_intervals() -> None:
    store = Store()
    store.batch([entry(1, 500, start_ns=START - 30_000_000_000)])
    assert cumulative(store) == {1: 500}


@pytest.mark.parametrize("together", [True, False])
def test_repeated_and_late_points_add_nothing(together: bool) -> None:
    store = Store()
    store.batch([entry(1, 5)])
    store.batch([entry(4, 20)])
    late = [entry(2, 9), entry(4, 30), entry(5, 21)]
    for batch in [late] if together else [[entry] for entry in late]:
        store.batch(batch)
    assert cumulative(store) == {1: 5, 4: 15, 5: 1}


def test_instances_do_not_share_their_sums() -> None:
    store = Store()
    store.batch([entry(1, 5), replace(entry(1, 6), client=8)])
    store.batch([entry(2, 6), replace(entry(2, 8), client=8)])
    assert cumulative(store) == {1: 11, 2: 3}


def test_stored_sums_are_bounded_and_the_oldest_are_dropped() -> None:
    store = Store()
    store.batch([entry(1, 1, identity=-1)])
    many = tuple(CumulativePoint(i, 1.0, START) for i in range(MAX_IDENTITIES))
    store.batch([replace(entry(2, 0), cumulative=many)])
    assert len(store.clients[7].cumulative) == 1 + MAX_IDENTITIES * CUMULATIVE_ROW.itemsize
    store.batch([entry(3, 2, identity=-1, start_ns=LONG_AGO), entry(3, 2, identity=5)])
    assert cumulative(store)[3] == 1


def histogram(
    minute: int, *counts: int, total: float | None = None, start_ns: int = START, push: str = "a"
) -> Entry:
    """A push with a histogram, of which each count is that of a bucket of width 1."""
    buckets = tuple((float(at), at + 1.0, count) for at, count in enumerate(counts) if count)
    point = CumulativeHistogram(1, start_ns, buckets, total)
    return Entry(time_ns=START + minute * MINUTE_NS, push=push, histograms=(point,), client=7)


def counted(store: Store) -> tuple[dict[int, int], dict[int, float], dict[tuple[int, float], int]]:
    """Return counts and sums by minute, and counts of buckets by minute and lower bound."""
    points = {minute - 100: count for (minute, _), count in store.points.items() if count}
    buckets = {(minute - 100, lower): count for (minute, lower, _), count in store.buckets.items()}
    return points, cumulative(store), buckets


@pytest.mark.parametrize("together", [True, False])
def test_a_histogram_counts_its_growth(together: bool) -> None:
    store = Store()
    # A bucket appears in the second, the third is the same again, and the fourth is late.
    pushes = [histogram(1, 2, total=1.0), histogram(2, 2, 3, total=6.0), histogram(3, 2, 3, total=6.0)]
    pushes += [histogram(4, 4, 3, 1, total=11.5)]
    for batch in [pushes[::-1]] if together else [[push] for push in pushes]:
        store.batch(batch)
    store.batch([histogram(2, 2, 9, total=30.0, push="late")])
    points, sums, buckets = counted(store)
    assert points == {1: 2, 2: 3, 4: 3}
    assert sums == {1: 1.0, 2: 5.0, 4: 5.5}
    assert buckets == {(1, 0.0): 2, (2, 1.0): 3, (4, 0.0): 2, (4, 2.0): 1}


@pytest.mark.parametrize("together", [True, False])
def test_an_older_histogram_counts_from_its_first_push(together: bool) -> None:
    store = Store()
    pushes = [histogram(1, 50, start_ns=LONG_AGO, total=9), histogram(2, 51, 2, start_ns=LONG_AGO, total=12)]
    for batch in [pushes] if together else [[push] for push in pushes]:
        store.batch(batch)
    assert counted(store) == ({2: 3}, {2: 3.0}, {(2, 0.0): 1, (2, 1.0): 2})


def test_a_histogram_that_begins_again_counts_from_nothing() -> None:
    store = Store()
    store.batch([histogram(1, 50, total=9)])
    store.batch([histogram(2, 3, 2, total=4, start_ns=START + MINUTE_NS)])
    assert counted(store) == ({1: 50, 2: 5}, {1: 9.0, 2: 4.0}, {(1, 0.0): 50, (2, 0.0): 3, (2, 1.0): 2})


def test_a_histogram_without_a_sum_has_none() -> None:
    store = Store()
    for minute, count in ((1, 2), (2, 2), (3, 5)):
        store.batch([histogram(minute, count)])
    assert counted(store) == ({1: 2, 3: 3}, {}, {(1, 0.0): 2, (3, 0.0): 3})
    assert store.without_sum == {(101, 800), (103, 800)}


def test_a_bucket_counts_nothing_where_others_were_dropped() -> None:
    store = Store()
    many = tuple(CumulativePoint(-i, 1.0, START) for i in range(MAX_IDENTITIES))
    store.batch([replace(histogram(1, 2), cumulative=many)])
    store.batch([histogram(2, 2, 3)])
    assert (2, 1.0) not in counted(store)[2]


def test_bytes_of_another_version_are_refused() -> None:
    store = Store()
    store.batch([entry(1, 5)])
    for cumulative in (b"\x02", store.clients[7].cumulative[:-1]):
        store.clients[7] = store.clients[7]._replace(cumulative=cumulative)
        with pytest.raises(CodecError, match=r"client\.cumulative: \d+ bytes .* version 1:.*rebuild"):
            store.batch([entry(2, 6)])
