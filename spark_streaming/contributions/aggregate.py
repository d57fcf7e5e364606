"""Aggregates points by minute and series, without regard to other pushes."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_streaming.contributions.codec import BREAKDOWN, DISTRIBUTION, LAST, RATE, PointColumns
from spark_streaming.contributions.corrections import factorize
from spark_streaming.contributions.spread import spread_buckets
from spark_streaming.rows import ROLLUP_ROWS

Integers = npt.NDArray[np.int64]

_BUCKETS: Final = 1 << 16


def aggregate(minute: Integers, *points: PointColumns) -> pa.Table:
    """Aggregate points by minute and series, and distributions by spread bucket.

    Args:
        minute: The minute of each entry.
        points: Points of these entries, with the columns ``series`` and ``fleet``.

    Returns:
        ``ROLLUP_ROWS``: one without a spread for each minute and series, and one with only
            observations for each minute, fleet series and bucket. The latter has any one series of
            the fleet. Breakdowns have no spread, because their points are also counted elsewhere.
    """
    minutes = np.concatenate([minute[point.entry] for point in points])
    series, fleet = (
        np.concatenate([point.integers[name] for point in points]) for name in ("series", "fleet")
    )
    value = np.concatenate([point.value for point in points])
    flags = np.concatenate([point.flags for point in points])
    minute_codes, _ = factorize(minutes)

    series_codes, distinct = factorize(series)
    group, first = factorize(minute_codes * len(distinct) + series_codes)
    size = len(first)
    least, greatest = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(least, group, value)
    np.maximum.at(greatest, group, value)
    total = np.bincount(group, value, size).astype(np.float64, copy=False)
    rule = flags[first] & 15
    is_corrected = (rule == RATE) | (rule == LAST)
    totals = pa.table(
        [
            minutes[first],
            series[first],
            fleet[first],
            (flags[first] & BREAKDOWN) != 0,
            pa.nulls(size, pa.int16()),
            np.bincount(group, minlength=size),
            total,
            least,
            greatest,
            np.zeros(size, np.int64),
            pa.array(total, mask=~is_corrected),
        ],
        schema=ROLLUP_ROWS,
    )

    at = np.flatnonzero(flags & (15 | BREAKDOWN) == DISTRIBUTION)
    bucket = spread_buckets(value[at])
    fleet_codes, distinct = factorize(fleet[at])
    # Exact, because a bucket has 16 bits, and there are fewer than 2 ** 47 minutes times series.
    group, first = factorize((minute_codes[at] * len(distinct) + fleet_codes) * _BUCKETS + bucket)
    size, example = len(first), at[first]
    spreads = pa.table(
        [
            minutes[example],
            series[example],
            fleet[example],
            np.zeros(size, np.bool_),
            bucket[first].astype(np.int16),
            np.zeros(size, np.int64),
            np.zeros(size),
            pa.nulls(size, pa.float64()),
            pa.nulls(size, pa.float64()),
            np.bincount(group, minlength=size),
            pa.nulls(size, pa.float64()),
        ],
        schema=ROLLUP_ROWS,
    )
    return pa.concat_tables([totals, spreads])
