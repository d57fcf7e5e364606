"""Reconciliation in small cases. The property test covers the others."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_streaming.contributions import ClientState, CodecError, reconcile, required_pairs, split_by_client
from spark_streaming.contributions.codec import NO_COUNTS, decode_contribution
from spark_streaming.rows import ENTRY_ROWS, ROLLUP_ROWS
from tests.unit.spark_streaming.contributions.support import (
    DISTRIBUTION,
    LAST,
    MINUTE_NS,
    RATE,
    CumulativePoint,
    Entry,
    Point,
    Store,
    bucket,
    table,
)

COUNT = (Point(1, 4.0, LAST),)
SECOND_NS = 1_000_000_000


def test_counts_before_the_end_of_a_minute_stay_after_it() -> None:
    """A push has one gauge on each side of a minute's end, and the next push has both."""
    store = Store()
    end = 10 * MINUTE_NS
    store.batch(
        [
            Entry(time_ns=end - 2_000_000_000, push="a", points=(Point(1, 3.0, LAST), Point(2, 1.0, LAST))),
            Entry(time_ns=end + 1_000_000_000, push="a", points=(Point(2, 2.0, LAST), Point(3, 5.0, LAST))),
        ]
    )
    store.maintenance(12)
    counts = {1: 3.0, 2: 2.0, 3: 5.0}
    assert store.total() == {(9, 1): 3.0, (9, 2): 1.0} | {
        (minute, series): value for minute in (10, 11, 12) for series, value in counts.items()
    }
    # What was not pushed in the minute is no point of it.
    assert {key: points for key, points in store.points.items() if points} == {
        (9, 1): 1,
        (9, 2): 1,
        (10, 2): 1,
        (10, 3): 1,
    }
    # A newer push of the minute replaces all of them.
    store.batch([Entry(time_ns=end + 50_000_000_000, push="b", points=(Point(3, 7.0, LAST),))])
    store.maintenance(12)
    assert store.total() == {(9, 1): 3.0, (9, 2): 1.0} | {(minute, 3): 7.0 for minute in (10, 11, 12)}


def test_a_single_entry_is_stored_unchanged_and_corrects_nothing() -> None:
    entry = Entry(time_ns=5 * MINUTE_NS, points=(Point(1, 4.0, LAST, breakdown=True), Point(2, 1.5, RATE)))
    result = Store().batch([entry])
    assert [(row["series_id"], row["points"], row["sum"]) for row in result.rows.to_pylist()] == [
        (1, 1, 4.0),
        (2, 1, 1.5),
    ]
    assert result.rows.schema == ROLLUP_ROWS
    (contribution,) = result.contributions
    assert contribution.entries == 1
    assert decode_contribution(contribution.packed) == ("entry", "push", table([entry])["gauges"][0].as_py())


def test_entries_of_one_minute_combine_by_rule() -> None:
    store = Store()
    first = (Point(1, 4.0, LAST), Point(2, 10.0, RATE), Point(3, 1.0, DISTRIBUTION))
    second = (Point(1, 6.0, LAST), Point(2, 20.0, RATE), Point(3, 7.0, DISTRIBUTION))
    store.batch([Entry(time_ns=0, push="a", points=first)])
    result = store.batch([Entry(time_ns=SECOND_NS, push="b", points=second)])
    assert store.total() == {(0, 1): 6, (0, 2): 15, (0, 3): 8}
    assert store.observed() == {(0, 3, bucket(4)): 1}
    assert store.points == {(0, 1): 2, (0, 2): 2, (0, 3): 2}
    assert result.contributions[0].entries == 2


def test_parts_do_not_split_clients_and_cover_every_entry() -> None:
    entries = table([Entry(time_ns=number, client=number % 7, points=COUNT * 3) for number in range(40)])
    entries = entries.set_column(
        entries.schema.get_field_index("client_id"), "client_id", [["b", None, "a", "b"] * 10]
    )
    parts = list(split_by_client(entries, points=40))
    assert 3 <= len(parts) <= 6
    times = [time for part in parts for time in part["time_ns"].to_pylist()]
    assert sorted(times) == list(range(40))
    clients = [client for part in parts for client in set(part["client_key"].to_pylist())]
    assert len(clients) == 7
    assert list(split_by_client(entries, points=1_000)) == [entries]
    assert list(split_by_client(entries.slice(0, 0), points=40)) == []


def test_a_series_missing_from_the_newest_push_stops_counting() -> None:
    store = Store()
    store.batch([Entry(time_ns=0, push="a", points=(Point(1, 1.0, LAST),))])
    store.batch([Entry(time_ns=SECOND_NS, push="b", points=(Point(2, 1.0, LAST),))])
    assert store.total() == {(0, 2): 1}


def test_a_push_with_separately_stamped_metrics_counts_all_of_them() -> None:
    store = Store()
    store.batch(
        [
            Entry(time_ns=0, push="a", points=(Point(1, 1.0, LAST),)),
            Entry(time_ns=1_000_000, push="a", points=(Point(2, 1.0, LAST),)),
        ]
    )
    assert store.total() == {(0, 1): 1, (0, 2): 1}


