"""Totals don't depend on how entries are split into batches, or on their order."""

from __future__ import annotations

import math
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.exploration import examples
from tests.property.spark_streaming.model import END, totals
from tests.unit.spark_streaming.contributions.support import (
    DISTRIBUTION,
    LAST,
    MINUTE_NS,
    RATE,
    Entry,
    Point,
    Store,
)

RULE_OF = {1: LAST, 2: LAST, 3: RATE, 4: RATE, 5: DISTRIBUTION, 6: DISTRIBUTION}


def points() -> st.SearchStrategy[tuple[Point, ...]]:
    one = st.builds(
        lambda series, value: Point(series, float(value), RULE_OF[series], breakdown=series == 2),
        st.sampled_from(sorted(RULE_OF)),
        st.integers(-3, 60),
    )
    return st.lists(one, min_size=1, max_size=6).map(tuple)


@st.composite
def histories(draw: st.DrawFn) -> list[list[Entry]]:
    """Generate pushes with entries at one or several times."""
    intervals = draw(st.lists(st.sampled_from([5_000, 60_000, 100_000, 300_000]), min_size=1, max_size=3))
    seconds = st.integers(0, 14 * 12).map(lambda x: x * 5)
    pushes = []
    for number in range(draw(st.integers(1, 9))):
        client = draw(st.integers(0, len(intervals) - 1))
        terminating = draw(st.integers(0, 5)) == 0
        begin = draw(seconds)
        times = {
            begin + later for later in draw(st.sets(st.sampled_from([0, 1, 70]), min_size=1, max_size=2))
        }
        pushes.append(
            [
                Entry(
                    time_ns=time * 1_000_000_000,
                    client=client,
                    push=f"push-{number}",
                    points=draw(points()),
                    interval_ms=intervals[client],
                    terminating=terminating,
                )
                for time in times
            ]
        )
    return pushes


@settings(max_examples=examples(150), deadline=None)
@given(
    pushes=histories(),
    random=st.randoms(use_true_random=False),
    batches=st.integers(1, 6),
    in_order=st.booleans(),
)
def test_totals_follow_the_rules(
    pushes: list[list[Entry]], random: Random, batches: int, in_order: bool
) -> None:
    store, closed = Store(), 0
    if in_order:
        pushes.sort(key=lambda push: push[0].time_ns)
        cuts = sorted(random.randrange(len(pushes) + 1) for _ in range(batches - 1))
        split = [pushes[a:b] for a, b in zip([0, *cuts], [*cuts, len(pushes)], strict=True)]
    else:
        split = [[] for _ in range(batches)]
        for push in pushes:
            split[random.randrange(batches)].append(push)
    for batch in split:
        shuffled = [entry for push in batch for entry in push]
        random.shuffle(shuffled)
        closed = max(closed, random.randrange(16))
        store.batch(shuffled, closed=closed)
        if random.random() < 0.5:
            closed = max(closed, random.randrange(20))
            store.maintenance(closed)
    store.maintenance(max(closed, 18))
    sums, spread = totals([entry for push in pushes for entry in push], max(closed, 18))
    assert store.total().keys() == sums.keys()
    for key, value in store.total().items():
        if RULE_OF[key[1]] == RATE:
            assert math.isclose(value, sums[key], abs_tol=1e-9)
        else:
            assert value == sums[key]
    assert store.observed() == spread


@settings(max_examples=examples(150), deadline=None)
@given(
    pushes=st.lists(
        st.tuples(
            st.integers(0, 10 * 60),  # seconds
            st.sampled_from([5_000, 60_000, 300_000]),
            st.sampled_from(["push", "push", "empty push", "terminating", "terminating empty"]),
            st.booleans(),  # maintenance follows
        ),
        min_size=1,
        max_size=8,
    )
)
# A late push in a minute to which an empty push had carried counts, and then one at another minute.
@example(
    pushes=[
        (0, 5_000, "push", False),
        (120, 5_000, "empty push", True),
        (60, 5_000, "push", False),
        (0, 5_000, "push", False),
    ]
)
def test_a_client_counts_at_most_once_in_a_minute(pushes: list[tuple[int, int, str, bool]]) -> None:
    """A minute has its newest push or an earlier one, also with empty pushes and new intervals."""
    store, closed = Store(), 0
    entries = []
    for number, (second, interval_ms, kind, carrying) in enumerate(pushes):
        entry = Entry(
            time_ns=second * 1_000_000_000,
            push=str(number),
            points=() if "empty" in kind else (Point(1, float(2**number), LAST),),
            interval_ms=interval_ms,
            terminating="terminating" in kind,
        )
        entries.append(entry)
        store.batch([entry], closed=closed)
        if carrying:
            closed = max(closed, entry.minute + 1)
            store.maintenance(closed)
    store.maintenance(END)
    total = store.total()
    own = {
        entry.minute: entry.points[0].value
        for entry in sorted(entries, key=lambda e: (e.time_ns, e.push))
        if entry.points
    }
    for minute, value in own.items():
        assert total[minute, 1] == value
    # Powers of two, so that the sum of two pushes is not the value of another one.
    for (minute, _), value in total.items():
        assert value in {e.points[0].value for e in entries if e.points and e.minute <= minute}
    silent_ns = max(e.time_ns + 3 * e.interval_ms * 1_000_000 for e in entries)
    assert all(minute in own or minute * MINUTE_NS <= silent_ns for minute, _ in total)
    # Otherwise no later minute would be complete (progress.whole_until).
    state = store.clients[1]
    carry_to = (state.last_ns // 1_000_000 + 3 * state.push_interval_ms) // 60_000
    assert state.terminated or state.covered_until >= carry_to
