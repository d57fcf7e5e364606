"""Random numbers that no client can predict, read from the kernel many at a time.

One number each time would cost a system call for each fetch of a connection on which addresses are
replaced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

_UINT32 = Struct(">I")
_READ_BYTES: Final = 4096


def random_numbers() -> Callable[[], int]:
    """Return a function that returns another random integer of 31 bits each time.

    It must be made in the process that uses it: a copy of it would return the same numbers.
    """
    return _numbers().__next__


def _numbers() -> Iterator[int]:
    while True:
        for (number,) in _UINT32.iter_unpack(os.urandom(_READ_BYTES)):
            yield number >> 1