def test_counts_are_carried_for_three_intervals_and_never_beyond_closed() -> None:
    store = Store()
    store.batch([Entry(time_ns=30 * SECOND_NS, points=(Point(1, 4.0, LAST, breakdown=True),))])
    (row,) = store.maintenance(closed=1).rows.to_pylist()
    assert row == {
        "minute": 1,
        "series_id": 1,
        "fleet_id": 1001,
        "breakdown": True,
        "spread": None,
        "points": 0,
        "sum": 4.0,
        "min": None,
        "max": None,
        "observations": 0,
        "pushed_sum": None,
    }
    assert store.clients[1].covered_until == 1
    assert store.contributions.keys() == {(1, 0)}
    store.maintenance(closed=20)
    assert store.total() == {(minute, 1): 4 for minute in range(4)}
    assert store.maintenance(closed=21).clients == []


def test_the_minute_in_which_three_intervals_end_is_the_last_one() -> None:
    store = Store()
    store.batch([Entry(time_ns=0, points=COUNT)], closed=20)
    assert max(minute for minute, _ in store.total()) == 3


@pytest.mark.parametrize("interval_ms", [-1, 0, 5_000])
def test_intervals_shorter_than_a_minute_carry_only_three_intervals(interval_ms: int) -> None:
    store = Store()
    store.batch([Entry(time_ns=50 * SECOND_NS, points=COUNT, interval_ms=interval_ms)], closed=20)
    assert max(minute for minute, _ in store.total()) == (1 if interval_ms == 5_000 else 0)


def test_a_late_entry_replaces_carried_counts() -> None:
    store = Store()
    store.batch([Entry(time_ns=0, push="a", points=COUNT)], closed=20)
    store.batch([Entry(time_ns=MINUTE_NS, push="b", points=(Point(1, 9.0, LAST),), terminating=True)])
    assert store.total() == {(0, 1): 4, (1, 1): 9}
    assert store.clients[1].covered_until == 1


def test_an_empty_terminating_push_ends_the_carrying_after_its_minute() -> None:
    store = Store()
    store.batch([Entry(time_ns=0, push="a", points=COUNT, interval_ms=300_000)])
    store.batch([Entry(time_ns=2 * MINUTE_NS, push="b", terminating=True)])
    store.maintenance(closed=20)
    assert store.total() == {(minute, 1): 4 for minute in range(3)}
    assert store.clients[1].terminated


def test_an_empty_push_extends_the_carrying() -> None:
    store = Store()
    store.batch([Entry(time_ns=0, push="a", points=COUNT), Entry(time_ns=2 * MINUTE_NS, push="b")])
    store.maintenance(closed=20)
    assert store.total() == {(minute, 1): 4 for minute in range(6)}


def test_an_empty_push_of_an_unknown_client_counts_nothing() -> None:
    store = Store()
    result = store.batch([Entry(time_ns=0)], closed=20)
    assert result.contributions == []
    assert (result.clients[0].minute, result.clients[0].covered_until) == (0, 0)
    # Nothing is carried, and yet it is not waited for.
    store.maintenance(closed=2)
    assert store.clients[1].covered_until == 2
    store.batch([Entry(time_ns=4 * MINUTE_NS, push="b", points=COUNT)])
    assert store.total() == {(4, 1): 4}


def test_an_empty_push_older_than_an_entry_of_its_minute_changes_nothing() -> None:
    store = Store()
    store.batch([Entry(time_ns=SECOND_NS, push="a", points=COUNT)])
    assert store.batch([Entry(time_ns=0, push="b", terminating=True)]).clients == []


def test_an_entry_that_arrives_after_a_later_empty_push_counts_once() -> None:
    store = Store()
    store.batch([Entry(time_ns=0, push="a", points=COUNT)])
    store.batch([Entry(time_ns=4 * MINUTE_NS, push="c")])
    store.batch([Entry(time_ns=2 * MINUTE_NS, push="b", points=(Point(1, 9.0, LAST),))])
    store.maintenance(closed=5)
    assert store.total() == {(0, 1): 4, (1, 1): 4} | {(minute, 1): 9 for minute in range(2, 6)}


@pytest.mark.parametrize("terminating", [False, True])
@pytest.mark.parametrize("carried", [False, True])
def test_a_newer_push_of_a_minute_replaces_carried_counts(*, terminating: bool, carried: bool) -> None:
    """The newer push comes in one batch with a push of a later minute."""
    store = Store()
    store.batch([Entry(time_ns=0, push="a", points=COUNT)], closed=3 if carried else 0)
    newer = Entry(time_ns=SECOND_NS, push="b", points=(Point(1, 9.0, LAST),), terminating=terminating)
    store.batch([newer, Entry(time_ns=3 * MINUTE_NS, push="c", points=COUNT)])
    between = {} if terminating else {(1, 1): 9, (2, 1): 9}
    assert store.total() == {(0, 1): 9, (3, 1): 4} | between


