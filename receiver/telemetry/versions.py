"""Versions of software, and ranges of them.

Owns how both are read and compared.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["Version", "VersionRange", "parse_version"]

#: The numbers of a version, without zeros at the end: ``2.5`` and ``2.5.0`` are one version.
Version = tuple[int, ...]

# More digits than these are no version, and Python refuses to read thousands of them.
_VERSION = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,7})(?!\d)")
_BOUND = re.compile(r"\s*(>=|<=|==|=|>|<)\s*(v?\d{1,9}(?:\.\d{1,9}){0,7})\s*")


def parse_version(text: str) -> Version | None:
    """Read the numbers that a version begins with, as in ``4.4.0``, ``v1.22.2`` or ``2.16.1-rdkafka-2.16.0``.

    Args:
        text: A client's software version.

    Returns:
        The numbers, to be compared as a tuple; None where the text begins with none.
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

    What follows the numbers (``-rc1``, ``-ccs``) is not looked at.

    Raises:
        ValueError: The text is no such range; the error says how one looks.
    """

    __slots__ = ("_bounds", "text")

    def __init__(self, text: str) -> None:
        self.text: Final = text
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
        """Say whether a text means to be a range rather than a regular expression."""
        return text.lstrip()[:1] in ("<", ">", "=") and text.lstrip() != ""

    def __contains__(self, version: Version | None) -> bool:
        if version is None:
            return False
        return all(_compare(version, operator, bound) for operator, bound in self._bounds)


def _compare(version: Version, operator: str, bound: Version) -> bool:
    if operator == ">=":
        return version >= bound
    if operator == "<=":
        return version <= bound
    if operator == ">":
        return version > bound
    if operator == "<":
        return version < bound
    return version == bound
