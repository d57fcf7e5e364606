"""Combines entries of one instance and minute, and computes corrections.

Each entry was added to the totals as if it were alone. If ``f`` combines the entries of a minute,
the correction is f(stored and new entries) - f(stored entries) - sum of f over the new entries.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

from spark_streaming.contributions.codec import COMBINED_ROW, DISTRIBUTION, LAST, RATE
from spark_streaming.contributions.corrections import Corrections, factorize
from spark_streaming.contributions.spread import spread_buckets

_MAX_WEIGHT: Final = np.iinfo(np.int32).max

Integers = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Points of pairs (instance and minute), and rows combined before."""

    pair: Integers
    """Index of the pair."""
    entry: Integers
    """Number of the point's entry, increasing with time within a pair. -1 for combined rows."""
    series: Integers
    fleet: Integers
    """Fleet series id."""
    value: Values
    flags: npt.NDArray[np.int8]
    """The decoder's flags."""
    weight: Integers
    """1 for a point, or the weight of the combined row."""
    stored: Mask
    """Whether it belongs to stored entries, which are in the totals already."""
    newest: Mask
    """Whether it belongs to the newest push of the pair."""
    carried: Mask
    """Whether the push has it in an earlier minute, so that this minute's totals lack it."""

    def concat(self, others: Parts) -> Parts:
        """Return these and other parts."""
        return Parts(
            **{
                f.name: np.concatenate((getattr(self, f.name), getattr(others, f.name)))
                for f in fields(Parts)
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """Combined entries: rows of ``COMBINED_ROW``, sorted by pair."""

    pair: Integers
    rows: npt.NDArray[np.void]


def combine(parts: Parts, minute: Integers, corrections: Corrections) -> Combined:
    """Combine entries, and add the differences to the corrections.

    - Rule last: the newest value of each series in the newest push. Values of one series at one
      time (partitions) are added. Series that the newest push lacks don't count in the minute.
    - Rule rate: the mean over the entries that have the series.
    - Rule distribution: one observation, the mean of all points. ``sum`` is not corrected.

    Args:
        minute: The minute of each pair.
    """
    series, series_at = factorize(parts.series)
    # Exact, because flags are less than 32.
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

    def sums(which: Mask) -> tuple[Values, Values]:
        # Without any, numpy returns integers.
        return (
            np.bincount(group[which], parts.value[which], size).astype(np.float64, copy=False),
            np.bincount(group[which], weight[which], size).astype(np.float64, copy=False),
        )

    def combined(total: Values, weight: Values) -> Values:
        return np.divide(total, weight, out=total.copy(), where=group_is_rate & (weight > 0))

    before, before_weight = sums(parts.stored)
    after, after_weight = sums(counts)
    alone, _ = sums(~parts.stored & ~parts.carried)
    change = combined(after, after_weight) - combined(before, before_weight) - alone

    def correct(at: Integers, **changes: Values | Integers | int) -> None:
        corrections.add(
            minute=minute[parts.pair[at]],
            series=parts.series[at],
            fleet=parts.fleet[at],
            flags=parts.flags[at],
            **changes,  # type: ignore[arg-type]
        )

    changed = ~group_is_distribution & (change != 0)
    correct(first[changed], total=change[changed])
    observed = np.flatnonzero(is_distribution & ~parts.stored)
    correct(observed, spread=spread_buckets(parts.value[observed]), observations=-1)
    for total, weights, observations in ((before, before_weight, -1), (after, after_weight, 1)):
        has_value = group_is_distribution & (weights > 0)
        mean = total[has_value] / weights[has_value]
        correct(first[has_value], spread=spread_buckets(mean), observations=observations)

    kept = np.flatnonzero(after_weight > 0)
    kept = kept[np.argsort(parts.pair[first[kept]], kind="stable")]
    rows = np.empty(len(kept), COMBINED_ROW)
    for name in ("series", "fleet", "flags"):
        rows[name] = getattr(parts, name)[first[kept]]
    rows["value"] = after[kept]
    # Clamped to 32 bits. A client can send more values in one minute, in a thousand pushes.
    rows["weight"] = np.minimum(np.where(is_last[first], 1, after_weight), _MAX_WEIGHT)[kept]
    return Combined(pair=parts.pair[first[kept]], rows=rows)
