"""The memory of this process, and its garbage collection."""

from __future__ import annotations

import gc
import resource
from pathlib import Path
from typing import Final

_PAGE_BYTES: Final = resource.getpagesize()

#: A push creates some hundred objects, hardly any of them in a cycle. Python's default threshold of
#: 700 objects would start several collections for every push.
GC_THRESHOLDS: Final = (20_000, 20, 20)


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes, shared pages included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def tune_garbage_collection() -> None:
    """Exclude all present objects from garbage collection, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