def test_an_entry_older_than_an_empty_push_of_its_minute_counts_once() -> None:
    store, interval_ms = Store(), 5_000
    store.batch([Entry(time_ns=0, push="a", points=COUNT, interval_ms=interval_ms)])
    # Three intervals after it are in the next minute. Three intervals after "b" are not.
    store.batch([Entry(time_ns=50 * SECOND_NS, push="c", interval_ms=interval_ms)], closed=1)
    between = Entry(time_ns=40 * SECOND_NS, push="b", points=(Point(1, 9.0, LAST),), interval_ms=interval_ms)
    store.batch([between], closed=1)
    assert store.total() == {(0, 1): 9, (1, 1): 9}


def test_required_pairs_are_those_that_may_be_stored() -> None:
    state = ClientState(
        client_key=1,
        minute=5,
        last_ns=5 * MINUTE_NS,
        push_interval_ms=60_000,
        terminated=False,
        covered_until=7,
        carried_from=7,
        counts=b"counts",
        cumulative=b"",
    )
    entries = [Entry(time_ns=m * MINUTE_NS, points=COUNT) for m in (1, 6, 8)]
    other = Entry(time_ns=0, client=2, points=COUNT)
    # The state says what minute 7 has.
    assert required_pairs(table([*entries, other]), {1: state}) == {(1, m) for m in (1, 2, 3, 4, 6)}
    without = state._replace(counts=NO_COUNTS)
    assert required_pairs(table(entries), {1: without}) == {(1, m) for m in (1, 2, 3, 4, 6, 7)}


def test_counts_are_carried_without_a_row_for_each_minute() -> None:
    """Of a client that pushes every five minutes, two contributions are stored instead of five."""
    store = Store()
    for number in range(12):
        push = Entry(
            time_ns=number * 5 * MINUTE_NS,
            push=str(number),
            points=(Point(1, float(number), LAST),),
            interval_ms=300_000,
        )
        store.batch([push], closed=5 * number - 1)
        for minute in range(5 * number, 5 * number + 5):
            assert store.maintenance(closed=minute).contributions == []
    assert store.total() == {(minute, 1): minute // 5 for minute in range(5, 60)}
    assert store.rows == 12 + 11
    late = Entry(time_ns=32 * MINUTE_NS, push="late", points=(Point(1, 70.0, LAST),), interval_ms=300_000)
    store.batch([late], closed=59)
    assert store.total() == {(minute, 1): 70 if 32 <= minute < 35 else minute // 5 for minute in range(5, 60)}


def test_a_long_range_is_stored_in_parts() -> None:
    store = Store()
    hour_ms = 3_600_000
    store.batch([Entry(time_ns=0, push="a", points=COUNT, interval_ms=hour_ms)])
    store.maintenance(closed=150)
    later = Entry(time_ns=160 * MINUTE_NS, push="b", points=COUNT, interval_ms=hour_ms)
    stored = [
        (contribution.minute, contribution.until)
        for contribution in store.batch([later], closed=150).contributions
    ]
    assert sorted(stored) == [(1, 64), (65, 128), (129, 159), (160, -1)]


def test_no_entries_change_nothing() -> None:
    result = reconcile(ENTRY_ROWS.empty_table(), {}, {}, closed=5)
    assert result.rows == ROLLUP_ROWS.empty_table()
    assert result.contributions == []
    assert result.clients == []


def test_bytes_of_another_version_are_refused() -> None:
    store = Store()
    store.batch([Entry(time_ns=0, push="a", points=COUNT)])
    kept = store.contributions[1, 0]
    for packed in (b"", b"\x02\x01\x00\x00", b"\x01\x09\x00\x00", kept.packed[:-1], kept.packed[:6]):
        with pytest.raises(CodecError, match=r"contribution\.packed: \d+ bytes .* version 1.*rebuild"):
            decode_contribution(packed)


def test_points_of_another_decoder_are_refused() -> None:
    entries = table([Entry(time_ns=0, points=COUNT)])
    position = ENTRY_ROWS.get_field_index("gauges")
    cut = entries.set_column(position, ENTRY_ROWS.field("gauges"), [[b"1234"]])
    with pytest.raises(
        CodecError, match=r"4 bytes .* multiple of the 25 bytes .*series, fleet, value, flags"
    ):
        reconcile(cut, {}, {}, closed=0)


def test_chunks_of_a_batch_make_no_difference() -> None:
    entries = [
        Entry(time_ns=t * SECOND_NS, push=str(t), points=COUNT, cumulative=(CumulativePoint(1, t, 1),))
        for t in range(9)
    ]
    chunked = pa.concat_tables([table(entries[:4]), table(entries[4:])])
    assert reconcile(chunked, {}, {}, closed=0) == reconcile(table(entries), {}, {}, closed=0)
