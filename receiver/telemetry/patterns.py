"""Regular expressions that come from outside, and ranges of versions.

Owns how both are read. Patterns run on RE2 alone: its time is linear in the text, its memory bounded.
"""

from __future__ import annotations

import re
from typing import Any, Final

import re2

__all__ = ["Version", "VersionRange", "compile_pattern", "parse_version"]

# What RE2 may spend on one pattern's program and states, in bytes.
_PATTERN_MEMORY: Final = 1 << 20

#: The numbers of a version, without zeros at the end: ``2.5`` and ``2.5.0`` are one version.
Version = tuple[int, ...]

# More digits than these are no version, and Python refuses to read thousands of them.
_VERSION = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,7})(?!\d)")
_BOUND = re.compile(r"\s*(>=|<=|==|=|>|<)\s*(v?\d{1,9}(?:\.\d{1,9}){0,7})\s*")


def compile_pattern(pattern: str) -> Any:
    """Compile a regular expression from outside, on RE2, which takes linear time and bounded memory.

    Args:
        pattern: The expression.

    Returns:
        RE2's compiled object; match it against UTF-8 bytes.

    Raises:
        ValueError: It is no RE2 expression, or needs too much memory; the text is RE2's reason.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY
    try:
        return re2.compile(pattern, options)
    except UnicodeEncodeError:
        raise ValueError("it is not Unicode text") from None
    except re2.error as error:
        reason = error.args[0] if error.args else "unknown"
        raise ValueError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason) from None


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
