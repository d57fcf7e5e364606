"""Maps values of distributions to spread buckets, eight for each doubling.

Buckets are computed from exponent and mantissa, because the last bit of a logarithm differs between
libraries, and one machine may subtract what another has added.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

#: Lower bounds of the buckets for mantissas in [0.5, 1): 2 ** (i / 8) / 2.
_LOWER_BOUNDS: Final = np.array([2.0 ** (i / 8 - 1) for i in range(8)])
_ZERO: Final = -32768
_NEGATIVE: Final = -20000
_CLAMP: Final = 8000


def spread_buckets(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the bucket of each finite value.

    It is floor(8 * log2(v)) within [-8000, 8000] for v > 0, -32768 for 0, and -20000 minus the
    bucket of -v for v < 0. The middle of bucket i is 2 ** ((i + 0.5) / 8).
    """
    mantissa, exponent = np.frexp(np.abs(values))
    bucket = 8 * (exponent.astype(np.int64) - 1) + np.searchsorted(_LOWER_BOUNDS, mantissa, side="right") - 1
    bucket = bucket.clip(-_CLAMP, _CLAMP)
    return np.where(values > 0, bucket, np.where(values < 0, _NEGATIVE - bucket, _ZERO))
