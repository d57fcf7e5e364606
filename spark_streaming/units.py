"""Reads sizes and times with units, such as ``64MiB`` and ``30s``.

A key's name says the unit of its number (``max_bytes``, ``timeout_ms``), and text with a unit is
converted to it. Where that gives no number of the key's type, the text stays for the error.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Any, Final, Union

from pydantic import BaseModel

_SIZES: Final = {
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", 1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)},
}
#: Units of time in milliseconds.
_TIMES: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
#: The unit of a key's number, by the end of the key.
_KEYS: Final = {
    "_bytes": (_SIZES, 1, "64MiB"),
    "_bytes_per_minute": (_SIZES, 1, "64MiB"),
    "_ms": (_TIMES, 1, "30s"),
    "_s": (_TIMES, 1_000, "30s"),
    "_seconds": (_TIMES, 1_000, "30s"),
    "_minutes": (_TIMES, 60_000, "2h"),
    "_hours": (_TIMES, 3_600_000, "2d"),
    "_days": (_TIMES, 86_400_000, "7d"),
}
_QUANTITY: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([A-Za-z]{1,3})")


def with_units(document: Any, annotation: Any, key: str = "") -> Any:
    """Return a document with numbers in place of sizes and times with units.

    Args:
        document: The configuration, or the part of it below ``key``; it is not changed.
    """
    options = list(_options(annotation))
    if isinstance(document, str):
        number = quantity(document, key)
        fits = int in options and isinstance(number, int)
        return number if fits or (float in options and number is not None) else document
    for option in options:
        if isinstance(document, dict) and isinstance(option, type) and issubclass(option, BaseModel):
            types_ = {field.alias or name: field.annotation for name, field in option.model_fields.items()}
            return {name: with_units(value, types_.get(name), name) for name, value in document.items()}
        arguments = typing.get_args(option)
        if isinstance(document, list) and typing.get_origin(option) in (list, tuple) and arguments:
            return [with_units(value, arguments[0], key) for value in document]
    return document


def quantity(text: str, key: str) -> float | None:
    """Return the number that a text with a unit is under a key; None if it is none."""
    found = _QUANTITY.fullmatch(text)
    units, base, _ = _of(key)
    if found is None or found[2] not in units:
        return None
    number = Fraction(found[1]) * units[found[2]] / base
    return int(number) if number.denominator == 1 else float(number)


def example(key: str) -> str:
    """Return a text that a key takes, such as ``30s``; empty if it has no unit."""
    return _of(key)[2]


def pattern(key: str) -> str:
    """Return the pattern of texts that a key takes; empty if it has no unit."""
    units, _, _ = _of(key)
    return f"^[0-9]{{1,15}}(\\.[0-9]{{1,9}})? ?({'|'.join(units)})$" if units else ""


def _of(key: str) -> tuple[dict[str, int], int, str]:
    return next((found for end, found in _KEYS.items() if key.endswith(end)), ({}, 1, ""))


def _options(annotation: Any) -> Iterator[Any]:
    """Yield the members of a union, without their metadata."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        yield from _options(typing.get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for option in typing.get_args(annotation):
            yield from _options(option)
    else:
        yield annotation
