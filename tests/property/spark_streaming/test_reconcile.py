"""Totals don't depend on how entries are split into batches, or on their order."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.spark_streaming.contributions.support import (
    DISTRIBUTION,
    LAST,
    MINUTE_NS,
    RATE,
    Entry,
    Point,
    Store,
    bucket,
)

RULE_OF = {1: LAST, 2: LAST, 3: RATE, 4: RATE, 5: DISTRIBUTION, 6: DISTRIBUTION}
END = 40


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


def oracle(
    entries: Sequence[Entry], closed: int
) -> tuple[dict[tuple[int, int], float], dict[tuple[int, int, int], int]]:
    """Apply the rules to all entries at once."""
    minutes: dict[int, dict[int, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        minutes[entry.client][entry.minute].append(entry)
    sums: Counter[tuple[int, int]] = Counter()
    spread: Counter[tuple[int, int, int]] = Counter()
    for own in minutes.values():
        for minute, minute_entries in own.items():
            newest = max(minute_entries, key=lambda e: (e.time_ns, e.push))
            values: dict[int, float] = {}
            of_push = sorted(
                (e for others in own.values() for e in others if e.push == newest.push),
                key=lambda e: e.time_ns,
            )
            earlier = [e for e in of_push if e.minute < minute]
            if earlier:
                reach = (earlier[-1].time_ns // 1_000_000 + 3 * earlier[-1].interval_ms) // 60_000
                earlier = [e for e in earlier if e.minute == earlier[-1].minute and reach >= minute]
            for entry in (*earlier, *(e for e in of_push if e.minute == minute)):
                last: Counter[int] = Counter()
                for point in entry.points:
                    if point.rule == LAST:
                        last[point.series] += point.value  # type: ignore[assignment]
                values.update(last)
            silent_ns = newest.time_ns + 3 * newest.interval_ms * 1_000_000
            later = [m for m in own if m > minute]
            for m in range(minute, END):
                carried = m * MINUTE_NS <= silent_ns and not newest.terminating and (later or m <= closed)
                if m == minute or (carried and m < min(later, default=END)):
                    for series, value in values.items():
                        sums[m, series] += value  # type: ignore[assignment]
            for series, rule in RULE_OF.items():
                by_entry = [[p.value for p in e.points if p.series == series] for e in minute_entries]
                there = [values for values in by_entry if values]
                every = [value for values in there for value in values]
                if there and rule == RATE:
                    sums[minute, series] += sum(every) / len(there)  # type: ignore[assignment]
                if there and rule == DISTRIBUTION:
                    sums[minute, series] += sum(every)  # type: ignore[assignment]
                    spread[minute, series, bucket(sum(every) / len(every))] += 1
    return {k: v for k, v in sums.items() if not math.isclose(v, 0, abs_tol=1e-9)}, dict(spread)


@settings(max_examples=150, deadline=None)
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
    sums, spread = oracle([entry for push in pushes for entry in push], max(closed, 18))
    assert store.total().keys() == sums.keys()
    for key, value in store.total().items():
        if RULE_OF[key[1]] == RATE:
            assert math.isclose(value, sums[key], abs_tol=1e-9)
        else:
            assert value == sums[key]
    assert store.observed() == spread


@settings(max_examples=150, deadline=None)
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
@example(
    pushes=[
        (0, 5_000, "push", False),
        (120, 5_000, "empty push", True),
        (60, 5_000, "push", False),
        (0, 5_000, "push", False),
    ]
)
def test_a_client_counts_at_most_once_in_a_minute(pushes: list[tuple[int, int, str, bool]]) -> None:
    """This holds for empty pushes and changing intervals too."""
    store, closed = Store(), 0
    entries = []
    for number, (second, interval_ms, kind, carrying) in enumerate(pushes):
        entry = Entry(
            time_ns=second * 1_000_000_000,
            push=str(number),
            points=() if "empty" in kind else (Point(1, 1.0, LAST),),
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
    assert set(total.values()) <= {1}
    own = {entry.minute for entry in entries if entry.points}
    assert {(minute, 1) for minute in own} <= total.keys()
    silent_ns = max(e.time_ns + 3 * e.interval_ms * 1_000_000 for e in entries)
    assert all(minute in own or minute * MINUTE_NS <= silent_ns for minute, _ in total)
    # Otherwise no later minute would be complete (progress.whole_until).
    state = store.clients[1]
    carry_to = (state.last_ns // 1_000_000 + 3 * state.push_interval_ms) // 60_000
    assert state.terminated or state.covered_until >= carry_to
