"""Finds the pushes that a batch fails on: the last net below the decoder's bounds.

Owns which errors are of the data, and the search. It reads no push and writes nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from pyspark.errors import PySparkException

from spark_streaming.contributions import CodecError
from spark_streaming.postgres import StoreDataError

__all__ = ["MAX_ISOLATED", "first_failing", "is_of_data"]

#: Pushes that one batch may isolate. More of them are rather a bug than hostile pushes: the
#: batch then fails and stays in the source. Each costs about log2(pushes of the batch) trial runs.
MAX_ISOLATED: Final = 16
#: SQLSTATE class 22, "data exception"; Spark uses the same codes.
_DATA_EXCEPTION: Final = "22"
_DECODER: Final = "kafkaclienttelemetry.rollup."


def is_of_data(error: BaseException) -> bool:
    """Whether a batch failed on what is in its pushes, so that the same pushes fail again."""
    if isinstance(error, CodecError):
        # Bytes of another version in the database.
        return False
    if isinstance(error, PySparkException):
        return (error.getSqlState() or "").startswith(_DATA_EXCEPTION) or _DECODER in str(error)
    return isinstance(error, StoreDataError | ArithmeticError | ValueError | struct.error)


def first_failing(size: int, fails: Callable[[int], bool], *, passed: int = 0) -> int:
    """Find where a sequence begins to fail.

    Args:
        size: The whole sequence, which fails.
        fails: Tells whether the first so many elements fail. It is called at most log2(size) + 1 times.
        passed: So many elements are known not to fail.

    Returns:
        The index of an element with which its predecessors fail and without which they don't.
    """
    low, high = passed, size
    while high - low > 1:
        middle = (low + high) // 2
        if fails(middle):
            high = middle
        else:
            low = middle
    return high - 1
