"""Estimates of the memory that series take.

Owns what the state itself holds for a series, a sample and a target. A user of the state that keeps more
passes its own estimates. The estimates are upper bounds, which a test compares with the memory of a process.
Pure.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Final

__all__ = ["described_bytes", "series_bytes", "target_bytes"]

#: A series with its entries in dictionaries, its numbers and its shape without texts.
_SERIES: Final = 1_000
#: A bucket of a histogram: its boundary and its count, with the references to them.
_SAMPLE: Final = 96
_TARGET: Final = 1_024


def series_bytes(target: Hashable, attributes: tuple[bytes, ...], samples: int) -> int:
    """Estimate the bytes of a series without its metric's texts.

    Args:
        target: The key of its target; not used here.
        attributes: Its attributes, each an encoded ``KeyValue``.
        samples: How many numbers its data point has.
    """
    del target
    return _SERIES + sum(map(sys.getsizeof, attributes)) + _SAMPLE * samples


def target_bytes(resource: bytes) -> int:
    """Estimate the bytes of a target without its series."""
    return _TARGET + 2 * len(resource)


def described_bytes(name: str, unit: str, description: str, shape_bytes: int) -> int:
    """Estimate the bytes of a metric's texts and of its shape, which has the encoded metric twice."""
    return sum(map(sys.getsizeof, (name, unit, description))) + 2 * shape_bytes
