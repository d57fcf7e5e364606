"""Replaces the series hashes of a batch by ids.

The decoder hashes the dimensions of each point's series with the database's key, to 128 bits. The
database assigns an id to each hash. Points of a series that it has not are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession

from spark_streaming.contributions import (
    HASHED_CUMULATIVE,
    HASHED_CUMULATIVE_HISTOGRAM,
    HASHED_POINT,
    EncodedPoints,
)
from spark_streaming.contributions.corrections import factorize
from spark_streaming.postgres import IdKey

Integers = npt.NDArray[np.int64]
#: Maps the halves of distinct hashes to the ids of series and of fleet series, in the same order.
Ids = Callable[[Integers, Integers], tuple[Integers, Integers]]

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
    entries: pa.Table, histograms: pa.Table, buckets: pa.Table, ids: Ids
) -> tuple[pa.Table, pa.Table, pa.Table, int]:
    """Return entries, histograms and buckets with ids in place of hashes.

    Also returns the number of data points that are left out, because their series has
    :data:`NOT_ADDED` instead of an id.

    Args:
        entries: ``ENTRY_ROWS`` as the decoder encodes them.
        histograms: ``ROLLUP_ROWS``, with ``series_high`` and ``series_low`` instead of the ids.
        buckets: ``BUCKET_ROWS``, in the same way.
        ids: Called once with the distinct hashes.
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
    # A histogram's parts are no data points of their own.
    names = [*encoded, "histograms"]
    left_out = [
        int((~stay).sum())
        for name, (_, _, stay) in zip(names, parts, strict=False)
        if name != "cumulative_histograms"
    ]
    return entries, histograms, buckets, sum(left_out)
