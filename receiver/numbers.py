"""Reads whole numbers of texts from outside.

``int()`` also takes signs, blanks, underscores and the digits of other scripts, and raises for more
than 4,300 digits. ``str.isdigit`` accepts ``²``, which ``int()`` refuses.
"""

from __future__ import annotations

_DIGITS = frozenset("0123456789")


def whole_number(text: str, at_most: int) -> int | None:
    """Return the number that a text of ASCII digits is, up to a bound; else None.

    Args:
        text: The text. It may have leading zeros, but not more digits than the bound.
    """
    if not text or len(text) > len(str(at_most)) or not _DIGITS.issuperset(text):
        return None
    number = int(text)
    return number if number <= at_most else None
