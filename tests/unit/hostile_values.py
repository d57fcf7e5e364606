"""Values from outside that a parser may fail at in a way that it does not declare.

Each was chosen because an innocent-looking call raises for it: ``int()`` for digits of other
scripts and for thousands of digits, ``astimezone`` for the ends of time, ``repr`` for large
numbers, any recursion for depth, ``encode`` for half a surrogate pair.
"""

from __future__ import annotations

from typing import Any, Final

#: Times that RFC 3339 can write and Python can't compute with in UTC, and others that are none.
TIMES: Final = (
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59.999999999Z",
    "0000-01-01T00:00:00Z",
    "2030-02-30T00:00:00Z",
    "2030-01-01T24:00:00Z",
    "2030-01-01T23:59:60Z",
    "2030-01-01T00:00:00+24:00",
    "٢٠٣٠-01-01T00:00:00Z",
    "2030-01-01T00:00:00",
)

#: Texts where a number is expected.
NUMBERS: Final = (
    "²",
    "٣",
    "9" * 5000,
    "-1",
    "+1",
    "1_000",
    " 1",
    "1.5",
    "1e999",
    "nan",
    "inf",
    "0x10",
    "18446744073709551616",
)

#: Other texts.
TEXTS: Final = (
    "",
    "\0",
    "\ud800",
    "\U0001f600",
    "\u2028",
    "a\r\nb",
    "../..",
    "%",
    "'\"`;--",
    "x" * 5000,
    "metrics[" + "9" * 5000 + "]",
    "metrics[²]",
    "match.client_id[3]",
)

#: Regular expressions that RE2 refuses, or that need much memory.
PATTERNS: Final = ("(", "a{1001}", "((a{100}){100}){100}", "(?<x>a)", "\\", "(?P<n>a)(?P<n>b)", "(" * 2000)


def nested(depth: int) -> Any:
    """Return a list in a list, and so on."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


#: Values of every type of JSON.
VALUES: Final[tuple[Any, ...]] = (
    *TIMES,
    *NUMBERS,
    *TEXTS,
    *PATTERNS,
    None,
    True,
    0,
    -1,
    10**300,
    2**64,
    1.5,
    1e308,
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"a": {"b": []}},
    ["x"] * 300,
    {f"k{number}": "v" for number in range(100)},
    nested(30),
)
