"""Finds the pushes that make a batch fail, by bisection.

This is the last defence behind the decoder's bounds. It decides which errors are caused by data.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from pyspark.errors import PySparkException

from spark_streaming.contributions import CodecError
from spark_streaming.postgres import StoreDataError

#: Pushes that one batch may isolate. More are probably caused by a bug, so the batch fails and
#: stays in the source. Each costs about log2(pushes of the batch) trial runs.
MAX_ISOLATED: Final = 16
#: SQLSTATE class 22, "data exception"; Spark uses the same codes.
_DATA_EXCEPTION: Final = "22"
_DECODER: Final = "kafkaclienttelemetry.rollup."


def is_data_error(error: BaseException) -> bool:
    """Return whether the content of pushes caused an error."""
    if isinstance(error, CodecError):
        # The database has bytes of another version.
        return False
    if isinstance(error, PySparkException):
        return (error.getSqlState() or "").startswith(_DATA_EXCEPTION) or _DECODER in str(error)
    return isinstance(error, StoreDataError | ArithmeticError | ValueError | struct.error)


def first_failing(size: int, fails: Callable[[int], bool], *, known_good: int = 0) -> int:
    """Return the index of an element whose predecessors fail only with it.

    Args:
        size: Length of the sequence, which fails as a whole.
        fails: Returns whether the first n elements fail. Called at most log2(size) + 1 times.
        known_good: Number of leading elements that are known not to fail.
    """
    low, high = known_good, size
    while high - low > 1:
        middle = (low + high) // 2
        if fails(middle):
            high = middle
        else:
            low = middle
    return high - 1
