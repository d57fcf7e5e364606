"""Owns what depends on a client's other pushes: several in a minute, none in a minute, growing sums.

Pure: no input or output, no clock. What has to be remembered between batches goes in and out as values.
"""

from spark_streaming.contributions.packed import HASHED_CUMULATIVE, HASHED_POINT, PackedError, PackedPoints
from spark_streaming.contributions.settle import in_parts, pairs_of, settle
from spark_streaming.contributions.values import ClientState, Contribution, Settlement

__all__ = [
    "HASHED_CUMULATIVE",
    "HASHED_POINT",
    "ClientState",
    "Contribution",
    "PackedError",
    "PackedPoints",
    "Settlement",
    "in_parts",
    "pairs_of",
    "settle",
]
