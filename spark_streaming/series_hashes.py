"""Replaces the series hashes of a batch by ids.

The decoder hashes the dimensions of each point's series with the database's key, to 128 bits. The
database assigns an id to each hash. Points of a series that it has not are counted in another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession

from spark_streaming.contributions import (
    HASHED_CUMULATIVE,
    HASHED_CUMULATIVE_HISTOGRAM,
    HASHED_POINT,
    HISTOGRAM_COUNT,
    HISTOGRAM_PART,
    LAST,
    EncodedPoints,
    with_point,
)
from spark_streaming.contributions.corrections import factorize
from spark_streaming.postgres import IdKey

Integers = npt.NDArray[np.int64]
#: Maps the halves of distinct hashes to the ids of series and of fleet series, in the same order.
Ids = Callable[[Integers, Integers], tuple[Integers, Integers]]

#: Maps entries to the ids of their clients' overflow series and of its fleet series.
Overflow = Callable[[pa.Table], tuple[Integers, Integers]]
Stays = npt.NDArray[np.bool_]

#: In place of the id of a series that was not added.
NOT_ADDED: Final = -1

_HASHED_COLUMNS = {
    "gauges": HASHED_POINT,
    "added": HASHED_POINT,
    "cumulative": HASHED_CUMULATIVE,
    "cumulative_histograms": HASHED_CUMULATIVE_HISTOGRAM,
}


def register_key(spark: SparkSession, key: IdKey) -> None:
    """Register a key with the decoder, whose functions refer to it by its ``key_id``.

    The driver keeps the secret and sends it to executors in tasks. Plans and Spark's pages don't
    show it.
    """
    jvm = spark._jvm  # noqa: SLF001 -- no public API
    jvm.kafkaclienttelemetry.rollup.IdKey.register(key.key_id, key.secret)  # type: ignore[union-attr]


def distinct(high: Integers, low: Integers) -> tuple[Integers, Integers]:
    """Number the distinct hashes.

    Returns the number of each hash, and an index of a hash for each number.
    """
    codes, first = factorize(high)
    if np.array_equal(low, low[first][codes]):
        return codes, first
    # Different hashes share a first half, once in 2 ** 64 pairs. Comparing both takes a sort.
    halves = np.stack((high, low), axis=1)
    _, first, codes = np.unique(halves, axis=0, return_index=True, return_inverse=True)
    return codes.reshape(-1).astype(np.int64), first.astype(np.int64)


def replace_hashes(
    entries: pa.Table, histograms: pa.Table, buckets: pa.Table, ids: Ids, overflow: Overflow
) -> tuple[pa.Table, pa.Table, pa.Table, int]:
    """Return entries, histograms and buckets with ids in place of hashes.

    Points of series with :data:`NOT_ADDED` instead of an id are left out. Each entry that loses
    some gets a point of its client's overflow series: their number, without histograms of deltas,
    which belong to no entry. Also returns the number of all.

    Args:
        entries: ``ENTRY_ROWS`` as the decoder encodes them.
        histograms: ``ROLLUP_ROWS``, with ``series_high`` and ``series_low`` instead of the ids.
        buckets: ``BUCKET_ROWS``, in the same way.
        ids: Called once with the distinct hashes.
        overflow: Called at most once.
    """
    encoded = {
        name: EncodedPoints([blob or b"" for blob in entries[name].to_pylist()], columns)
        for name, columns in _HASHED_COLUMNS.items()
    }
    tables = [histograms, buckets]
    halves = [
        *(points.hashes() for points in encoded.values()),
        *((table["series_high"].to_numpy(), table["series_low"].to_numpy()) for table in tables),
    ]
    high, low = (np.concatenate(column) for column in zip(*halves, strict=True))
    codes, first = distinct(high, low)
    series, fleet = (found[codes] for found in ids(high[first], low[first]))
    bounds = np.cumsum([len(half) for half, _ in halves])[:-1]
    kept = series != NOT_ADDED
    parts = list(zip(*(np.split(column, bounds) for column in (series, fleet, kept)), strict=True))
    all_kept = bool(kept.all())

    for (name, points), (series_ids, fleet_ids, stay) in zip(encoded.items(), parts, strict=False):
        blobs = pa.array(points.with_ids(series_ids, fleet_ids, None if all_kept else stay), pa.binary())
        entries = entries.set_column(entries.schema.get_field_index(name), entries.field(name), blobs)
    histograms, buckets = (
        table.append_column("series_id", pa.array(series_ids)).append_column("fleet_id", pa.array(fleet_ids))
        for table, (series_ids, fleet_ids, _) in zip(tables, parts[len(encoded) :], strict=True)
    )
    if all_kept:
        return entries, histograms, buckets, 0
    histograms, buckets = (
        table.filter(pa.array(stay))
        for table, (_, _, stay) in zip((histograms, buckets), parts[len(encoded) :], strict=True)
    )
    stays = [stay for _, _, stay in parts]
    left_out = _left_out(encoded, stays, entries.num_rows)
    total = int(left_out.sum()) + int((~stays[len(encoded)]).sum())
    return _with_overflow(entries, left_out, overflow), histograms, buckets, total


def _left_out(encoded: Mapping[str, EncodedPoints], stays: Sequence[Stays], entries: int) -> Integers:
    """Return how many data points each entry lost. The parts of a histogram are one."""
    left_out = np.zeros(entries, np.int64)
    for points, stay in zip(encoded.values(), stays, strict=False):
        if stay.all():
            continue
        part = points.flags() & HISTOGRAM_PART
        counts = ~stay & ((part == 0) | (part == HISTOGRAM_COUNT))
        left_out += np.bincount(points.entries()[counts], minlength=entries)
    return left_out


def _with_overflow(entries: pa.Table, left_out: Integers, overflow: Overflow) -> pa.Table:
    rows = np.flatnonzero(left_out)
    if not len(rows):
        return entries
    series, fleet = overflow(entries.take(pa.array(rows)))
    blobs = [blob or b"" for blob in entries["gauges"].to_pylist()]
    for row, *ids in zip(rows.tolist(), series.tolist(), fleet.tolist(), strict=True):
        if ids[0] != NOT_ADDED:
            blobs[row] = with_point(blobs[row], ids, left_out[row], LAST)
    at = entries.schema.get_field_index("gauges")
    return entries.set_column(at, entries.field(at), pa.array(blobs, pa.binary()))
