"""Owns what several entries of one instance come to in one minute, and what that changes.

Each entry was added to the totals as if it were alone. With ``f`` for what a minute's entries come to, the
correction is f(stored and new entries) - f(stored entries) - the sum of f over the new entries.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

from spark_streaming.contributions.codec import COMBINED_ROW, DISTRIBUTION, LAST, RATE
from spark_streaming.contributions.corrections import Corrections, factorize
from spark_streaming.contributions.spread import spread_buckets

__all__ = ["Combined", "Parts", "combine"]

_MOST_WEIGHT: Final = np.iinfo(np.int32).max

Integers = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What minutes of instances are made of: points, and rows of entries combined before.

    Attributes:
        pair: The position of the instance and minute.
        entry: The entry of a point: newer ones of a pair have higher numbers; -1 for combined rows.
        series: The series.
        fleet: The fleet series.
        value: The point's value, or the combined one.
        flags: The decoder's flags.
        weight: 1 for a point; that of the row for combined ones.
        held: It is in the totals already, as stored entries' share.
        newest: It is of the pair's newest push.
    """

    pair: Integers
    entry: Integers
    series: Integers
    fleet: Integers
    value: Values
    flags: npt.NDArray[np.int8]
    weight: Integers
    held: Mask
    newest: Mask

    def and_also(self, others: Parts) -> Parts:
        """Gives these and other parts."""
        return Parts(
            **{
                f.name: np.concatenate((getattr(self, f.name), getattr(others, f.name)))
                for f in fields(Parts)
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """What pairs come to: rows of ``COMBINED_ROW``, in the order of their pairs."""

    pair: Integers
    rows: npt.NDArray[np.void]


def combine(parts: Parts, minute: Integers, corrections: Corrections) -> Combined:
    """Combines entries, and adds what that changes to the corrections.

    - Rule last: the newest push counts, and in it the newest value of each series; values of one series at
      one time (partitions) add up. A series that it lacks doesn't count in the minute.
    - Rule rate: the mean over the entries that have the series.
    - Rule distribution: one observation, the mean of all points; ``sum`` stays as it is.

    Args:
        parts: All parts of the pairs.
        minute: The minute of each pair.
        corrections: Where corrections go.
    """
    series, series_at = factorize(parts.series)
    # 32 is more than any flags: the key is exact.
    group, first = factorize((parts.pair * len(series_at) + series) * 32 + parts.flags)
    size = len(first)
    rule = parts.flags & 15
    is_rate, is_last, is_distribution = rule == RATE, rule == LAST, rule == DISTRIBUTION

    weight = parts.weight.copy()
    points_of_rates = np.flatnonzero(is_rate & (parts.entry >= 0))
    entries = int(parts.entry.max(initial=-1)) + 1
    repeated = np.ones(len(points_of_rates), np.bool_)
    repeated[factorize(group[points_of_rates] * entries + parts.entry[points_of_rates])[1]] = False
    weight[points_of_rates[repeated]] = 0

    latest = np.full(size, -1)
    candidates = is_last & parts.newest
    np.maximum.at(latest, group[candidates], parts.entry[candidates])
    counts = ~is_last | (candidates & (parts.entry == latest[group]))

    group_is_rate, group_is_distribution = is_rate[first], is_distribution[first]

    def added_up(which: Mask) -> tuple[Values, Values]:
        # Without any, numpy counts in integers.
        return (
            np.bincount(group[which], parts.value[which], size).astype(np.float64, copy=False),
            np.bincount(group[which], weight[which], size).astype(np.float64, copy=False),
        )

    def comes_to(total: Values, weight: Values) -> Values:
        return np.divide(total, weight, out=total.copy(), where=group_is_rate & (weight > 0))

    before, before_weight = added_up(parts.held)
    after, after_weight = added_up(counts)
    alone, _ = added_up(~parts.held)
    change = comes_to(after, after_weight) - comes_to(before, before_weight) - alone

    def correct(at: Integers, **what: Values | Integers | int) -> None:
        corrections.add(
            minute=minute[parts.pair[at]],
            series=parts.series[at],
            fleet=parts.fleet[at],
            flags=parts.flags[at],
            **what,  # type: ignore[arg-type]
        )

    changed = ~group_is_distribution & (change != 0)
    correct(first[changed], total=change[changed])
    observed = np.flatnonzero(is_distribution & ~parts.held)
    correct(observed, spread=spread_buckets(parts.value[observed]), observations=-1)
    for total, weights, observations in ((before, before_weight, -1), (after, after_weight, 1)):
        there = group_is_distribution & (weights > 0)
        correct(first[there], spread=spread_buckets(total[there] / weights[there]), observations=observations)

    kept = np.flatnonzero(after_weight > 0)
    kept = kept[np.argsort(parts.pair[first[kept]], kind="stable")]
    rows = np.empty(len(kept), COMBINED_ROW)
    for name in ("series", "fleet", "flags"):
        rows[name] = getattr(parts, name)[first[kept]]
    rows["value"] = after[kept]
    # 32 bits: a client can say a value more often than that in one minute, in a thousand pushes.
    rows["weight"] = np.minimum(np.where(is_last[first], 1, after_weight), _MOST_WEIGHT)[kept]
    return Combined(pair=parts.pair[first[kept]], rows=rows)
