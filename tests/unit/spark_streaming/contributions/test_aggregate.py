"""Aggregation of points, compared with plain sums."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_streaming.contributions.aggregate import aggregate
from spark_streaming.contributions.codec import PointColumns
from spark_streaming.rows import ROLLUP_ROWS, RULES
from tests.unit.spark_streaming.contributions.support import DISTRIBUTION, LAST, RATE, bucket

#: Entry, series, value. A series' number tells its rule, its fleet series, and whether it is a
#: breakdown.
Pushed = tuple[int, int, float]

_MINUTES = [7, -3, 7, 1 << 40]


def fleet_of(series: int) -> int:
    return series // 3 - (1 << 62)


def rule_of(series: int) -> int:
    return fleet_of(series) % len(RULES)


def is_breakdown(series: int) -> bool:
    return series % 3 == 2


def columns(points: Sequence[Pushed]) -> PointColumns:
    entry, series, value = zip(*points, strict=True) if points else ((), (), ())
    return PointColumns(
        entry=np.array(entry, np.int64),
        integers={
            "series": np.array(series, np.int64),
            "fleet": np.array([fleet_of(entry) for entry in series], np.int64),
        },
        value=np.array(value, np.float64),
        flags=np.array([rule_of(entry) | 16 * is_breakdown(entry) for entry in series], np.int8),
    )


_points = st.lists(
    st.tuples(
        st.integers(0, len(_MINUTES) - 1),
        st.integers(0, 40) | st.sampled_from([-(1 << 63), (1 << 63) - 1]),
        st.integers(-(10**6), 10**6).map(float),
    )
)


@settings(deadline=None)
@given(_points, _points)
def test_points_are_summed_by_series_and_counted_by_fleet_and_bucket(
    some: list[Pushed], others: list[Pushed]
) -> None:
    expected: dict[tuple[int, int], list[float]] = defaultdict(list)
    spread: Counter[tuple[int, int, int]] = Counter()
    for entry, series, value in [*some, *others]:
        expected[_MINUTES[entry], series].append(value)
        if rule_of(series) == DISTRIBUTION and not is_breakdown(series):
            spread[_MINUTES[entry], fleet_of(series), bucket(value)] += 1

    table = aggregate(np.array(_MINUTES), columns(some), columns(others))
    assert table.schema == ROLLUP_ROWS
    rows = table.to_pylist()
    assert all(row["fleet_id"] == fleet_of(row["series_id"]) for row in rows)
    totals = [row for row in rows if row["spread"] is None]
    assert len(totals) == len(expected)
    assert {
        (row["minute"], row["series_id"]): (row["points"], row["sum"], row["min"], row["max"])
        for row in totals
    } == {key: (len(values), sum(values), min(values), max(values)) for key, values in expected.items()}
    assert all(row["breakdown"] == is_breakdown(row["series_id"]) for row in totals)
    assert not any(row["observations"] for row in totals)
    # For averages, where corrections change the sum.
    for row in totals:
        is_corrected = rule_of(row["series_id"]) in (RATE, LAST)
        assert row["pushed_sum"] == (row["sum"] if is_corrected else None)
    counts = [row for row in rows if row["spread"] is not None]
    assert len(counts) == len(spread)
    assert {(row["minute"], row["fleet_id"], row["spread"]): row["observations"] for row in counts} == spread
    assert not any(row["breakdown"] or row["points"] or row["sum"] or row["min"] for row in counts)
    assert all(row["pushed_sum"] is None for row in counts)
