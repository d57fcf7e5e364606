"""Converts cumulative sums and histograms to their growth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_streaming.contributions.codec import (
    CUMULATIVE,
    CUMULATIVE_HISTOGRAM,
    CUMULATIVE_ROW,
    HISTOGRAM_BUCKET,
    HISTOGRAM_COUNT,
    HISTOGRAM_PART,
    HISTOGRAM_SUM,
    decode_cumulative,
    decode_points,
    encode_cumulative,
)
from spark_streaming.contributions.corrections import Corrections
from spark_streaming.contributions.values import ClientState
from spark_streaming.rows import BUCKET_ROWS

#: Cumulative sums and parts of histograms stored for one client. If there are more, the oldest are
#: dropped. A consumer of 1,000 partitions has about 3,000.
MAX_IDENTITIES: Final = 10_000

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def reconcile_cumulative(
    blobs: Sequence[bytes],
    histograms: Sequence[bytes],
    *,
    client: Integers,
    minute: Integers,
    push_interval_ms: Integers,
    clients: Mapping[int, ClientState],
    corrections: Corrections,
) -> tuple[dict[int, bytes], pa.Table]:
    """Add the growth of cumulative sums and histograms to the corrections.

    It has no min and max. The points of an identity (metric and all attributes, of histograms also
    their bounds) are processed in order of time. A point adds

    - its value minus the previous one if both have the same start time;
    - its value if it has a later start time or is smaller, because the sum was reset;
    - nothing if it is not newer than the previous one, because the newer one contains its growth;
    - its value if it is the first and started within 1.5 push intervals before, else nothing,
      because it is unknown when it grew.

    A histogram is several such sums: its count, its sum, which is NaN if it has none, and its
    buckets that are not empty. So a bucket that appears in a known histogram grew from 0.

    Growth is never counted twice, whatever the order of arrival. The order decides which minute
    gets it. Resets and first values in late points are lost.

    Args:
        blobs: The decoder's cumulative points of each entry.
        minute: Minute of each entry.
        push_interval_ms: Push interval of each entry.

    Returns:
        The encoded sums to store, by client, and ``BUCKET_ROWS``.

    Raises:
        CodecError: Bytes of another version.
    """
    points = _points(blobs, histograms)
    size = len(points.entry)
    if not size:
        return {}, BUCKET_ROWS.empty_table()
    keys = np.unique(client[points.entry])
    stored = [decode_cumulative(clients[key].cumulative) if key in clients else b"" for key in keys.tolist()]
    known = np.frombuffer(b"".join(stored), CUMULATIVE_ROW)
    known_sizes = np.array([len(rows) // CUMULATIVE_ROW.itemsize for rows in stored])
    known_owner = np.repeat(np.arange(len(keys)), known_sizes)

    def joined(name: str, column: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.concatenate((known[name], column))

    point_owner = np.searchsorted(keys, client[points.entry])
    owner = np.concatenate((known_owner, point_owner))
    high, low, start, time = (
        joined(x, points.integers[x]) for x in ("identity_high", "identity_low", "start_ns", "time_ns")
    )
    value = joined("value", points.value)
    point = np.concatenate((np.full(len(known), -1), np.arange(size)))

    # The stored value comes first. Points that are not newer than it are late.
    order = np.lexsort((time, point >= 0, low, high, owner))
    begins = _changes(owner[order], high[order], low[order])
    floor = np.where(point[order] < 0, time[order], np.iinfo(np.int64).min)[begins][np.cumsum(begins) - 1]
    in_time = (point[order] < 0) | (time[order] > floor)
    in_time[1:] &= begins[1:] | (time[order][1:] != time[order][:-1]) | (point[order][:-1] < 0)
    order = order[in_time]

    begins = _changes(owner[order], high[order], low[order])
    before, at = order[:-1], order[1:]
    growth = np.zeros(len(order))
    reset = (start[at] > start[before]) | (value[at] < value[before])
    growth[1:] = np.where(reset, value[at], value[at] - value[before])
    initial = order[begins]
    entry = points.entry[point[initial]]
    is_recent = time[initial] - start[initial] <= 1_500_000 * push_interval_ms[entry]
    counts = (is_recent & (start[initial] > 0)) | _appeared(
        points.flags, point[order], begins, (known_sizes < MAX_IDENTITIES)[owner[initial]]
    )
    growth[begins] = np.where(counts, value[initial], 0.0)

    total = np.zeros(size)
    is_point = point[order] >= 0
    total[point[order][is_point]] = growth[is_point]
    buckets = _add(points, total, minute, corrections)
    ends = order[np.append(begins[1:], [True])]
    return _encode(keys, owner[ends], high[ends], low[ends], start[ends], time[ends], value[ends]), buckets


@dataclass(frozen=True, slots=True, kw_only=True)
class _Points:
    """Cumulative sums, then the parts of histograms: of each its count first."""

    entry: Integers
    integers: dict[str, Integers]
    value: npt.NDArray[np.float64]
    flags: npt.NDArray[np.int8]


def _points(blobs: Sequence[bytes], histograms: Sequence[bytes]) -> _Points:
    sums, parts = decode_points(blobs, CUMULATIVE), decode_points(histograms, CUMULATIVE_HISTOGRAM)
    none = np.zeros(len(sums.entry), np.int64)
    return _Points(
        entry=np.concatenate((sums.entry, parts.entry)),
        integers={
            name: np.concatenate((sums.integers.get(name, none), column))
            for name, column in parts.integers.items()
        },
        value=np.concatenate((sums.value, parts.value)),
        flags=np.concatenate((sums.flags, parts.flags)),
    )


def _appeared(flags: npt.NDArray[np.int8], point: Integers, begins: Mask, all_known: Mask) -> Mask:
    """Return which first values are of a new bucket of a histogram known before.

    Args:
        flags: Of each point.
        point: Each value's point in order of time, -1 for a stored one.
        begins: Which values are the first ones of their identity.
        all_known: For each first value, whether no other one of its client was dropped.
    """
    continues = np.zeros(len(flags), np.bool_)
    later = point[~begins]
    continues[later[later >= 0]] = True
    first = point[begins]
    is_bucket = (first >= 0) & (flags[first] & HISTOGRAM_PART == HISTOGRAM_BUCKET)
    return np.asarray(is_bucket & continues[_counts(flags)[first]] & all_known, np.bool_)


def _counts(flags: npt.NDArray[np.int8]) -> Integers:
    """Return the index of the count of each part's histogram."""
    is_count = flags & HISTOGRAM_PART == HISTOGRAM_COUNT
    return np.maximum.accumulate(np.where(is_count, np.arange(len(flags)), -1))


