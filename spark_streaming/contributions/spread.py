"""Owns the buckets of a distribution's spread: eight for each doubling, as int16.

They are taken from exponent and mantissa, as a logarithm's last bit differs from one library to the next, and
what one machine adds another may have to take away.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["spread_buckets"]

#: 2 ** (i / 8) / 2: where a bucket begins among mantissas of [0.5, 1).
_BEGINNINGS: Final = np.array([2.0 ** (i / 8 - 1) for i in range(8)])
_ZERO: Final = -32768
_NEGATIVE: Final = -20000
_CLAMP: Final = 8000


def spread_buckets(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Gives each finite value's bucket.

    It is floor(8 * log2(v)) within [-8000, 8000] for v > 0, -32768 for 0, and -20000 less the bucket of -v
    for v < 0. The middle of bucket i is 2 ** ((i + 0.5) / 8).
    """
    mantissa, exponent = np.frexp(np.abs(values))
    bucket = 8 * (exponent.astype(np.int64) - 1) + np.searchsorted(_BEGINNINGS, mantissa, side="right") - 1
    bucket = bucket.clip(-_CLAMP, _CLAMP)
    return np.where(values > 0, bucket, np.where(values < 0, _NEGATIVE - bucket, _ZERO))
