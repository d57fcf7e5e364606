"""Numbers of this process, from the kernel."""

from __future__ import annotations

import resource
from pathlib import Path

__all__ = ["resident_bytes"]

_PAGE_BYTES = resource.getpagesize()


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes, shared pages included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
