"""Onsets of conditions from the evidence of minutes."""

from __future__ import annotations

from math import inf
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_streaming.findings.change_point import Bucket, Onset, Points, Run, last_minute, onset, runs, spells
from tests.exploration import examples

#: Two minutes of 15 are needed, and it empties in 30.
COUNTS: Final = Bucket(leak=1 / 30, window=15)
VALUES: Final = Bucket(leak=0.0, window=15)


def found(points: Points, bucket: Bucket = COUNTS, *, end: int = 200, level: float = 0.0) -> list[Run]:
    return runs(points, bucket, start=0, end=end, level=level)


def test_evidence_that_continues_is_one_run() -> None:
    (run,) = found([(100, 0.5), (110, 0.5), (120, 0.5)])
    assert (run.began, run.last) == (100, 120)
    assert run.drained == pytest.approx(145)


def test_a_bucket_that_was_empty_begins_another_run() -> None:
    assert [(run.began, run.last) for run in found([(10, 0.5), (26, 0.5), (190, 0.5)])] == [
        (10, 10),
        (26, 26),
        (190, 190),
    ]


def test_a_bucket_holds_no_more_than_a_window_needs() -> None:
    """Hours of throttling are over half an hour after their end."""
    throttled = [(minute, 0.5) for minute in range(100)]
    (run,) = found(throttled)
    assert run.drained == pytest.approx(129)


def test_values_of_minutes_count_for_the_time_since_the_value_before() -> None:
    every_minute = [(minute, 0.2) for minute in range(10)] + [(minute, -1.0) for minute in range(10, 20)]
    every_five = [(minute, 0.2) for minute in range(0, 50, 5)] + [
        (minute, -1.0) for minute in range(50, 99, 5)
    ]
    assert found(every_minute, VALUES) == [Run(0, 9, 11)]
    assert found(every_five, VALUES) == [Run(0, 45, 55)]


def test_a_member_without_data_for_a_window_shows_nothing() -> None:
    assert found([(10, 1.0), (11, 1.0), (30, 1.0)], VALUES, end=40) == [Run(10, 11, 26), Run(30, 30, inf)]


def test_the_past_before_the_data_may_go_on() -> None:
    points = [(5, 0.5), (10, 0.5)]
    assert found(points, level=1.0)[0].began == -inf
    assert onset([points], COUNTS, start=0, end=12) == Onset(5, 10, is_certain=False)
    assert onset([[(minute + 60, amount) for minute, amount in points]], COUNTS, start=0, end=72) == Onset(
        65, 70, is_certain=True
    )


def test_members_that_overlap_are_one_spell() -> None:
    assert spells([[Run(1, 5, 9), Run(30, 31, inf)], [Run(8, 9, 12)], [Run(13, 14, 15)]]) == [
        Run(1, 9, 12),
        Run(13, 14, 15),
        Run(30, 31, inf),
    ]


def test_the_last_minute_is_that_of_the_run_that_began_then() -> None:
    points = [(10, 0.5), (12, 0.5), (100, 0.5)]
    assert last_minute([points], COUNTS, began=10, start=0, end=200) == 12
    assert last_minute([points], COUNTS, began=-50, start=0, end=200) == 12
    assert last_minute([points], COUNTS, began=70, start=0, end=200) is None


POINTS = st.lists(
    st.tuples(st.integers(0, 500), st.sampled_from([0.1, 0.5, 1.0, -0.3])),
    max_size=40,
    unique_by=lambda point: point[0],
).map(sorted)


@settings(max_examples=examples(200))
@given(before=POINTS, after=POINTS, bucket=st.sampled_from([COUNTS, VALUES]))
def test_a_certain_onset_stays_whatever_happened_before(
    before: Points, after: Points, bucket: Bucket
) -> None:
    points = [(minute + 501, amount) for minute, amount in after]
    known = onset([points], bucket, start=501, end=1001)
    if known is not None and known.is_certain:
        assert onset([[*before, *points]], bucket, start=0, end=1001) == known
