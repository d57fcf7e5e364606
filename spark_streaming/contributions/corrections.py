"""Collects corrections and sums them into few rows."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_streaming.contributions.codec import BREAKDOWN
from spark_streaming.rows import ROLLUP_ROWS

Integers = npt.NDArray[np.int64]

#: Marks a row without a spread bucket.
_NO_SPREAD: Final = 1 << 16
_LOWEST: Final = -(1 << 15)


def factorize(values: Integers) -> tuple[Integers, Integers]:
    """Number distinct values in the order of their first occurrence.

    Returns the number of each value, and the first index of each number.
    """
    encoded = pa.array(values).dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    first = np.empty(len(encoded.dictionary), np.int64)
    first[codes[::-1]] = np.arange(len(values) - 1, -1, -1)
    return codes, first


class Corrections:
    """Corrections of many clients, summed by minute, series and spread bucket."""

    def __init__(self) -> None:
        self._columns: list[tuple[npt.NDArray[np.generic], ...]] = []

    def add(
        self,
        *,
        minute: Integers,
        series: Integers,
        fleet: Integers,
        flags: npt.NDArray[np.int8],
        total: npt.NDArray[np.float64] | None = None,
        points: Integers | None = None,
        spread: Integers | None = None,
        observations: int = 0,
    ) -> None:
        """Add one correction for each element of the arrays.

        Args:
            total: Added to ``sum``; NaN makes it null.
            points: Added to ``points``.
            observations: 1 or -1 with ``spread``.
        """
        size = len(minute)
        self._columns.append(
            (
                minute,
                series,
                fleet,
                (flags & BREAKDOWN) != 0,
                np.full(size, _NO_SPREAD) if spread is None else spread,
                np.zeros(size, np.int64) if points is None else points,
                np.zeros(size) if total is None else total,
                np.full(size, observations),
            )
        )

    def table(self) -> pa.Table:
        """Return ``ROLLUP_ROWS``, one for each minute, series and bucket with a change."""
        if not self._columns:
            return ROLLUP_ROWS.empty_table()
        minute, series, fleet, breakdown, spread, points, total, observations = map(
            np.concatenate, zip(*self._columns, strict=True)
        )
        (minutes, _), (numbers, distinct) = factorize(minute), factorize(series)
        # Exact, because there are fewer than 2 ** 18 buckets and 2 ** 45 minutes times series.
        group, first = factorize(((minutes * len(distinct) + numbers) << 18) + spread - _LOWEST)
        points, observations = (
            np.bincount(group, weights, len(first)).astype(np.int64) for weights in (points, observations)
        )
        total = np.bincount(group, total, len(first))
        changes = (points != 0) | (total != 0) | (observations != 0)
        first, points, total, observations = (x[changes] for x in (first, points, total, observations))
        size = len(first)
        return pa.table(
            [
                minute[first],
                series[first],
                fleet[first],
                breakdown[first],
                pa.array(
                    spread[first].clip(_LOWEST, -_LOWEST - 1).astype(np.int16),
                    mask=spread[first] == _NO_SPREAD,
                ),
                points,
                pa.array(total, mask=np.isnan(total)),
                pa.nulls(size, pa.float64()),
                pa.nulls(size, pa.float64()),
                observations,
                pa.nulls(size, pa.float64()),
            ],
            schema=ROLLUP_ROWS,
        )
