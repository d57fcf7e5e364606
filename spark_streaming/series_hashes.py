"""Owns the way from the hashes of a batch's series, of 128 bits, to ids that sums are made by.

The decoder hashes the dimensions of each point's series by the database's key. The database assigns ids to
the hashes. This module must not know where ids are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession

from spark_streaming.contributions import HASHED_CUMULATIVE, HASHED_POINT, EncodedPoints
from spark_streaming.postgres import IdKey

__all__ = ["HashedBatch", "Ids", "distinct", "register_key"]

Integers = npt.NDArray[np.int64]
#: Gives the ids of series and of fleet series by the halves of distinct hashes, in their order.
Ids = Callable[[Integers, Integers], tuple[Integers, Integers]]

_PACKED = {"gauges": HASHED_POINT, "added": HASHED_POINT, "cumulative": HASHED_CUMULATIVE}


def register_key(spark: SparkSession, key: IdKey) -> None:
    """Give the decoder's functions a key, which their last argument then names by its ``key_id``.

    It goes to the driver's process only. Tasks carry it, but no plan and no page of Spark shows it.

    Args:
        spark: The session.
        key: The key of the database.
    """
    jvm = spark._jvm  # noqa: SLF001 -- there is no public way to a class of the session's jars
    jvm.kafkaclienttelemetry.rollup.IdKey.register(key.key_id, key.secret)  # type: ignore[union-attr]


def distinct(high: Integers, low: Integers) -> tuple[Integers, Integers]:
    """Number hashes.

    Args:
        high: Their first halves.
        low: Their second halves.

    Returns:
        The number of each, and for each number a position at which its hash is.
    """
    encoded = pa.array(high).dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    first = np.empty(len(encoded.dictionary), np.int64)
    first[codes[::-1]] = np.arange(len(high) - 1, -1, -1)
    if np.array_equal(low, low[first][codes]):
        return codes, first
    # Two hashes share a half, once in 2 ** 64 pairs: both halves are compared, which takes a sort.
    halves = np.stack((high, low), axis=1)
    _, first, codes = np.unique(halves, axis=0, return_index=True, return_inverse=True)
    return codes.reshape(-1).astype(np.int64), first.astype(np.int64)


@dataclass(slots=True)
class HashedBatch:
    """A batch's entries and histograms, whose series are hashes.

    Args:
        entries: ``ENTRY_ROWS`` with the decoder's packed points.
        histograms: ``ROLLUP_ROWS``, with ``series_high`` and ``series_low`` instead of the ids.
        buckets: ``BUCKET_ROWS``, the same.
    """

    entries: pa.Table
    histograms: pa.Table
    buckets: pa.Table

    def with_ids(self, ids: Ids) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Put ids in the place of hashes.

        Args:
            ids: Is called once, with each hash once.

        Returns:
            The entries, histograms and buckets.
        """
        packed = {
            name: EncodedPoints([blob or b"" for blob in self.entries[name].to_pylist()], columns)
            for name, columns in _PACKED.items()
        }
        tables = [self.histograms, self.buckets]
        halves = [
            *(points.hashes() for points in packed.values()),
            *((table["series_high"].to_numpy(), table["series_low"].to_numpy()) for table in tables),
        ]
        high, low = (np.concatenate(column) for column in zip(*halves, strict=True))
        codes, first = distinct(high, low)
        series, fleet = (found[codes] for found in ids(high[first], low[first]))
        bounds = np.cumsum([len(half) for half, _ in halves])[:-1]
        parts = list(zip(np.split(series, bounds), np.split(fleet, bounds), strict=True))

        entries = self.entries
        for (name, points), (of_series, of_fleets) in zip(packed.items(), parts, strict=False):
            blobs = pa.array(points.with_ids(of_series, of_fleets), pa.binary())
            entries = entries.set_column(entries.schema.get_field_index(name), entries.field(name), blobs)
        histograms, buckets = (
            table.append_column("series_id", pa.array(of_series)).append_column(
                "fleet_id", pa.array(of_fleets)
            )
            for table, (of_series, of_fleets) in zip(tables, parts[len(packed) :], strict=True)
        )
        return entries, histograms, buckets
