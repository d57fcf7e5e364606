"""Writes amounts for people: counts, bytes and times, with two digits.

Pure. Programs get the plain number instead.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

_BYTE_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_TIME_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def bytes_text(count: int) -> str:
    """Return bytes in decimal units: ``512 B``, ``3.1 MB``."""
    size = float(max(0, count))
    for unit in _BYTE_UNITS:
        if size < 999.5 or unit == _BYTE_UNITS[-1]:
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 99.5 else f"{size:.1f} {unit}"


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units: ``45 s``, ``3 h 20 min``, ``9 d``."""
    whole = max(0, round(seconds))
    for (unit, size), (next_unit, next_size) in pairwise(_TIME_UNITS):
        if whole >= size:
            more = whole % size // next_size
            return f"{whole // size} {unit} {more} {next_unit}" if more else f"{whole // size} {unit}"
    return f"{whole} s"


def count_text(count: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun: ``1 client``, ``2 clients``."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def share_text(count: int, total: int, noun: str, plural: str = "") -> str:
    """Return a part of a number and its noun: ``0 of 1 client``, ``1 of 2 clients``."""
    return f"{count} of {count_text(total, noun, plural)}"