def _add(
    points: _Points, total: npt.NDArray[np.float64], minute: Integers, corrections: Corrections
) -> pa.Table:
    """Add the growth of sums, counts and sums of histograms; return that of buckets."""
    part = points.flags & HISTOGRAM_PART
    minutes = minute[points.entry]
    # Without a new observation there is no new sum, also if it is NaN.
    total = np.where((part == HISTOGRAM_SUM) & (total[_counts(points.flags)] == 0), 0.0, total)
    for kind in (0, HISTOGRAM_COUNT, HISTOGRAM_SUM):
        at = np.flatnonzero(part == kind)
        if not len(at):
            continue
        ones = np.ones(len(at), np.int64) if kind == 0 else None
        corrections.add(
            minute=minutes[at],
            series=points.integers["series"][at],
            fleet=points.integers["fleet"][at],
            flags=points.flags[at],
            total=None if kind == HISTOGRAM_COUNT else total[at],
            points=total[at].astype(np.int64) if kind == HISTOGRAM_COUNT else ones,
        )
    at = np.flatnonzero((part == HISTOGRAM_BUCKET) & (total > 0))
    bounds = {name: points.integers[name][at].view(np.float64) for name in ("lower", "upper")}
    return pa.table(
        {
            "minute": minutes[at],
            "series_id": points.integers["series"][at],
            **bounds,
            "count": total[at].astype(np.int64),
        },
        schema=BUCKET_ROWS,
    )


def _encode(keys: Integers, owner: Integers, *columns: npt.NDArray[np.generic]) -> dict[int, bytes]:
    rows = np.empty(len(owner), CUMULATIVE_ROW)
    for name, column in zip(CUMULATIVE_ROW.names or (), columns, strict=True):
        rows[name] = column
    bounds = np.searchsorted(owner, np.arange(len(keys) + 1)).tolist()
    encoded = {}
    for key, begin, end in zip(keys.tolist(), bounds[:-1], bounds[1:], strict=True):
        own = rows[begin:end]
        if len(own) > MAX_IDENTITIES:
            own = own[np.argsort(own["time_ns"], kind="stable")[-MAX_IDENTITIES:]]
        encoded[key] = encode_cumulative(own.tobytes())
    return encoded


def _changes(*columns: npt.NDArray[np.generic]) -> Mask:
    """Return a mask of the rows that differ from the previous one."""
    begins = np.ones(len(columns[0]), np.bool_)
    begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return begins
