"""Software versions and version ranges: reads and compares them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Final

#: The numbers of a version without trailing zeros, so that ``2.5`` equals ``2.5.0``.
Version = tuple[int, ...]

# No version has more digits, and Python refuses to convert thousands of them.
_VERSION = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,7})(?!\d)")
_OPERATORS: Final[dict[str, Callable[[Version, Version], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
    "==": operator.eq,
}
_BOUND = re.compile(r"\s*(>=|<=|==|=|>|<)\s*(v?\d{1,9}(?:\.\d{1,9}){0,7})\s*")


def parse_version(text: str) -> Version | None:
    """Return the leading numbers of a version such as ``4.4.0`` or ``v1.22.2``.

    None when the text does not start with a number.
    """
    found = _VERSION.match(text)
    if found is None:
        return None
    numbers = [int(number) for number in found[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


class VersionRange:
    """Bounds on a version, such as ``>=2.5.0,<=2.5.2``, compared number by number.

    Suffixes such as ``-rc1`` and ``-ccs`` are ignored.

    Raises:
        ValueError: The text is not a range.
    """

    __slots__ = ("_bounds",)

    def __init__(self, text: str) -> None:
        bounds: list[tuple[str, Version]] = []
        for part in text.split(","):
            found = _BOUND.fullmatch(part)
            version = parse_version(found[2]) if found else None
            if found is None or version is None:
                raise ValueError(f"{part.strip()!r} is no bound such as >=2.5.0 or <3")
            bounds.append((found[1], version))
        self._bounds = tuple(bounds)

    @staticmethod
    def looks_like(text: str) -> bool:
        """Return whether a text is meant as a range rather than a regular expression."""
        return text.lstrip().startswith(("<", ">", "="))

    def __contains__(self, version: Version | None) -> bool:
        if version is None:
            return False
        return all(_OPERATORS[symbol](version, bound) for symbol, bound in self._bounds)
