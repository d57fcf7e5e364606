"""Upper bounds on the memory of series and targets.

They cover what the state itself holds. A caller that keeps more passes its own estimates. A test
compares them with the memory of a process.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Final

#: A series with its dictionary entries, numbers and shape, without texts.
_SERIES: Final = 1_000
#: A histogram bucket: its boundary, its count and the references to them.
_SAMPLE: Final = 96
_TARGET: Final = 1_024


def series_bytes(target: Hashable, attributes: tuple[bytes, ...], samples: int) -> int:
    """Estimate the bytes of a series of any target, without its metric's texts."""
    del target
    return _SERIES + sum(map(sys.getsizeof, attributes)) + _SAMPLE * samples


def target_bytes(resource: bytes) -> int:
    """Estimate the bytes of a target without its series."""
    return _TARGET + 2 * len(resource)


def described_bytes(name: str, unit: str, description: str, shape_bytes: int) -> int:
    """Estimate the bytes of a metric's texts and its shape (twice its encoding)."""
    return sum(map(sys.getsizeof, (name, unit, description))) + 2 * shape_bytes
