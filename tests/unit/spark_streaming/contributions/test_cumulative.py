"""Cumulative sums are converted to their growth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_streaming.contributions import CodecError
from spark_streaming.contributions.codec import CUMULATIVE_ROW
from spark_streaming.contributions.cumulative import MAX_IDENTITIES
from tests.unit.spark_streaming.contributions.support import (
    MINUTE_NS,
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


def test_bytes_of_another_version_are_refused() -> None:
    store = Store()
    store.batch([entry(1, 5)])
    for cumulative in (b"\x02", store.clients[7].cumulative[:-1]):
        store.clients[7] = store.clients[7]._replace(cumulative=cumulative)
        with pytest.raises(CodecError, match=r"client\.cumulative: \d+ bytes .* version 1:.*rebuild"):
            store.batch([entry(2, 6)])
