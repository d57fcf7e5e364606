"""Owns what depends on a client's other pushes: several in a minute, none in a minute, growing sums.

Pure: no input or output, no clock. What has to be remembered between batches goes in and out as values.
"""

from spark_streaming.contributions.codec import HASHED_CUMULATIVE, HASHED_POINT, CodecError, EncodedPoints
from spark_streaming.contributions.reconcile import reconcile, required_pairs, split_by_client
from spark_streaming.contributions.values import ClientState, Contribution, Reconciliation

__all__ = [
    "HASHED_CUMULATIVE",
    "HASHED_POINT",
    "ClientState",
    "CodecError",
    "Contribution",
    "EncodedPoints",
    "Reconciliation",
    "reconcile",
    "required_pairs",
    "split_by_client",
]
