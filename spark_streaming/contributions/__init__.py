"""Reconciles a client's pushes: several or none in a minute, cumulative sums.

Pure: no I/O and no clock. State between batches is passed in and returned as values.
"""

from spark_streaming.contributions.codec import (
    HASHED_CUMULATIVE,
    HASHED_CUMULATIVE_HISTOGRAM,
    HASHED_POINT,
    HISTOGRAM_COUNT,
    HISTOGRAM_PART,
    LAST,
    CodecError,
    EncodedPoints,
    with_point,
)
from spark_streaming.contributions.ranges import MAX_RANGE_MINUTES
from spark_streaming.contributions.reconcile import reconcile, required_pairs, split_by_client
from spark_streaming.contributions.values import ClientState, Contribution, Reconciliation

__all__ = [
    "HASHED_CUMULATIVE",
    "HASHED_CUMULATIVE_HISTOGRAM",
    "HASHED_POINT",
    "HISTOGRAM_COUNT",
    "HISTOGRAM_PART",
    "LAST",
    "MAX_RANGE_MINUTES",
    "ClientState",
    "CodecError",
    "Contribution",
    "EncodedPoints",
    "Reconciliation",
    "reconcile",
    "required_pairs",
    "split_by_client",
    "with_point",
]
